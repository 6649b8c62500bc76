#include "millrace/kernels/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"
#include "millrace/kernels/widened.h"

namespace millrace::kernels {
namespace {

// x (N, C, ...) is dense in `layout`. `gradient` is undefined in the forward pass; otherwise it has x's layout.
at::Tensor run(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& rates, double epsilon,
               at::MemoryFormat layout) {
  at::Tensor out = at::empty_like(x);
  const detail::RmsNorm args{.x = x.const_data_ptr(),
                             .gradient = gradient.defined() ? gradient.const_data_ptr() : nullptr,
                             .out = out.mutable_data_ptr(),
                             .rates = rates.mutable_data_ptr<float>(),
                             .type = type_of(x),
                             .samples = x.size(0),
                             .channels = x.size(1),
                             .positions = x.numel() / (x.size(0) * x.size(1)),
                             .channels_last = layout != at::MemoryFormat::Contiguous,
                             .epsilon = static_cast<float>(epsilon)};
  if (!x.is_cpu()) {
    device_table(x.device().type())->rms_norm(args, x.device().index());
    return out;
  }
  const auto blocks = [](std::int64_t positions) { return (positions + detail::kRmsBlock - 1) / detail::kRmsBlock; };
  const std::int64_t shares = args.channels_last ? blocks(args.samples * args.positions) : args.samples * blocks(args.positions);
  const detail::Table& table = detail::table();
  parallel(shares, [&](std::int64_t begin, std::int64_t end) {
    table.rms_norm(args, begin, end, args.gradient == nullptr ? nullptr : scratch(table.rms_norm_scratch(args)));
  });
  return out;
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double epsilon) {
    const at::MemoryFormat layout = layout_of(x);
    const at::Tensor input = x.contiguous(layout);
    const at::Tensor rates = at::empty({x.numel() / x.size(1)}, x.options().dtype(at::kFloat));
    context->save_for_backward({input, rates});
    return run(input, {}, rates, epsilon, layout);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    only_first_derivative("an RMS norm");
    const auto saved = context->get_saved_variables();
    const at::MemoryFormat layout = layout_of(saved[0]);
    return {run(saved[0], gradients[0].contiguous(layout), saved[1], 0.0, layout), {}};
  }
};

}  // namespace

at::Tensor rms_norm_silu(const at::Tensor& x, double epsilon) {
  MR_CHECK(x.dim() >= 2, "rms_norm_silu takes (N, C, ...)");
  if ((!has_kernel(x) && !has_device_kernel(x)) || x.numel() == 0)
    return widened(x, [epsilon](const at::Tensor& values) { return rms_norm_silu_plain(values, epsilon); });
  const OperationSpan span("millrace::rms_norm_silu", x);
  return RmsNormFunction::apply(x, epsilon);
}

at::Tensor rms_norm_silu_plain(const at::Tensor& x, double epsilon) {
  const at::Tensor values = wide(x);
  return at::silu(values * at::rsqrt(values.square().mean({1}, true) + epsilon)).to(x.scalar_type());
}

}  // namespace millrace::kernels
