#include "millrace/nn/batch_norm.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/kernels/backward_rules.h"

namespace millrace::nn {
namespace {

// Reshapes (C) to (1, C, 1, ...), which broadcasts with x.
at::Tensor along_channels(const at::Tensor& channel, const at::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = channel.size(0);
  return channel.view(shape);
}

// Holds the agreement for autograd, from the forward to the backward pass.
struct Held : torch::CustomClassHolder {
  explicit Held(Agreement* of) : agreement(of) {}
  Agreement* agreement;
};

// Computes for the rows of all ranks what a single process would compute, with one exchange in the forward pass and one in the
// backward pass. The ranks' moments are combined as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
// computing sample variances" (1979). Gradients of weight and bias cover only this rank's rows, because the trainer adds up the
// ranks' gradients.
struct SharedBatchNorm : torch::autograd::Function<SharedBatchNorm> {
  struct Moments {
    at::Tensor mean, variance;  // f64 [C]; the variance is divided by count
    at::Tensor count;           // f64 scalar
  };

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& running_mean, const at::Tensor& running_var,
                            const BatchNormOptions& options, Agreement* agreement) {
    const Moments all = moments_of_all(x, *agreement);
    const auto update = [&](const at::Tensor& running, const at::Tensor& now) {
      running.mul_(1 - options.momentum).add_(now.to(running.scalar_type()), options.momentum);
    };
    update(running_mean, all.mean);
    update(running_var, all.variance * (all.count / (all.count - 1).clamp_min(1)));
    const at::Tensor mean = all.mean.to(weight.scalar_type()), variance = all.variance.to(weight.scalar_type());
    context->save_for_backward({x, weight, mean, at::rsqrt(all.variance + options.eps).to(weight.scalar_type()), all.count});
    context->saved_data["agreement"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(agreement));
    if (x.numel() == 0) return at::empty_like(x);
    return std::get<0>(at::native_batch_norm(x, weight, bias, mean, variance, /*training=*/false, 0, options.eps));
  }

  // dx = a dy + b x + c, with a, b and c for each channel.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    kernels::only_first_derivative("a batch norm of all ranks");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &scale = saved[3], &count = saved[4];
    const at::Tensor dy = gradients[0].to(x.scalar_type());
    at::Tensor weight_gradient = at::zeros_like(weight), bias_gradient = at::zeros_like(weight);
    if (x.numel() > 0) {
      std::tie(std::ignore, weight_gradient, bias_gradient) =
          at::native_batch_norm_backward(dy, x, weight, {}, {}, mean, scale, /*train=*/true, 0, {false, true, true});
    }
    std::vector<at::Tensor> all = {at::stack({weight_gradient, bias_gradient}).to(at::kDouble)};
    static_cast<const Held&>(*context->saved_data["agreement"].toCapsule()).agreement->sum(all);
    if (x.numel() == 0) return {at::zeros_like(x), weight_gradient, bias_gradient, {}, {}, {}, {}};
    const at::Tensor a = (weight * scale).to(at::kDouble);
    const at::Tensor b = -a * scale * all[0][0] / count;
    const at::Tensor c = -a * all[0][1] / count - b * mean;
    const auto type = weight.scalar_type();
    at::Tensor dx = std::get<0>(at::native_batch_norm(x, b.to(type), c.to(type), at::zeros_like(mean), at::ones_like(mean),
                                                      /*training=*/false, 0, /*eps=*/0));
    dx.addcmul_(dy, along_channels(a.to(type), x));
    return {dx, weight_gradient, bias_gradient, {}, {}, {}, {}};
  }

 private:
  static Moments moments_of_all(const at::Tensor& x, Agreement& agreement) {
    const std::int64_t channels = x.size(1);
    const Ranks ranks = agreement.ranks();
    const double rows = static_cast<double>(x.numel()) / static_cast<double>(channels);
    at::Tensor table = at::zeros({ranks.world_size, 1 + 2 * channels}, x.options().dtype(at::kDouble));
    at::Tensor mine = table[ranks.rank];
    if (x.numel() > 0) {  // LibTorch refuses to normalise an empty tensor
      const auto own = at::batch_norm_update_stats(x, {}, {}, 0);
      mine.narrow(0, 0, 1).fill_(rows);
      mine.narrow(0, 1, channels).copy_(std::get<0>(own));
      mine.narrow(0, 1 + channels, channels).copy_(std::get<1>(own) * rows);
    }
    std::vector<at::Tensor> values = {table};
    agreement.sum(values);
    const at::Tensor counts = values[0].narrow(1, 0, 1), means = values[0].narrow(1, 1, channels),
                     squares = values[0].narrow(1, 1 + channels, channels);
    Moments all;
    all.count = counts.sum();
    all.mean = (counts * means).sum(0) / all.count;
    all.variance = (squares + counts * (means - all.mean).square()).sum(0) / all.count;
    return all;
  }
};

}  // namespace

BatchNormImpl::BatchNormImpl(std::int64_t channels, BatchNormOptions options) : channels_(channels), options_(options) {
  reset();
}

void BatchNormImpl::reset() {
  weight = register_parameter("weight", at::ones({channels_}));
  bias = register_parameter("bias", at::zeros({channels_}));
  running_mean = register_buffer("running_mean", at::zeros({channels_}));
  running_var = register_buffer("running_var", at::ones({channels_}));
  num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

at::Tensor BatchNormImpl::forward(const at::Tensor& x) {
  MR_CHECK(x.dim() >= 2 && x.size(1) == channels_,
           "a batch norm takes (N, C, ...) with the number of channels for which it was made");
  if (is_training()) num_batches_tracked.add_(1);
  if (is_training() && agreement_ != nullptr && !agreement_->alone()) return forward_shared(x);
  return at::batch_norm(x, weight, bias, running_mean, running_var, is_training(), options_.momentum, options_.eps,
                        at::globalContext().userEnabledCuDNN());
}

at::Tensor BatchNormImpl::forward_shared(const at::Tensor& x) {
  return SharedBatchNorm::apply(x, weight, bias, running_mean, running_var, options_, agreement_);
}

void share_batch_norms(torch::nn::Module& module, Agreement* agreement) {
  for (const auto& part : module.modules()) {
    if (auto* norm = dynamic_cast<BatchNormImpl*>(part.get())) norm->share(agreement);
  }
}

}  // namespace millrace::nn
