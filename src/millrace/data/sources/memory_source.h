// Samples that are already in memory, as rows of arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/data/loader/sample.h"
#include "millrace/data/loader/source.h"

namespace millrace::data {

// The values of a field for all samples, row after row.
struct MemoryArray {
  Field field;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  // keeps `bytes` alive
};

// Takes ownership of the values. `shape` is the shape of a sample. A std::vector<bool> does not store bytes: use std::uint8_t.
template <class T>
[[nodiscard]] MemoryArray memory_array(std::string name, Shape shape, std::vector<T> values) {
  auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  return {.field = {std::move(name), dtype_of<T>(), std::move(shape)}, .bytes = std::as_bytes(std::span(*owner)), .owner = owner};
}

class MemorySource final : public Source {
 public:
  // Throws DataError if the arrays hold different numbers of samples, or if the size of an array is not a whole number of
  // samples.
  explicit MemorySource(std::vector<MemoryArray> arrays);

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] Keeps keeps() const override { return Keeps::memory; }
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return samples_per_ticket_; }

 private:
  std::vector<MemoryArray> arrays_;
  std::vector<Field> fields_;
  std::vector<std::size_t> row_bytes_;
  std::int64_t size_ = 0;
  std::int64_t samples_per_ticket_ = 1;
  std::string fingerprint_;
};

}  // namespace millrace::data
