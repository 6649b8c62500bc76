#include "millrace/kernels/device_group_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "millrace/kernels/arguments.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kBlocks = 1024;        // most blocks in the first pass
constexpr std::int64_t kOfBlock = 1 << 13U;   // least number of elements for a block
constexpr std::int64_t kMostChannels = 256;   // channels last: a block has a thread for each channel
constexpr std::int64_t kMostSamples = 65535;  // limit of a launch's second dimension

const float* numbers(const at::Tensor& x) { return x.defined() ? x.const_data_ptr<float>() : nullptr; }

DeviceGroupNorm arguments(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& statistics,
                          const GroupNormOptions& options) {
  DeviceGroupNorm args{.x = x.const_data_ptr(),
                       .gradient = nullptr,
                       .out = nullptr,
                       .weight = numbers(weight),
                       .bias = numbers(bias),
                       .statistics = statistics.mutable_data_ptr<float>(),
                       .scratch = nullptr,
                       .sums = nullptr,
                       .type = type_of(x),
                       .samples = x.size(0),
                       .channels = x.size(1),
                       .groups = options.groups,
                       .positions = x.numel() / (x.size(0) * x.size(1)),
                       .splits = 1,
                       .channels_last = layout_of(x) != at::MemoryFormat::Contiguous,
                       .silu = options.silu,
                       .slope = static_cast<float>(options.slope),
                       .epsilon = static_cast<float>(options.epsilon)};
  const std::int64_t others = args.samples * (args.channels_last ? 1 : args.channels);
  const std::int64_t of_other = x.numel() / others;
  args.splits = std::clamp<std::int64_t>(std::min(kBlocks / others, of_other / kOfBlock), 1, 512);
  return args;
}

void run(DeviceGroupNorm args, const at::Tensor& x) {
  const at::Tensor scratch = at::empty({args.scratch_floats()}, x.options().dtype(at::kFloat));
  args.scratch = scratch.mutable_data_ptr<float>();
  device_table(x.device().type())->group_norm(args, x.device().index());
}

struct DeviceGroupNormFunction : torch::autograd::Function<DeviceGroupNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const GroupNormOptions& options) {
    const at::Tensor input = x.contiguous(layout_of(x));
    const at::Tensor scale = weight ? weight->contiguous() : at::Tensor();
    const at::Tensor shift = bias ? bias->contiguous() : at::Tensor();
    const at::Tensor statistics = at::empty({2, x.size(0), options.groups}, x.options().dtype(at::kFloat));
    at::Tensor out = at::empty_like(input);
    DeviceGroupNorm args = arguments(input, scale, shift, statistics, options);
    args.out = out.mutable_data_ptr();
    run(args, input);
    context->save_for_backward({input, scale, shift, statistics});
    context->saved_data["groups"] = options.groups;
    context->saved_data["silu"] = options.silu;
    context->saved_data["slope"] = options.slope;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const GroupNormOptions options{.groups = context->saved_data["groups"].toInt(),
                                   .epsilon = 0.0,
                                   .silu = context->saved_data["silu"].toBool(),
                                   .slope = context->saved_data["slope"].toDouble()};
    const at::Tensor gradient = gradients[0].contiguous(layout_of(x));
    at::Tensor out = at::empty_like(x);
    const at::Tensor sums = at::empty({2, x.size(0), x.size(1)}, x.options().dtype(at::kFloat));
    DeviceGroupNorm args = arguments(x, saved[1], saved[2], saved[3], options);
    args.gradient = gradient.const_data_ptr();
    args.out = out.mutable_data_ptr();
    args.sums = sums.mutable_data_ptr<float>();
    run(args, x);
    if (!saved[1].defined()) return {out, {}, {}, {}};
    const at::Tensor totals = sums.sum(1);
    return {out, totals[0], totals[1], {}};
  }
};

}  // namespace

bool has_device_group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto fits = [&](const at::Tensor& one) {
    return !one.defined() || (one.device() == x.device() && one.scalar_type() == at::kFloat);
  };
  if (!has_device_kernel(x) || x.numel() == 0 || x.size(0) > kMostSamples || !fits(weight) || !fits(bias)) return false;
  return layout_of(x) == at::MemoryFormat::Contiguous || x.size(1) <= kMostChannels;
}

at::Tensor device_group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const GroupNormOptions& options) {
  return DeviceGroupNormFunction::apply(x, optional(weight), optional(bias), options);
}

}  // namespace millrace::kernels
