#include "millrace/format/detail/safetensors_dtype.h"

#include <algorithm>
#include <array>
#include <utility>

#include "millrace/format/safetensors.h"

namespace millrace::format {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 14> kSafetensorsNames = {{{DType::boolean, "BOOL"},
                                                                                   {DType::u8, "U8"},
                                                                                   {DType::i8, "I8"},
                                                                                   {DType::i16, "I16"},
                                                                                   {DType::u16, "U16"},
                                                                                   {DType::i32, "I32"},
                                                                                   {DType::u32, "U32"},
                                                                                   {DType::i64, "I64"},
                                                                                   {DType::u64, "U64"},
                                                                                   {DType::f16, "F16"},
                                                                                   {DType::bf16, "BF16"},
                                                                                   {DType::f32, "F32"},
                                                                                   {DType::f64, "F64"},
                                                                                   {DType::c64, "C64"}}};

}  // namespace

std::optional<std::string_view> safetensors_name(DType dtype) noexcept {
  const auto* found =
      std::find_if(kSafetensorsNames.begin(), kSafetensorsNames.end(), [&](const auto& row) { return row.first == dtype; });
  if (found == kSafetensorsNames.end()) return std::nullopt;
  return found->second;
}

std::optional<DType> detail::dtype_from_safetensors(std::string_view name) noexcept {
  const auto* found =
      std::find_if(kSafetensorsNames.begin(), kSafetensorsNames.end(), [&](const auto& row) { return row.second == name; });
  if (found == kSafetensorsNames.end()) return std::nullopt;
  return found->first;
}

}  // namespace millrace::format
