#include "millrace/base/field.h"

#include <array>

#include "millrace/base/error.h"

namespace millrace {
namespace {

struct DTypeRow {
  std::string_view name;
  std::size_t size;
};

constexpr std::array<DTypeRow, 15> kDTypes = {{{"bool", 1},
                                               {"u8", 1},
                                               {"i8", 1},
                                               {"i16", 2},
                                               {"u16", 2},
                                               {"i32", 4},
                                               {"u32", 4},
                                               {"i64", 8},
                                               {"u64", 8},
                                               {"f16", 2},
                                               {"bf16", 2},
                                               {"f32", 4},
                                               {"f64", 8},
                                               {"c64", 8},
                                               {"c128", 16}}};
static_assert(static_cast<std::size_t>(DType::c128) + 1 == kDTypes.size());

}  // namespace

std::size_t size_of(DType dtype) noexcept { return kDTypes[static_cast<std::size_t>(dtype)].size; }

std::string_view name_of(DType dtype) noexcept { return kDTypes[static_cast<std::size_t>(dtype)].name; }

std::optional<std::int64_t> element_count(const Shape& shape) noexcept {
  bool has_zero = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    has_zero = has_zero || size == 0;
  }
  if (has_zero) return 0;
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  return count;
}

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text + ']';
}

std::size_t Field::bytes() const {
  const std::optional<std::int64_t> count = element_count(shape);
  std::size_t bytes = 0;
  MR_CHECK(count.has_value(), "field \"" + name + "\" has no element count: " + to_text(shape));
  MR_CHECK(!__builtin_mul_overflow(static_cast<std::size_t>(*count), size_of(dtype), &bytes),
           "field \"" + name + "\" is too large: " + to_text(shape));
  return bytes;
}

}  // namespace millrace
