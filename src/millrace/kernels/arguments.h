// Converts tensors to the plain arguments of the raw kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "millrace/kernels/detail/choice.h"
#include "millrace/kernels/device_table.h"
#include "millrace/kernels/device_types.h"
#include "millrace/kernels/dropout_bits.h"

namespace millrace::kernels {

// True if the kernels support x. All other tensors use the plain path through ATen.
inline bool has_kernel(const at::Tensor& x) {
  return x.is_cpu() && x.layout() == at::kStrided && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}
// True if x is on a device other than the CPU, and that device has kernels of Millrace for x's type. Even then some operations
// have no kernel there.
inline bool has_device_kernel(const at::Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  return !x.is_cpu() && x.layout() == at::kStrided && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) &&
         device_table(x.device().type()) != nullptr;
}
inline bool has_dropout_kernel(const at::Tensor& x) { return has_kernel(x) || has_device_kernel(x); }
inline detail::Type type_of(at::ScalarType type) {
  return type == at::kFloat ? detail::Type::f32 : type == at::kHalf ? detail::Type::f16 : detail::Type::bf16;
}
inline detail::Type type_of(const at::Tensor& x) { return type_of(x.scalar_type()); }

// Returns `parts` as one tensor if they are adjacent in memory like slices of one tensor along dimension 0. Otherwise returns an
// undefined tensor.
inline at::Tensor block_of(at::TensorList parts) {
  std::vector<std::int64_t> sizes = parts.front().sizes().vec();
  sizes[0] = 0;
  std::int64_t next = parts.front().storage_offset();
  for (const at::Tensor& part : parts) {
    if (!part.is_contiguous() || !part.is_alias_of(parts.front()) || part.storage_offset() != next) return {};
    next += part.numel();
    sizes[0] += part.size(0);
  }
  return parts.front().as_strided(sizes, parts.front().strides(), parts.front().storage_offset());
}

// Returns x contiguous. On a device, the memory of the result also begins at a multiple of kPieceBytes, the number of bytes that
// a thread reads or writes at once.
inline at::Tensor for_kernel(const at::Tensor& x) {
  const at::Tensor packed = x.contiguous();
  const bool fits = x.is_cpu() || reinterpret_cast<std::uintptr_t>(packed.const_data_ptr()) % kPieceBytes == 0;
  return fits ? packed : packed.clone();
}

// Returns how many rows of x (rows, columns) fit into `bytes` bytes: a multiple of 64, and at least 64. So if `columns` is even,
// each part of the rows begins at the first element of one of dropout's groups (detail/dropout_map.h).
inline std::int64_t rows_within(std::int64_t bytes, const at::Tensor& x) {
  constexpr std::int64_t kStep = 64;
  const std::int64_t row_bytes = x.size(1) * x.element_size();
  return row_bytes == 0 ? x.size(0) : std::max(kStep, bytes / row_bytes / kStep * kStep);
}

// Returns channels-last if x is a channels-last volume, else contiguous. Kernels of volumes support these two layouts; the
// caller makes any other tensor contiguous.
inline at::MemoryFormat layout_of(const at::Tensor& x) {
  const bool last = x.dim() == 5 && !x.is_contiguous() && x.is_contiguous(at::MemoryFormat::ChannelsLast3d);
  return last ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::Contiguous;
}

// True if the volumes x and y (N, C, D, H, W) can be joined along the channels.
inline bool differ_in_channels_alone(const at::Tensor& x, const at::Tensor& y) {
  if (x.dim() != 5 || y.dim() != 5) return false;
  for (const std::int64_t axis : {0, 2, 3, 4}) {
    if (x.size(axis) != y.size(axis)) return false;
  }
  return true;
}

inline detail::Keep keep_of(const Dropout& dropout) {
  return {dropout.key, dropout.first, dropout_threshold(dropout.p), dropout_scale(dropout.p)};
}

// Saves a dropout for an autograd function's backward pass, where remembered() restores it.
template <class Context>
void remember(Context* context, const Dropout& site) {
  context->saved_data["p"] = site.p;
  context->saved_data["key"] = static_cast<std::int64_t>(site.key);
  context->saved_data["first"] = site.first;
  std::vector<std::int64_t> runs;
  for (const IndexRun& run : site.runs) runs.insert(runs.end(), {run.first, run.count});
  context->saved_data["runs"] = runs;
  context->saved_data["on_device"] = std::bit_cast<std::int64_t>(site.on_device);
}
template <class Context>
[[nodiscard]] Dropout remembered(Context* context) {
  auto& saved = context->saved_data;
  Dropout site{saved["p"].toDouble(), static_cast<std::uint64_t>(saved["key"].toInt()), saved["first"].toInt(), {}};
  const std::vector<std::int64_t> runs = saved["runs"].toIntVector();
  for (std::size_t i = 0; i < runs.size(); i += 2) site.runs.push_back({runs[i], runs[i + 1]});
  site.on_device = std::bit_cast<const void*>(saved["on_device"].toInt());
  return site;
}

// Turns an undefined tensor into nullopt, because Function::apply of LibTorch 2.11 aborts the program if it gets an undefined
// tensor.
inline std::optional<at::Tensor> optional(const at::Tensor& x) {
  return x.defined() ? std::optional<at::Tensor>(x) : std::nullopt;
}

}  // namespace millrace::kernels
