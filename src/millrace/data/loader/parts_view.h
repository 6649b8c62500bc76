// Presents what a cache may keep of a source as parts, for sources that wrap another one.
#pragma once

#include <memory>
#include <vector>

#include "millrace/data/loader/source.h"

namespace millrace::data::detail {

// For Keeps::rows a part is a sample's row: its fields in order, each aligned to 16 bytes. For Keeps::parts it is the source's
// own part. Calls mean the same as those of Source; if keeps() is false, no other call is allowed.
class PartsView {
 public:
  // ConfigError if the source breaks its promise: see check_keeping().
  explicit PartsView(std::shared_ptr<const Source> source);

  // What a source whose samples are made of this one's keeps: this one's parts, or what the other says if there are no parts.
  [[nodiscard]] Keeps wrapped() const noexcept { return keeps() ? Keeps::parts : keeps_; }
  [[nodiscard]] bool keeps() const noexcept { return is_cacheable(keeps_); }
  [[nodiscard]] std::int64_t parts() const;
  [[nodiscard]] std::size_t parts_per_sample() const;
  void parts_of(std::int64_t index, const ReadRandom& random, std::span<std::int64_t> parts) const;
  [[nodiscard]] std::size_t part_bytes(std::int64_t part) const;
  void load(std::int64_t part, std::span<std::byte> bytes) const;
  void finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, Rows rows, const ReadRandom& random) const;
  // The offset of each field in a part that is a row; empty if parts are the source's own.
  [[nodiscard]] std::span<const std::size_t> field_offsets() const noexcept { return offsets_; }

 private:
  std::shared_ptr<const Source> source_;
  Keeps keeps_;
  std::vector<std::size_t> field_bytes_;
  std::vector<std::size_t> offsets_;
  std::size_t row_bytes_ = 0;
};

}  // namespace millrace::data::detail
