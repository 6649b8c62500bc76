// Pointers to the memory of samples' fields.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "millrace/data/loader/source.h"

namespace millrace::data::detail {

// A pointer for each field, without an allocation if there are few fields.
template <class Byte = std::byte>
class FieldPointers {
 public:
  explicit FieldPointers(std::size_t fields) : pointers_(few_.data(), std::min(few_.size(), fields)) {
    if (fields <= few_.size()) return;
    many_.resize(fields);
    pointers_ = many_;
  }
  FieldPointers(const FieldPointers&) = delete;
  FieldPointers& operator=(const FieldPointers&) = delete;
  [[nodiscard]] Byte*& operator[](std::size_t field) noexcept { return pointers_[field]; }
  [[nodiscard]] std::span<Byte* const> span() const noexcept { return pointers_; }

 private:
  std::array<Byte*, 16> few_{};
  std::vector<Byte*> many_;
  std::span<Byte*> pointers_;
};

// Pointers to row `index` of every field; rows() is valid while this object lives.
class RowAt {
 public:
  RowAt(Rows rows, std::size_t index, std::span<const std::size_t> field_bytes) : pointers_(field_bytes.size()) {
    for (std::size_t f = 0; f < field_bytes.size(); ++f) pointers_[f] = rows.row(f, index, field_bytes[f]);
  }
  [[nodiscard]] Rows rows() const noexcept { return {pointers_.span()}; }

 private:
  FieldPointers<> pointers_;
};

[[nodiscard]] inline std::vector<std::size_t> bytes_of(std::span<const Field> fields) {
  std::vector<std::size_t> bytes;
  bytes.reserve(fields.size());
  for (const Field& field : fields) bytes.push_back(field.bytes());
  return bytes;
}

// Returns `bytes` rounded up to a multiple of `alignment`.
[[nodiscard]] constexpr std::size_t aligned_to(std::size_t alignment, std::size_t bytes) noexcept {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace millrace::data::detail
