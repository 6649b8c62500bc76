// Shows every source to a cache in the same way: as a number of parts that the cache may keep.
#pragma once

#include <memory>
#include <vector>

#include "millrace/data/loader/source.h"

namespace millrace::data::detail {

// With Keeps::rows a part is a row of a sample: the row's fields in order, each aligned to 16 bytes. With Keeps::parts the parts
// are those of the source. The functions mean the same as those of Source. If keeps() is false, no other function may be called.
class PartsView {
 public:
  // Throws ConfigError if the source breaks its promise: see check_keeping().
  explicit PartsView(std::shared_ptr<const Source> source);

  // Returns what keeps() of a source that wraps this source should return: Keeps::parts if this view has parts, else the value
  // of this source.
  [[nodiscard]] Keeps wrapped() const noexcept { return keeps() ? Keeps::parts : keeps_; }
  [[nodiscard]] bool keeps() const noexcept { return is_cacheable(keeps_); }
  [[nodiscard]] std::int64_t parts() const;
  [[nodiscard]] std::size_t parts_per_sample() const;
  void parts_of(std::int64_t index, const ReadRandom& random, std::span<std::int64_t> parts) const;
  [[nodiscard]] std::size_t part_bytes(std::int64_t part) const;
  void load(std::int64_t part, std::span<std::byte> bytes) const;
  void finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, Rows rows, const ReadRandom& random) const;
  // Returns the offset of each field in a part if parts are rows; else empty.
  [[nodiscard]] std::span<const std::size_t> field_offsets() const noexcept { return offsets_; }

 private:
  std::shared_ptr<const Source> source_;
  Keeps keeps_;
  std::vector<std::size_t> field_bytes_;
  std::vector<std::size_t> offsets_;
  std::size_t row_bytes_ = 0;
};

}  // namespace millrace::data::detail
