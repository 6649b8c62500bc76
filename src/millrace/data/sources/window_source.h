// Samples that are windows of consecutive rows of arrays in memory, such as frames of a recording.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/data/loader/source.h"
#include "millrace/data/sources/memory_source.h"

namespace millrace::data {

// Sample i consists of the rows i .. i + window - 1 of an array as a block [window, s...], where s is the shape of a row.
// Neighbouring samples share all rows but one. Samples are copied directly from the array, so no row is stored twice.
class WindowSource final : public Source {
 public:
  // Throws DataError if the arrays differ in length, have fewer rows than a window, or have a size that is not a whole number
  // of rows.
  WindowSource(std::vector<MemoryArray> arrays, std::int64_t window);

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] Keeps keeps() const override { return Keeps::memory; }
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return samples_per_ticket_; }

 private:
  std::vector<MemoryArray> arrays_;
  std::vector<Field> fields_;
  std::vector<std::size_t> row_bytes_;  // for each array, the bytes of a row
  std::int64_t size_ = 0;
  std::int64_t window_;
  std::int64_t samples_per_ticket_ = 1;
  std::string fingerprint_;
};

}  // namespace millrace::data
