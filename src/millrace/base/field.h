// Element types, shapes and named fields: how a loader, a file format and a batch describe data, without LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

enum class DType : std::uint8_t { boolean, u8, i8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64, c64, c128 };

// Returns the number of bytes of one element.
[[nodiscard]] std::size_t size_of(DType dtype) noexcept;
// "bool", "u8", "i8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64", "c64", "c128".
[[nodiscard]] std::string_view name_of(DType dtype) noexcept;

using Shape = std::vector<std::int64_t>;

// Product of the sizes (1 for an empty shape); nullopt if a size is negative or the product does not fit int64.
[[nodiscard]] std::optional<std::int64_t> element_count(const Shape& shape) noexcept;
// "[32,64,64]".
[[nodiscard]] std::string to_text(const Shape& shape);

// One named array of a sample. `shape` is the shape in a single sample, without the batch dimension.
struct Field {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  [[nodiscard]] std::size_t bytes() const;  // bytes of the field in one sample
  friend bool operator==(const Field&, const Field&) = default;
};

}  // namespace millrace
