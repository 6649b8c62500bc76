#include "entries.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <vector>

#include "accounts.h"
#include "aliases.h"
#include "computed.h"
#include "copies.h"
#include "device_memory.h"
#include "generator.h"
#include "operations.h"
#include "races.h"
#include "recorder.h"
#include "streams.h"

namespace millrace::standin {
namespace {

using at::Tensor;
using Layout = std::optional<at::Layout>;
using Type = std::optional<at::ScalarType>;
using Place = std::optional<at::Device>;

c10::Device place(Place device) {
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(device && device->has_index() ? device->index() : current_device())};
}

Tensor empty(at::IntArrayRef sizes, Type type, Layout /*layout*/, Place device, std::optional<bool> pinned,
             std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::DeviceGuard guard(place(device));
  return at::detail::empty_generic(sizes, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   c10::dtype_or_default(type), format);
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, Type type, Layout /*layout*/, Place device,
                     std::optional<bool> pinned) {
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::DeviceGuard guard(place(device));
  return at::detail::empty_strided_generic(sizes, strides, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           c10::dtype_or_default(type));
}

Tensor view(const Tensor& self, c10::SymIntArrayRef sizes) { return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes)); }

Tensor as_strided(const Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, std::optional<c10::SymInt> offset) {
  const auto from = offset ? std::optional(offset->guard_int(__FILE__, __LINE__)) : std::nullopt;
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), from);
}

Tensor reshape_alias(const Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
}

const Tensor& resize(const Tensor& self, at::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(self.device());
  const bool records = recorder(self.get_device()) != nullptr;
  const Tensor alias = records ? Scratch(0).of(self) : alias_of(self);
  alias.resize_(sizes, format);
  if (records && self.storage().nbytes() > 0 && alias.storage().nbytes() > self.storage().nbytes())
    refuse_in_recording("resize_ of a tensor that has memory");
  follow(self, alias, records);
  return self;
}

at::Scalar local_scalar(const Tensor& self) {
  const int device = self.get_device();
  count(Count::read_backs, "aten::_local_scalar_dense");
  launch(device, "aten::_local_scalar_dense");
  wait(current_stream(device), "aten::_local_scalar_dense");
  return at::_local_scalar_dense(alias_of(self));
}

Tensor& set_to_storage(Tensor& self, at::Storage source, std::int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  if (!strides.empty() || sizes.empty()) {
    self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  } else {
    self.unsafeGetTensorImpl()->set_storage_offset(offset);
    self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  }
  return self;
}

Tensor& set_source(Tensor& self, at::Storage source) {
  const auto size = static_cast<std::int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_to_storage(self, std::move(source), 0, {size}, {1});
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return self.is_same(source) ? self
                              : set_to_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor& set_nothing(Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  return set_to_storage(self, at::Storage(at::Storage::use_byte_size_t(), 0, device_allocator(), true), 0, {0}, {1});
}

void record_stream(Tensor& self, at::Stream stream) { keep_for(for_kernels(self.storage().data()), line_of(stream)); }

// In 16 bits oneDNN has faults that would be ours here (docs/known-faults.md), and ATen has no fp16: fp32 in between.
bool is_narrow(const Tensor& x) { return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16; }
Tensor widened(const Tensor& x) { return x.defined() && is_narrow(x) ? x.to(at::kFloat) : x; }
Tensor result_like(const Tensor& result, const Tensor& x) {
  return result.defined() && is_narrow(x) ? result.to(x.scalar_type()) : result;
}

// What a convolution that computes nothing gives.
Tensor unfilled(const Tensor& x, const Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                bool transposed, at::IntArrayRef output_padding, std::int64_t groups) {
  const auto of = [](at::IntArrayRef each, std::int64_t i) { return each[each.size() == 1 ? 0 : static_cast<std::size_t>(i)]; };
  std::vector<std::int64_t> sizes = {x.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (std::int64_t i = 0; i < x.dim() - 2; ++i) {
    const std::int64_t reach = of(dilation, i) * (weight.size(i + 2) - 1);
    const std::int64_t in = x.size(i + 2);
    sizes.push_back(transposed ? (in - 1) * of(stride, i) - 2 * of(padding, i) + reach + of(output_padding, i) + 1
                               : (in + 2 * of(padding, i) - reach - 1) / of(stride, i) + 1);
  }
  return at::empty(sizes, x.options(), x.suggest_memory_format());
}

Tensor convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
                   std::int64_t groups) {
  if (computes_nothing()) {
    const Tensor out = unfilled(x, weight, stride, padding, dilation, transposed, output_padding, groups);
    list_operation("aten::convolution", {x, weight, bias.value_or(Tensor())}, {out});
    return out;
  }
  const auto compute = [=, stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
                        output_padding = output_padding.vec()](const std::vector<Tensor>& in) {
    const std::optional<Tensor> b = in[2].defined() ? std::optional(widened(in[2])) : std::nullopt;
    const Tensor out =
        at::convolution(widened(in[0]), widened(in[1]), b, stride, padding, dilation, transposed, output_padding, groups);
    return std::vector<Tensor>{result_like(out, in[0])};
  };
  return computed("aten::convolution", {x, weight, bias.value_or(Tensor())}, compute)[0];
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& gradient, const Tensor& x, const Tensor& weight,
                                                        at::OptionalIntArrayRef bias_sizes, at::IntArrayRef stride,
                                                        at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                                                        at::IntArrayRef output_padding, std::int64_t groups,
                                                        std::array<bool, 3> mask) {
  if (computes_nothing()) {
    const std::int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
    const std::array<Tensor, 3> results = {mask[0] ? at::empty_like(x) : Tensor(), mask[1] ? at::empty_like(weight) : Tensor(),
                                           mask[2] ? at::empty({channels}, weight.options()) : Tensor()};
    list_operation("aten::convolution_backward", {gradient, mask[1] ? x : Tensor(), mask[0] ? weight : Tensor()},
                   {results.begin(), results.end()});
    return {results[0], results[1], results[2]};
  }
  const auto biases = bias_sizes ? std::optional(bias_sizes->vec()) : std::nullopt;
  const auto compute = [=, stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
                        output_padding = output_padding.vec()](const std::vector<Tensor>& in) {
    const at::OptionalIntArrayRef sizes = biases ? at::OptionalIntArrayRef(*biases) : std::nullopt;
    const auto [a, b, c] = at::convolution_backward(widened(in[0]), widened(in[1]), widened(in[2]), sizes, stride, padding,
                                                    dilation, transposed, output_padding, groups, mask);
    return std::vector<Tensor>{result_like(a, in[1]), result_like(b, in[1]), result_like(c, in[1])};
  };
  const std::vector<Tensor> results = computed("aten::convolution_backward", {gradient, x, weight}, compute);
  return {results[0], results[1], results[2]};
}

// A GPU takes a softmax of fp16 or bf16 to fp32 in one kernel, and its gradient back; ATen's CPU refuses.
template <typename F>
Tensor rows(const std::string& name, const std::vector<Tensor>& arguments, at::ScalarType type, F compute) {
  if (computes_nothing()) {
    const Tensor result = at::empty_like(arguments[0], arguments[0].options().dtype(type));
    list_operation(name, arguments, {result});
    return result;
  }
  const auto wide = [compute, type](const std::vector<Tensor>& in) {
    std::vector<Tensor> all;
    for (const Tensor& each : in) all.push_back(widened(each));
    return std::vector<Tensor>{compute(all).to(type)};
  };
  return computed(name, arguments, wide)[0];
}

Tensor softmax(const Tensor& x, std::int64_t dim, bool to_float) {
  return rows("aten::_softmax", {x}, to_float ? at::kFloat : x.scalar_type(),
              [dim](const auto& wide) { return at::_softmax(wide[0], dim, false); });
}
Tensor log_softmax(const Tensor& x, std::int64_t dim, bool to_float) {
  return rows("aten::_log_softmax", {x}, to_float ? at::kFloat : x.scalar_type(),
              [dim](const auto& wide) { return at::_log_softmax(wide[0], dim, false); });
}
Tensor softmax_backward(const Tensor& gradient, const Tensor& y, std::int64_t dim, at::ScalarType type) {
  return rows("aten::_softmax_backward_data", {gradient, y}, type,
              [dim](const auto& wide) { return at::_softmax_backward_data(wide[0], wide[1], dim, wide[0].scalar_type()); });
}
Tensor log_softmax_backward(const Tensor& gradient, const Tensor& y, std::int64_t dim, at::ScalarType type) {
  return rows("aten::_log_softmax_backward_data", {gradient, y}, type,
              [dim](const auto& wide) { return at::_log_softmax_backward_data(wide[0], wide[1], dim, wide[0].scalar_type()); });
}

// The CPU's draws from the CPU's default generator.
std::tuple<Tensor, Tensor> native_dropout(const Tensor& x, double p, std::optional<bool> train) {
  if (!train.value_or(true) || p == 0.0) return {x.clone(), at::empty_like(x, x.options().dtype(at::kBool)).fill_(true)};
  const Tensor kept = at::empty_like(x, x.options().dtype(at::kBool)).bernoulli_(1.0 - p);
  const double scale = p == 1.0 ? 0.0 : 1.0 / (1.0 - p);
  return {x.mul(kept).mul_(scale), kept};
}

// Without a kernel of its own attention is composed of products and a softmax, as in fp32 on a GPU. A device that computes
// nothing has the fused one in 16 bits, so that a list of operations (operations.h) has what a GPU launches.
using Attended = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;
std::int64_t choice_of_attention(const Tensor& query, const Tensor& /*key*/, const Tensor& /*value*/,
                                 const std::optional<Tensor>& mask, double /*dropout*/, bool /*causal*/,
                                 std::optional<double> /*scale*/, bool /*grouped*/) {
  const bool fused = computes_nothing() && is_narrow(query) && !mask && query.size(-1) <= 256;
  return static_cast<std::int64_t>(fused ? at::SDPBackend::flash_attention : at::SDPBackend::math);
}

// (B, H, T, D), with a position's heads beside each other in memory.
Tensor blank_heads(const Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options()).transpose(1, 2);
}

Attended attention(const Tensor& query, const Tensor& key, const Tensor& value, double /*dropout*/, bool /*causal*/,
                   bool /*debug*/, std::optional<double> /*scale*/) {
  TORCH_CHECK(computes_nothing(), "stand-in: no fused attention");
  const Tensor out = blank_heads(query);
  const Tensor log_sums = at::empty({query.size(0), query.size(1), query.size(2)}, query.options().dtype(at::kFloat));
  const Tensor state = at::empty({2}, query.options().dtype(at::kLong));
  list_operation("aten::_scaled_dot_product_flash_attention", {query, key, value}, {out, log_sums});
  return {out, log_sums, Tensor(), Tensor(), query.size(2), key.size(2), state, at::empty({}, state.options()), Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& gradient, const Tensor& query, const Tensor& key,
                                                      const Tensor& value, const Tensor& out, const Tensor& log_sums,
                                                      const Tensor& /*from*/, const Tensor& /*to*/, c10::SymInt /*most_queries*/,
                                                      c10::SymInt /*most_keys*/, double /*dropout*/, bool /*causal*/,
                                                      const Tensor& /*seed*/, const Tensor& /*offset*/,
                                                      std::optional<double> /*scale*/) {
  const Tensor q = blank_heads(query), k = blank_heads(key), v = blank_heads(value);
  list_operation("aten::_scaled_dot_product_flash_attention_backward", {gradient, query, key, value, out, log_sums}, {q, k, v});
  return {q, k, v};
}

const at::native::RegisterCUDADispatch<at::native::_fused_sdp_choice_stub_DECLARE_DISPATCH_type> chooser(
    at::native::_fused_sdp_choice_stub, &choice_of_attention);

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("view", &view);
  library.impl("as_strided", &as_strided);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("resize_", &resize);
  library.impl("copy_", &copy);
  library.impl("_local_scalar_dense", &local_scalar);
  library.impl("set_", &set_nothing);
  library.impl("set_.source_Storage", &set_source);
  library.impl("set_.source_Storage_storage_offset", &set_to_storage);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("record_stream", &record_stream);
  library.impl("convolution", &convolution);
  library.impl("convolution_backward", &convolution_backward);
  library.impl("native_dropout", &native_dropout);
  library.impl("_scaled_dot_product_flash_attention", &attention);
  library.impl("_scaled_dot_product_flash_attention_backward", &attention_backward);
  library.impl("_softmax", &softmax);
  library.impl("_log_softmax", &log_softmax);
  library.impl("_softmax_backward_data", &softmax_backward);
  library.impl("_log_softmax_backward_data", &log_softmax_backward);
}

const std::vector<std::string>& names_of_entries() {
  static const std::vector<std::string> names = {"empty.memory_format",
                                                 "empty_strided",
                                                 "view",
                                                 "as_strided",
                                                 "_reshape_alias",
                                                 "resize_",
                                                 "copy_",
                                                 "_local_scalar_dense",
                                                 "set_",
                                                 "set_.source_Storage",
                                                 "convolution",
                                                 "set_.source_Storage_storage_offset",
                                                 "set_.source_Tensor",
                                                 "record_stream",
                                                 "convolution_backward",
                                                 "native_dropout",
                                                 "_scaled_dot_product_flash_attention",
                                                 "_scaled_dot_product_flash_attention_backward",
                                                 "_softmax",
                                                 "_log_softmax",
                                                 "_softmax_backward_data",
                                                 "_log_softmax_backward_data"};
  return names;
}

}  // namespace millrace::standin
