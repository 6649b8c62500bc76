#include "millrace/kernels/upsampled_conv3d.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/conv_transpose3d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <optional>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/operation_span.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::array<std::int64_t, 3> kStride{2, 2, 2};
constexpr std::array<std::int64_t, 3> kPadding{1, 1, 1};
constexpr std::array<std::int64_t, 3> kNoDilation{1, 1, 1};
constexpr std::array<std::int64_t, 3> kNoOutputPadding{0, 0, 0};

// True if tap k of the kernel with 3 taps is added into tap a of the kernel with 4 taps. The transposed convolution maps voxel i
// by tap a to output o = 2i + a - 1. In the original convolution, tap k of output o meets voxel (o + k - 1) / 2, rounded down.
constexpr double is_part(std::size_t k, std::size_t a) { return a + k == 2 || a + k == 3 ? 1.0 : 0.0; }

// is_part for all three axes at once, as a matrix (27, 64).
at::Tensor taps_like(const at::Tensor& weight) {
  std::vector<double> taps;
  taps.reserve(1728);
  for (std::size_t k = 0; k < 27; ++k) {
    for (std::size_t a = 0; a < 64; ++a) {
      taps.push_back(is_part(k / 9, a / 16) * is_part(k / 3 % 3, a / 4 % 4) * is_part(k % 3, a % 4));
    }
  }
  return at::tensor(taps, weight.options())  // host: only called for a CPU
      .view({27, 64});
}

// The weights folded to (C, O, 4, 4, 4), in the layout of x, so that the library need not reorder them.
at::Tensor folded(const at::Tensor& weight, const at::Tensor& x) {
  const std::int64_t outputs = weight.size(0);
  const std::int64_t channels = weight.size(1);
  const at::Tensor flat = weight.contiguous().view({outputs, channels, 27});
  const at::Tensor taps = taps_like(weight);
  if (layout_of(x) == at::MemoryFormat::Contiguous) {
    const at::Tensor rows = at::bmm(flat.transpose(0, 1), taps.expand({channels, 27, 64}));
    return rows.to(x.scalar_type()).view({channels, outputs, 4, 4, 4});
  }
  const at::Tensor columns = at::bmm(taps.t().expand({channels, 64, 27}), flat.permute({1, 2, 0}));
  return columns.to(x.scalar_type()).view({channels, 4, 4, 4, outputs}).permute({0, 4, 1, 2, 3});
}

struct UpsampledConv3dFunction : torch::autograd::Function<UpsampledConv3dFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    const at::MemoryFormat layout = layout_of(x);
    const at::Tensor input = x.contiguous(layout);
    context->save_for_backward({input, weight});
    context->saved_data["bias_type"] = static_cast<std::int64_t>(bias.scalar_type());
    return at::conv_transpose3d(input, folded(weight, input), bias.to(x.scalar_type()), kStride, kPadding).contiguous(layout);
  }

  // Computes the gradients by the ordinary convolution with the same taps, which maps `gradient` to a tensor of x's shape.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("an upsampled convolution");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor gradient = gradients[0].contiguous(layout_of(x));
    at::Tensor taps = folded(weight, x);
    variable_list result(3);
    if (context->needs_input_grad(0)) result[0] = at::conv3d(gradient, taps, {}, kStride, kPadding);
    if (context->needs_input_grad(1)) {
      const at::Tensor of_taps =
          std::get<1>(at::convolution_backward(x, gradient, taps, at::OptionalIntArrayRef(), kStride, kPadding, kNoDilation,
                                               false, kNoOutputPadding, 1, {false, true, false}));
      taps.reset();  // freed now, because `flat` is as large
      const at::Tensor flat = of_taps.flatten(2).to(weight.scalar_type());
      const at::Tensor sums = at::bmm(flat, taps_like(weight).t().expand({flat.size(0), 64, 27}));
      result[1] = sums.transpose(0, 1).contiguous().view(weight.sizes());
    }
    if (context->needs_input_grad(2)) {
      const auto type = static_cast<at::ScalarType>(context->saved_data["bias_type"].toInt());
      result[2] = gradient.sum({0, 2, 3, 4}, false, type);
    }
    return result;
  }
};

}  // namespace

// True on the CPU only: a GPU was not tested, and its library may have a faster transposed convolution.
bool transposes_upsampled(const at::Tensor& x) { return x.is_cpu() && x.numel() > 0; }

at::Tensor upsampled_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  MR_CHECK(x.dim() == 5 && weight.dim() == 5 && weight.size(1) == x.size(1) && weight.numel() == weight.size(0) * x.size(1) * 27,
           "upsampled_conv3d takes (N, C, D, H, W) and a weight (O, C, 3, 3, 3)");
  if (!transposes_upsampled(x) || !bias.defined()) return upsampled_conv3d_plain(x, weight, bias);
  const OperationSpan span("millrace::upsampled_conv3d", x, weight);
  return UpsampledConv3dFunction::apply(x, weight, bias);
}

at::Tensor upsampled_conv3d_plain(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const std::array<std::int64_t, 3> sizes{2 * x.size(2), 2 * x.size(3), 2 * x.size(4)};
  const at::Tensor wide = at::upsample_nearest3d(x, sizes);
  const auto shift = bias.defined() ? std::optional(bias.to(x.scalar_type())) : std::nullopt;
  return at::conv3d(wide, weight.to(x.scalar_type()), shift, kNoDilation, kPadding);
}

}  // namespace millrace::kernels
