#include "millrace/data/sources/window_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "millrace/base/error.h"

namespace millrace::data {

WindowSource::WindowSource(std::vector<MemoryArray> arrays, std::int64_t window) : arrays_(std::move(arrays)), window_(window) {
  MR_CHECK(window_ >= 1, "a window must have at least one row");
  const MemorySource rows(arrays_);  // the constructor of MemorySource checks the arrays
  if (rows.size() < window_) {
    throw DataError({.what = std::to_string(rows.size()) + " rows are fewer than one window of " + std::to_string(window_),
                     .where = "data set in memory",
                     .next = "give a shorter window or more rows"});
  }
  size_ = rows.size() - window_ + 1;
  fingerprint_ = rows.fingerprint() + ", windows of " + std::to_string(window_);
  std::size_t sample_bytes = 0;
  for (const MemoryArray& array : arrays_) {
    row_bytes_.push_back(array.field.bytes());
    Field field = array.field;
    field.shape.insert(field.shape.begin(), window_);
    sample_bytes += field.bytes();
    fields_.push_back(std::move(field));
  }
  samples_per_ticket_ = std::max<std::int64_t>(1, static_cast<std::int64_t>((std::size_t{1} << 20U) / sample_bytes));
}

void WindowSource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom&) const {
  for (std::size_t f = 0; f < arrays_.size(); ++f) {
    const std::size_t bytes = row_bytes_[f] * static_cast<std::size_t>(window_);
    std::byte* to = rows.row(f, 0, 0);
    for (const std::int64_t index : indices) {
      std::memcpy(to, arrays_[f].bytes.data() + static_cast<std::size_t>(index) * row_bytes_[f], bytes);
      to += bytes;
    }
  }
}

}  // namespace millrace::data
