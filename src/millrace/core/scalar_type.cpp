#include "millrace/core/scalar_type.h"

#include <algorithm>
#include <array>
#include <utility>

namespace millrace {
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

}  // namespace millrace
