#include "millrace/device/convolution_guard.h"

#include <ATen/ops/convolution_backward_native.h>
#include <ATen/ops/convolution_native.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "millrace/kernels/convolution_planes.h"

namespace millrace::device {
namespace {

using Mask = std::array<bool, 3>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// The rules that the guards follow. After the guards are installed, only tests change the rules.
struct Rules {
  Below below;
  std::vector<const Fault*> rows;
  std::vector<FoundFault> found;
  std::map<std::string_view, std::int64_t> times;  // for tests: how often each fault was avoided, by name
  bool counts = false;
};

Rules& rules() {
  static auto* const rules = new Rules;  // never freed, because convolutions may run until the process ends
  return *rules;
}

std::atomic<ConvolutionWatcher> watched{nullptr};

bool is_channels_last(const at::Tensor& tensor) {
  const at::MemoryFormat format = tensor.suggest_memory_format();
  return format == at::MemoryFormat::ChannelsLast || format == at::MemoryFormat::ChannelsLast3d;
}

struct Geometry {
  at::IntArrayRef stride, padding, dilation;
  bool transposed;
  at::IntArrayRef output_padding;
  std::int64_t groups;
};

ConvolutionCall call_of(const char* operation, const at::Tensor& input, const at::Tensor& weight, const Geometry& how) {
  const ConvolutionCall call{.format = input.scalar_type(),
                             .channels_last = is_channels_last(input) || is_channels_last(weight),
                             .transposed = how.transposed,
                             .input = input.sizes(),
                             .weight = weight.sizes(),
                             .stride = how.stride,
                             .padding = how.padding,
                             .dilation = how.dilation,
                             .output_padding = how.output_padding,
                             .groups = how.groups,
                             .isa = rules().below.isa,
                             .level2_bytes = rules().below.level2_bytes};
  if (ConvolutionWatcher watcher = watched.load(std::memory_order_relaxed)) watcher(operation, call);
  return call;
}

// Stands for all faults found by trials, which have no row in faults.h.
constexpr Fault kFound{.name = "found here",
                       .reported = "by a trial on this machine",
                       .what = "a convolution that is not right in bf16",
                       .from = OnednnIsa::older,
                       .to = OnednnIsa::amx,
                       .fixed_in = {},
                       .format = at::kBFloat16,
                       .pass = std::nullopt,
                       .hits = nullptr,
                       .instead = Instead::fp32};

bool was_found(const ConvolutionCall& call, Pass pass) {
  return call.format == at::kBFloat16 && std::ranges::any_of(rules().found, [&](const FoundFault& fault) {
           return fault.pass == pass && is_alike(fault.shape, call);
         });
}

// False for calls that ATen would refuse. The guard passes such calls on to ATen, which reports the error.
bool is_ordinary_call(const ConvolutionCall& call) {
  if (call.input.size() != call.weight.size() || call.weight.size() < 3) return false;
  const auto is_for_each = [&](at::IntArrayRef values) { return values.size() == 1 || values.size() + 2 == call.weight.size(); };
  return is_for_each(call.stride) && is_for_each(call.padding) && is_for_each(call.dilation) &&
         is_for_each(call.output_padding) && std::ranges::all_of(call.stride, [](std::int64_t step) { return step > 0; });
}

const Fault* fault_of(const ConvolutionCall& call, Pass pass) {
  Rules& rules = device::rules();
  const bool is_ordinary = is_ordinary_call(call);
  const Fault* fault = is_ordinary ? device::fault_of(rules.rows, call, pass) : nullptr;
  // If the known fault's workaround computes in fp32, a fault that a trial found does not matter.
  const bool may_be_bf16 = fault == nullptr || fault->instead != Instead::fp32;
  if (is_ordinary && may_be_bf16 && was_found(call, pass)) fault = &kFound;
  if (fault != nullptr && rules.counts) ++rules.times[fault->name];
  return fault;
}

at::Tensor around(const at::Tensor& tensor, Instead instead) {
  if (!tensor.defined()) return tensor;
  if (instead == Instead::onednn) return tensor.to_mkldnn();
  // Always copies, because contiguous() keeps channels-last strides if sizes are 1. The copy is also needed for fp32, because
  // fp32 has faults of its own in channels-last.
  const at::ScalarType format = instead == Instead::fp32 ? at::kFloat : tensor.scalar_type();
  return tensor.to(format, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
}

// Prepares a weight or bias for the replacement computation. For Instead::onednn the parameter stays unchanged.
at::Tensor parameter_around(const at::Tensor& tensor, Instead instead) {
  return instead == Instead::onednn ? tensor : around(tensor, instead);
}

// The layout of an output or of an input's gradient: ATen uses channels-last if an operand is channels-last.
at::MemoryFormat layout_of_result(const at::Tensor& input, const at::Tensor& weight, Instead instead) {
  const bool as_weight = instead != Instead::onednn && !is_channels_last(input);
  return (as_weight ? weight : input).suggest_memory_format();
}

// Converts a result to the type and layout that the caller expects. With Preserve the result keeps its layout.
at::Tensor as_before(const at::Tensor& found, at::ScalarType format, at::MemoryFormat layout) {
  if (!found.defined()) return found;
  return (found.is_mkldnn() ? found.to_dense() : found).to(format, /*non_blocking=*/false, /*copy=*/false, layout);
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, std::int64_t groups) {
  const Geometry how{stride, padding, dilation, transposed, output_padding, groups};
  const Fault* fault = fault_of(call_of("aten::convolution", input, weight, how), Pass::forward);
  if (fault == nullptr)
    return at::native::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  const std::optional<at::Tensor> shift = bias ? std::optional(parameter_around(*bias, fault->instead)) : std::nullopt;
  return as_before(at::native::convolution(around(input, fault->instead), parameter_around(weight, fault->instead), shift, stride,
                                           padding, dilation, transposed, output_padding, groups),
                   input.scalar_type(), layout_of_result(input, weight, fault->instead));
}

// Returns the gradients of the weight and the bias.
Gradients gradients_by_planes(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, const Geometry& how,
                              Mask mask) {
  const kernels::VolumeConvolution volume{.stride = how.stride,
                                          .padding = how.padding,
                                          .dilation = how.dilation,
                                          .output_padding = how.output_padding,
                                          .transposed = how.transposed,
                                          .groups = how.groups};
  const kernels::ConvolutionWeights sums = kernels::weights_by_planes(input, grad, weight, volume, mask[1], mask[2]);
  const auto as_input = [&](const at::Tensor& sum) { return sum.defined() ? sum.to(input.scalar_type()) : sum; };
  return {at::Tensor(), as_input(sums.weight), as_input(sums.bias)};
}

Gradients gradients(const Fault* fault, const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
                    at::OptionalIntArrayRef bias_sizes, const Geometry& how, Mask mask) {
  if (!mask[0] && !mask[1] && !mask[2]) return {};
  const auto compute = [&](const at::Tensor& g, const at::Tensor& x, const at::Tensor& w) {
    return at::native::convolution_backward(g, x, w, bias_sizes, how.stride, how.padding, how.dilation, how.transposed,
                                            how.output_padding, how.groups, mask);
  };
  if (fault == nullptr) return compute(grad, input, weight);
  if (fault->instead == Instead::planes) return gradients_by_planes(grad, input, weight, how, mask);
  const auto [of_input, of_weight, of_bias] =
      compute(around(grad, fault->instead), around(input, fault->instead), parameter_around(weight, fault->instead));
  const at::ScalarType format = input.scalar_type();
  return {as_before(of_input, format, layout_of_result(input, weight, fault->instead)),
          as_before(of_weight, format, at::MemoryFormat::Preserve), as_before(of_bias, format, at::MemoryFormat::Preserve)};
}

Gradients convolution_backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
                               at::OptionalIntArrayRef bias_sizes, at::IntArrayRef stride, at::IntArrayRef padding,
                               at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, std::int64_t groups,
                               Mask mask) {
  const Geometry how{stride, padding, dilation, transposed, output_padding, groups};
  const ConvolutionCall call = call_of("aten::convolution_backward", input, weight, how);
  const Fault* of_input = mask[0] ? fault_of(call, Pass::input_gradient) : nullptr;
  const Fault* of_weight = mask[1] || mask[2] ? fault_of(call, Pass::weight_gradient) : nullptr;
  if (of_input == of_weight) return gradients(of_input, grad, input, weight, bias_sizes, how, mask);
  Gradients found = gradients(of_weight, grad, input, weight, bias_sizes, how, {false, mask[1], mask[2]});
  std::get<0>(found) = std::get<0>(gradients(of_input, grad, input, weight, bias_sizes, how, {mask[0], false, false}));
  return found;
}

// Registers Millrace's functions for convolutions and their backward pass on CPUs in place of ATen's. Millrace's functions call
// ATen's, with a workaround if a fault applies.
void stand() {
  static auto* const library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library->impl("convolution", TORCH_FN(convolution));
  library->impl("convolution_backward", TORCH_FN(convolution_backward));
}

void stand_once() {
  static std::once_flag once;
  std::call_once(once, stand);
}

}  // namespace

const std::vector<const Fault*>& guard_convolutions() {
  static const std::vector<const Fault*> rows = [] {
    std::vector<const Fault*> found = faults_in_force(below());
    if (found.empty()) return found;
    rules().below = below();
    rules().rows = found;
    stand_once();
    return found;
  }();
  return rows;
}

void stand_guard() {
  (void)guard_convolutions();
  stand_once();
}

void guard_also(const std::vector<FoundFault>& found) {
  if (found.empty()) return;
  stand_guard();
  for (const FoundFault& fault : found) {
    const auto is_same = [&](const FoundFault& known) { return known.pass == fault.pass && known.shape == fault.shape; };
    if (std::ranges::none_of(rules().found, is_same)) rules().found.push_back(fault);
  }
}

ConvolutionWatcher set_convolution_watcher(ConvolutionWatcher watcher) noexcept {
  return watched.exchange(watcher, std::memory_order_relaxed);
}

ConvolutionGuardForTest::ConvolutionGuardForTest(const Below& below) {
  (void)guard_convolutions();
  rules() = {.below = below, .rows = faults_in_force(below), .found = {}, .times = {}, .counts = true};
  stand_once();
}

ConvolutionGuardForTest::~ConvolutionGuardForTest() {
  rules() = {.below = below(), .rows = guard_convolutions(), .found = {}, .times = {}, .counts = false};
}

std::int64_t ConvolutionGuardForTest::times(std::string_view fault) const {
  const auto it = rules().times.find(fault);
  return it == rules().times.end() ? 0 : it->second;
}

}  // namespace millrace::device
