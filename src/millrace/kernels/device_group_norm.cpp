#include "millrace/kernels/device_group_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/operation_span.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kBlocks = 1024;        // the most blocks in the first pass
constexpr std::int64_t kOfBlock = 1 << 13U;   // the least number of elements for a block
constexpr std::int64_t kMostChannels = 256;   // channels last: the most channels, because a block has a thread for each channel
constexpr std::int64_t kMostSamples = 65535;  // limit of a launch's second dimension

const float* address_or_null(const at::Tensor& x) { return x.defined() ? x.const_data_ptr<float>() : nullptr; }

DeviceGroupNorm arguments(const at::Tensor& x, const at::Tensor& before, const at::Tensor& weight, const at::Tensor& bias,
                          const GroupNormOptions& options) {
  DeviceGroupNorm args{.x = x.const_data_ptr(),
                       .gradient = nullptr,
                       .more = nullptr,
                       .out = nullptr,
                       .before = address_or_null(before),
                       .weight = address_or_null(weight),
                       .bias = address_or_null(bias),
                       .statistics = nullptr,
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

at::Tensor floats(at::IntArrayRef sizes, const at::Tensor& like) { return at::empty(sizes, like.options().dtype(at::kFloat)); }

// Runs the kernel, which writes `out` in the layout of x.
void run(DeviceGroupNorm args, const at::Tensor& x, const at::Tensor& statistics, const at::Tensor& out) {
  const at::Tensor scratch = floats({args.scratch_floats()}, x);
  args.statistics = statistics.mutable_data_ptr<float>();
  args.out = out.mutable_data_ptr();
  args.scratch = scratch.mutable_data_ptr<float>();
  device_table(x.device().type())->group_norm(args, x.device().index());
}

struct DeviceGroupNormFunction : torch::autograd::Function<DeviceGroupNormFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& before,
                               const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                               const GroupNormOptions& options) {
    const auto packed = [](const std::optional<at::Tensor>& one) { return one ? one->contiguous() : at::Tensor(); };
    const at::Tensor input = x.contiguous(layout_of(x)), first = packed(before), scale = packed(weight), shift = packed(bias);
    const DeviceGroupNorm args = arguments(input, first, scale, shift, options);
    const at::Tensor statistics = floats({args.statistics_floats()}, input);
    at::Tensor out = at::empty_like(input);
    run(args, input, statistics, out);
    context->save_for_backward({input, first, scale, shift, statistics});
    context->saved_data["groups"] = options.groups;
    context->saved_data["silu"] = options.silu;
    context->saved_data["slope"] = options.slope;
    context->set_materialize_grads(false);
    return {out, x};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a group norm");
    const at::Tensor &upstream = gradients[0], &beside = gradients[1];
    if (!upstream.defined()) return {beside, {}, {}, {}, {}};
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const GroupNormOptions options{.groups = context->saved_data["groups"].toInt(),
                                   .epsilon = 0.0,
                                   .silu = context->saved_data["silu"].toBool(),
                                   .slope = context->saved_data["slope"].toDouble()};
    const at::Tensor gradient = upstream.contiguous(layout_of(x));
    const at::Tensor more = beside.defined() ? beside.contiguous(layout_of(x)) : at::Tensor();
    at::Tensor out = at::empty_like(x);
    DeviceGroupNorm args = arguments(x, saved[1], saved[2], saved[3], options);
    const at::Tensor sums = floats({args.sums_floats() / (args.samples * args.channels), args.samples, args.channels}, x);
    args.gradient = gradient.const_data_ptr();
    args.more = more.defined() ? more.const_data_ptr() : nullptr;
    args.sums = sums.mutable_data_ptr<float>();
    run(args, x, saved[4], out);
    if (!saved[1].defined() && !saved[2].defined()) return {out, {}, {}, {}, {}};
    const at::Tensor totals = sums.sum(1);
    const auto of = [&](const at::Tensor& one, std::int64_t row) { return one.defined() ? totals[row] : at::Tensor(); };
    return {out, of(saved[1], 2), of(saved[2], 0), of(saved[3], 1), {}};
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

DeviceNormed device_group_norm(const at::Tensor& x, const at::Tensor& before, const at::Tensor& weight, const at::Tensor& bias,
                               const GroupNormOptions& options) {
  // Checked here because nn::branched_group_norm() calls this function without the checks of group_norm().
  MR_CHECK(options.groups > 0 && x.size(1) % options.groups == 0,
           "device_group_norm takes (N, C, ...) and a number of groups that divides C");
  const auto fits = [&](const at::Tensor& one) { return !one.defined() || one.numel() == x.size(1); };
  MR_CHECK(weight.defined() == bias.defined() && fits(before) && fits(weight) && fits(bias),
           "device_group_norm takes weight, bias and `before` with a number for each channel");
  const OperationSpan span("millrace::group_norm", x);
  const variable_list both = DeviceGroupNormFunction::apply(x, optional(before), optional(weight), optional(bias), options);
  return {both[0], both[1]};
}

}  // namespace millrace::kernels
