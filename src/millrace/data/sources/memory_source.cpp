#include "millrace/data/sources/memory_source.h"

#include <algorithm>
#include <cstring>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"

namespace millrace::data {
namespace {

// Copies each row in units of kUnit bytes. This number is known at compile time, so a row takes a few instructions. A memcpy of
// unknown size costs more than the copy of a short row.
template <std::size_t kUnit>
void gather(const std::byte* from, std::size_t row_bytes, std::span<const std::int64_t> indices, std::byte* to) noexcept {
  for (const std::int64_t index : indices) {
    const std::byte* row = from + static_cast<std::size_t>(index) * row_bytes;
    for (std::size_t at = 0; at < row_bytes; at += kUnit) std::memcpy(to + at, row + at, kUnit);
    to += row_bytes;
  }
}

void gather_any(const std::byte* from, std::size_t row_bytes, std::span<const std::int64_t> indices, std::byte* to) noexcept {
  constexpr std::size_t kShort = 512;
  if (row_bytes <= kShort && row_bytes % 16 == 0) return gather<16>(from, row_bytes, indices, to);
  if (row_bytes <= kShort / 2 && row_bytes % 4 == 0) return gather<4>(from, row_bytes, indices, to);
  for (const std::int64_t index : indices) {
    std::memcpy(to, from + static_cast<std::size_t>(index) * row_bytes, row_bytes);
    to += row_bytes;
  }
}

}  // namespace

MemorySource::MemorySource(std::vector<MemoryArray> arrays) : arrays_(std::move(arrays)) {
  MR_CHECK(!arrays_.empty(), "a data set in memory needs at least one array");
  std::size_t sample_bytes = 0;
  for (const MemoryArray& array : arrays_) {
    const std::size_t row = array.field.bytes();
    if (row == 0 || array.bytes.size() % row != 0) {
      throw DataError({.what = "array \"" + array.field.name + "\" has " + std::to_string(array.bytes.size()) +
                               " bytes, which is not a whole number of samples " + to_text(array.field.shape) + " of " +
                               std::string(name_of(array.field.dtype)),
                       .where = "data set in memory",
                       .next = "give the shape of one sample"});
    }
    const auto size = static_cast<std::int64_t>(array.bytes.size() / row);
    if (!fields_.empty() && size != size_) {
      throw DataError({.what = "array \"" + array.field.name + "\" holds " + std::to_string(size) + " samples, \"" +
                               fields_.front().name + "\" holds " + std::to_string(size_),
                       .where = "data set in memory",
                       .next = "give all arrays the same number of samples"});
    }
    size_ = size;
    fields_.push_back(array.field);
    row_bytes_.push_back(row);
    sample_bytes += row;
    fingerprint_ += (fingerprint_.empty() ? "memory " : ", ") + array.field.name + ' ' + std::string(name_of(array.field.dtype)) +
                    to_text(array.field.shape) + " x " + std::to_string(size) + " crc32c " + std::to_string(crc32c(array.bytes));
  }
  // A ticket copies about a megabyte. That takes some 50 us, much longer than handing a ticket to a reader.
  samples_per_ticket_ = std::max<std::int64_t>(1, static_cast<std::int64_t>((std::size_t{1} << 20U) / sample_bytes));
}

void MemorySource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom&) const {
  for (std::size_t f = 0; f < arrays_.size(); ++f) gather_any(arrays_[f].bytes.data(), row_bytes_[f], indices, rows.row(f, 0, 0));
}

}  // namespace millrace::data
