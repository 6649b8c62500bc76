#include "millrace/snapshot/detail/tensors.h"

#include <ATen/ops/resolve_conj.h>
#include <ATen/ops/resolve_neg.h>

#include <algorithm>
#include <array>
#include <utility>

#include "millrace/base/error.h"

namespace millrace::snapshot::detail {
namespace {

constexpr std::array<std::pair<DType, at::ScalarType>, 15> kTypes = {{{DType::boolean, at::kBool},
                                                                      {DType::u8, at::kByte},
                                                                      {DType::i8, at::kChar},
                                                                      {DType::i16, at::kShort},
                                                                      {DType::u16, at::kUInt16},
                                                                      {DType::i32, at::kInt},
                                                                      {DType::u32, at::kUInt32},
                                                                      {DType::i64, at::kLong},
                                                                      {DType::u64, at::kUInt64},
                                                                      {DType::f16, at::kHalf},
                                                                      {DType::bf16, at::kBFloat16},
                                                                      {DType::f32, at::kFloat},
                                                                      {DType::f64, at::kDouble},
                                                                      {DType::c64, at::kComplexFloat},
                                                                      {DType::c128, at::kComplexDouble}}};

}  // namespace

std::optional<DType> dtype_of(at::ScalarType type) noexcept {
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& row) { return row.second == type; });
  if (found == kTypes.end()) return std::nullopt;
  return found->first;
}

at::ScalarType scalar_type_of(DType dtype) noexcept {
  return std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& row) { return row.first == dtype; })->second;
}

at::Tensor on_host(const at::Tensor& tensor) {
  return at::resolve_neg(at::resolve_conj(tensor.detach())).to(at::kCPU).contiguous();
}

std::span<std::byte> bytes_of(const at::Tensor& host) {
  MR_CHECK(host.is_contiguous() && host.is_cpu(), "only host tensors have bytes to show");
  return {static_cast<std::byte*>(host.data_ptr()), host.nbytes()};
}

}  // namespace millrace::snapshot::detail
