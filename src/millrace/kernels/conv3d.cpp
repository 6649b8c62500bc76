#include "millrace/kernels/conv3d.h"

#include <ATen/Parallel.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/circular_pad.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"

namespace millrace::kernels {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast3d;
constexpr std::int64_t kBand = 8;  // most rows of a band; a band of 8 rows copies 10 rows of each plane of x, 1.25 for each row
                                   // of the result
constexpr std::int64_t kCopiedWords =
    // The most numbers that a band copies. A band of a very wide volume has fewer rows, so that the band stays in the level 2
    // cache.
    1 << 18;

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// The weights as panels: (27, channels, columns), in bf16 (27, pairs of channels, columns, 2).
at::Tensor panels_of(const at::Tensor& weight, at::ScalarType type) {
  const std::int64_t outputs = weight.size(0);
  const std::int64_t channels = weight.size(1);
  const std::int64_t all = type == at::kFloat ? channels : round_up(channels, 2);
  at::Tensor panels = at::zeros({3, 3, 3, all, round_up(outputs, 16)}, weight.options().dtype(type));
  panels.narrow(3, 0, channels).narrow(4, 0, outputs).copy_(weight.permute({2, 3, 4, 1, 0}));
  if (type == at::kFloat) return panels;
  return panels.view({27, all / 2, 2, panels.size(4)}).transpose(2, 3).contiguous();
}

detail::Conv3d arguments(const at::Tensor& x, const at::Tensor& more, std::int64_t outputs) {
  detail::Conv3d a{.x = x.const_data_ptr(),
                   .more = more.defined() ? more.const_data_ptr() : nullptr,
                   .panels = nullptr,
                   .bias = nullptr,
                   .out = nullptr,
                   .out_gradient = nullptr,
                   .samples = x.size(0),
                   .depth = x.size(2),
                   .height = x.size(3),
                   .width = x.size(4),
                   .channels = x.size(1),
                   .more_channels = more.defined() ? more.size(1) : 0,
                   .out_channels = outputs,
                   .band = kBand,
                   .type = type_of(x)};
  const std::int64_t row = (a.width + 2 + detail::kConvSlack) * (a.channels + a.more_channels);
  a.band = std::clamp<std::int64_t>(kCopiedWords / (3 * row) - 2, 1, kBand);
  return a;
}

std::int64_t bands_of(const detail::Conv3d& a) { return a.samples * a.depth * ((a.height + a.band - 1) / a.band); }

std::size_t scratch_bytes(const detail::Conv3d& a) {
  const std::int64_t channels = a.channels + a.more_channels;
  const std::int64_t row =
      std::max((a.width + 2 + detail::kConvSlack) * channels, round_up(channels, 16) * (round_up(a.width + 2, 16) + 48));
  const std::int64_t gradient = a.band * a.width * round_up(a.out_channels, 16);
  return static_cast<std::size_t>(4 * ((3 * (a.band + 2) + 1) * row + gradient + (a.width + 4) * channels + 256));
}

// Convolves x and `more` with weights (O, C, 3, 3, 3).
at::Tensor convolve(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias) {
  detail::Conv3d a = arguments(x, more, weight.size(0));
  at::Tensor out = at::empty({a.samples, a.out_channels, a.depth, a.height, a.width}, x.options().memory_format(kLast));
  const at::Tensor panels = panels_of(weight, x.scalar_type());
  at::Tensor start;
  if (bias.defined()) {
    start = at::zeros({round_up(a.out_channels, 16)}, x.options().dtype(at::kFloat));
    start.narrow(0, 0, a.out_channels).copy_(bias);
    a.bias = start.const_data_ptr<float>();
  }
  a.panels = static_cast<const std::uint32_t*>(panels.const_data_ptr());
  a.out = out.mutable_data_ptr();
  const detail::Table& table = detail::table();
  parallel(bands_of(a),
           [&](std::int64_t begin, std::int64_t end) { table.conv3d_forward(a, begin, end, scratch(scratch_bytes(a))); });
  return out;
}

struct ConvolutionSums {
  at::Tensor weight, bias;  // fp32
};

// Returns the gradients of weight and bias. Each thread sums over its bands; then the threads' sums are added in order.
ConvolutionSums weight_gradients(const at::Tensor& x, const at::Tensor& more, const at::Tensor& gradient) {
  detail::Conv3d a = arguments(x, more, gradient.size(1));
  a.out_gradient = gradient.const_data_ptr();
  const std::int64_t channels = a.channels + a.more_channels;
  const std::int64_t columns = round_up(a.out_channels, 16);
  const std::int64_t row = round_up(3 * channels, 16);
  const std::int64_t bands = bands_of(a);
  const std::int64_t parts = std::min<std::int64_t>(bands, at::get_num_threads());
  const at::Tensor sums = at::zeros({parts, 9 * columns * row + columns}, x.options().dtype(at::kFloat));
  const detail::Table& table = detail::table();
  parallel(parts, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      float* to = sums.mutable_data_ptr<float>() + part * sums.size(1);
      table.conv3d_weights(a, bands * part / parts, bands * (part + 1) / parts, scratch(scratch_bytes(a)), to,
                           to + 9 * columns * row);
    }
  });
  const at::Tensor total = sums.sum(0);
  const at::Tensor places = total.narrow(0, 0, 9 * columns * row).view({3, 3, columns, row}).narrow(2, 0, a.out_channels);
  return {places.narrow(3, 0, 3 * channels).reshape({3, 3, a.out_channels, 3, channels}).permute({2, 4, 0, 1, 3}).contiguous(),
          total.narrow(0, 9 * columns * row, a.out_channels).clone()};
}

struct DirectConv3dFunction : torch::autograd::Function<DirectConv3dFunction> {
  using Context = torch::autograd::AutogradContext;

  // `more` is the last argument, because needs_input_grad() does not count an absent tensor.
  static at::Tensor forward(Context* context, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const std::optional<at::Tensor>& more) {
    const at::Tensor second = more.value_or(at::Tensor());
    context->save_for_backward({x, weight, second});
    return convolve(x, second, weight, bias);
  }

  static torch::autograd::variable_list backward(Context* context, const torch::autograd::variable_list& gradients) {
    only_first_derivative("a circular convolution");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &more = saved[2];
    const at::Tensor gradient = gradients[0].contiguous(kLast);
    torch::autograd::variable_list result(4);
    // For the gradient of an input, the flipped weights are cut to the channels of that input.
    const at::Tensor turned = weight.flip({2, 3, 4}).transpose(0, 1);
    if (context->needs_input_grad(0)) result[0] = convolve(gradient, {}, turned.narrow(0, 0, x.size(1)), {});
    if (more.defined() && context->needs_input_grad(3)) {
      result[3] = convolve(gradient, {}, turned.narrow(0, x.size(1), more.size(1)), {});
    }
    if (context->needs_input_grad(1) || context->needs_input_grad(2)) {
      ConvolutionSums sums = weight_gradients(x, more, gradient);
      if (context->needs_input_grad(1)) result[1] = std::move(sums.weight);
      if (context->needs_input_grad(2)) result[2] = std::move(sums.bias);
    }
    return result;
  }
};

}  // namespace

bool has_direct_conv3d(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias) {
  const auto fits = [](const at::Tensor& volume) {
    return volume.dim() == 5 && has_kernel(volume) && volume.is_contiguous(kLast);
  };
  if (!fits(x) || x.numel() == 0 || weight.dim() != 5 || weight.scalar_type() != at::kFloat || bias.scalar_type() != at::kFloat)
    return false;
  if (weight.size(2) != 3 || weight.size(3) != 3 || weight.size(4) != 3) return false;
  return !more.defined() ||
         (fits(more) && more.scalar_type() == x.scalar_type() && more.numel() > 0 && differ_in_channels_alone(x, more));
}

at::Tensor direct_conv3d(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias) {
  MR_CHECK(has_direct_conv3d(x, more, weight, bias), "direct_conv3d has no kernel for these tensors");
  MR_CHECK(weight.size(1) == x.size(1) + (more.defined() ? more.size(1) : 0),
           "direct_conv3d: the weight needs as many channels as both inputs together");
  const OperationSpan span("millrace::direct_conv3d", x, more, weight, bias);
  return DirectConv3dFunction::apply(x, weight, bias, optional(more));
}

at::Tensor direct_conv3d_plain(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias) {
  return at::conv3d(circular_pad(x, more), weight.to(x.scalar_type()), bias.to(x.scalar_type()));
}

}  // namespace millrace::kernels
