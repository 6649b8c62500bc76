#include "millrace/kernels/soft_pool.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/outer.h>
#include <torch/csrc/autograd/custom_function.h>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"
#include "millrace/kernels/widened.h"

namespace millrace::kernels {
namespace {

std::int64_t pooled(std::int64_t size, std::int64_t stride) { return (size - 2) / stride + 1; }

// x and `out` are dense in `layout`. In the forward pass `gradient` is undefined and `out` is the result. In the backward pass
// `gradient` has the result's layout.
void run(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& out, std::int64_t stride, at::MemoryFormat layout) {
  const detail::SoftPool args{.x = x.const_data_ptr(),
                              .gradient = gradient.defined() ? gradient.const_data_ptr() : nullptr,
                              .out = out.mutable_data_ptr(),
                              .type = type_of(x),
                              .planes = x.size(0) * x.size(1) * x.size(2),
                              .channels = x.size(1),
                              .height = x.size(3),
                              .width = x.size(4),
                              .out_height = pooled(x.size(3), stride),
                              .out_width = pooled(x.size(4), stride),
                              .stride = stride,
                              .channels_last = layout != at::MemoryFormat::Contiguous};
  if (!x.is_cpu()) return device_table(x.device().type())->soft_pool(args, x.device().index());
  const std::int64_t shares = args.channels_last ? x.size(0) * x.size(2) * ((args.channels + 15) / 16) : (args.planes + 15) / 16;
  const detail::Table& table = detail::table();
  parallel(shares, [&](std::int64_t begin, std::int64_t end) {
    table.soft_pool(args, begin, end, scratch(table.soft_pool_scratch(args)));
  });
}

struct SoftPoolFunction : torch::autograd::Function<SoftPoolFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, std::int64_t stride) {
    const at::MemoryFormat layout = layout_of(x);
    const at::Tensor input = x.contiguous(layout);
    at::Tensor out = at::empty({x.size(0), x.size(1), x.size(2), pooled(x.size(3), stride), pooled(x.size(4), stride)},
                               x.options().memory_format(layout));
    run(input, {}, out, stride, layout);
    context->save_for_backward({input});
    context->saved_data["stride"] = stride;
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    only_first_derivative("a soft pooling");
    const at::Tensor x = context->get_saved_variables()[0];
    const at::MemoryFormat layout = layout_of(x);
    at::Tensor out = at::empty_like(x);
    run(x, gradients[0].contiguous(layout), out, context->saved_data["stride"].toInt(), layout);
    return {out, {}};
  }
};

}  // namespace

at::Tensor blurred_soft_pool(const at::Tensor& x, std::int64_t stride) {
  MR_CHECK(x.dim() == 5 && stride >= 1, "blurred_soft_pool takes (N, C, T, H, W) and a stride of at least 1");
  MR_CHECK(x.size(3) >= 2 && x.size(4) >= 2, "blurred_soft_pool takes planes of at least 2 x 2 pixels");
  const bool fits_device = has_device_kernel(x) && x.numel() < std::int64_t{1} << 31;
  if ((!has_kernel(x) && !fits_device) || x.numel() == 0)
    return widened(x, [stride](const at::Tensor& values) { return blurred_soft_pool_plain(values, stride); });
  const OperationSpan span("millrace::blurred_soft_pool", x);
  return SoftPoolFunction::apply(x, stride);
}

at::Tensor blurred_soft_pool_plain(const at::Tensor& x, std::int64_t stride) {
  constexpr double kLargest = 30.0, kFloor = 1e-6;
  const at::Tensor values = wide(x);
  // 2 - |i - 1| for i = 0, 1, 2 is 1, 2, 1; arange() makes it on x's device.
  const at::Tensor line = 2.0 - (at::arange(3, values.options()) - 1.0).abs();
  const at::Tensor planes = values.reshape({-1, 1, x.size(3), x.size(4)});
  const at::Tensor blurred = at::conv2d(planes, (at::outer(line, line) / 16.0).view({1, 1, 3, 3}), {}, {{1, 1}}, {{1, 1}});
  const at::Tensor weight = at::exp(blurred.clamp_max(kLargest));
  const auto mean = [&](const at::Tensor& of) { return at::avg_pool2d(of, {{2, 2}}, {{stride, stride}}); };
  const at::Tensor out = mean(blurred * weight) / (mean(weight) + kFloor);
  return out.view({x.size(0), x.size(1), x.size(2), out.size(2), out.size(3)}).to(x.scalar_type());
}

}  // namespace millrace::kernels
