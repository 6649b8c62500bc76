#include "millrace/nn/batch_norm.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "millrace/base/error.h"

namespace millrace::nn {
namespace {

// Adds up over the ranks. Every rank's loss depends on the sum, so the gradient of what one rank put in is the sum of all ranks'
// gradients.
struct SumOverRanks : torch::autograd::Function<SumOverRanks> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& mine, std::int64_t agreement) {
    context->saved_data["agreement"] = agreement;
    return sum(mine, agreement);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {sum(gradients[0], context->saved_data["agreement"].toInt()), {}};
  }
  static at::Tensor sum(const at::Tensor& mine, std::int64_t agreement) {
    std::vector<at::Tensor> values = {mine.clone()};
    reinterpret_cast<Agreement*>(agreement)->sum(values);
    return values[0];
  }
};

// (C) as (1, C, 1, ...), to stand beside x.
at::Tensor beside(const at::Tensor& channel, const at::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = channel.size(0);
  return channel.view(shape);
}

std::vector<std::int64_t> all_but_channels(const at::Tensor& x) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t i = 0; i < x.dim(); ++i) {
    if (i != 1) dimensions.push_back(i);
  }
  return dimensions;
}

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
  MR_CHECK(x.dim() >= 2 && x.size(1) == channels_, "a batch norm takes (N, C, ...) with its own number of channels");
  if (is_training()) num_batches_tracked.add_(1);
  if (is_training() && agreement_ != nullptr && !agreement_->alone()) return forward_shared(x);
  return at::batch_norm(x, weight, bias, running_mean, running_var, is_training(), options_.momentum, options_.eps,
                        at::globalContext().userEnabledCuDNN());
}

at::Tensor BatchNormImpl::forward_shared(const at::Tensor& x) {
  const auto agreement = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(agreement_));
  const std::vector<std::int64_t> dimensions = all_but_channels(x);
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor count = SumOverRanks::sum(
      at::full({1}, static_cast<double>(x.numel()) / static_cast<double>(channels_), wide.options()), agreement);
  const at::Tensor mean = SumOverRanks::apply(wide.sum(dimensions), agreement) / count;
  const at::Tensor centred = wide - beside(mean, x);
  const at::Tensor variance = SumOverRanks::apply(centred.square().sum(dimensions), agreement) / count;
  {
    const at::NoGradGuard no_grad;
    running_mean.mul_(1 - options_.momentum).add_(mean * options_.momentum);
    running_var.mul_(1 - options_.momentum).add_(variance * (count / (count - 1).clamp_min(1)) * options_.momentum);
  }
  const at::Tensor y = centred * beside(at::rsqrt(variance + options_.eps) * weight, x) + beside(bias, x);
  return y.to(x.scalar_type());
}

void share_batch_norms(torch::nn::Module& module, Agreement* agreement) {
  for (const auto& part : module.modules()) {
    if (auto* norm = dynamic_cast<BatchNormImpl*>(part.get())) norm->share(agreement);
  }
}

}  // namespace millrace::nn
