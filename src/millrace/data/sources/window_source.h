// Windows of consecutive rows as samples, from arrays in memory: frames of a recording, for instance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/data/loader/source.h"
#include "millrace/data/sources/memory_source.h"

namespace millrace::data {

// Sample i of an array with rows of shape s is rows i .. i + window - 1 as one block [window, s...], so neighbours overlap in all
// but one row. Samples are copied straight out of the array: nothing is stored twice.
class WindowSource final : public Source {
 public:
  // DataError if the arrays differ in length, or an array does not hold whole rows or has fewer rows than a window.
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
  std::vector<std::size_t> row_bytes_;  // per array
  std::int64_t size_ = 0;
  std::int64_t window_;
  std::int64_t samples_per_ticket_ = 1;
  std::string fingerprint_;
};

}  // namespace millrace::data
