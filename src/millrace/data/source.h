// What a data set is to the loader: named fields of fixed shape, a size, and a function that writes samples into given memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/base/philox.h"
#include "millrace/data/file_stamps.h"

namespace millrace::data {

// Where the samples of one read() go: for each field the first byte of its first row. Row r of field f starts at
// field_data[f] + r * fields()[f].bytes(). Rows of a field are contiguous, so a source may write them all with one copy.
struct Rows {
  std::span<std::byte* const> field_data;
  std::byte* row(std::size_t field, std::size_t index, std::size_t row_bytes) const {
    return field_data[field] + index * row_bytes;
  }
};

// Randomness of a read: rng(i) is a stream of its own for the i-th index of the call, keyed by seed, epoch and the sample's
// position in the epoch. The same sample drawn at the same position gives the same numbers on any number of readers.
class ReadRandom {
 public:
  ReadRandom(std::uint64_t seed, std::uint64_t epoch, std::span<const std::int64_t> positions) noexcept
      : seed_(seed), epoch_(epoch), positions_(positions) {}
  // `operation` tells several independent uses within one source apart (crop, flip, ...).
  [[nodiscard]] Philox operator()(std::size_t i, std::uint64_t operation = 0) const noexcept {
    if (drawn_ != nullptr) *drawn_ = true;
    return Philox(make_key(seed_, epoch_, static_cast<std::uint64_t>(positions_[i]), operation));
  }
  // For a call on indices [first, first + count) of this one.
  [[nodiscard]] ReadRandom part(std::size_t first, std::size_t count) const noexcept {
    ReadRandom some(seed_, epoch_, positions_.subspan(first, count));
    some.drawn_ = drawn_;
    return some;
  }
  // The same streams; `drawn` becomes true when one of them is asked for. It outlives the call.
  [[nodiscard]] ReadRandom watched(bool& drawn) const noexcept {
    ReadRandom same = *this;
    same.drawn_ = &drawn;
    return same;
  }

 private:
  std::uint64_t seed_;
  std::uint64_t epoch_;
  std::span<const std::int64_t> positions_;
  bool* drawn_ = nullptr;
};

// What of a data set a cache may keep (see cached_source.h).
enum class Keeps : std::uint8_t {
  nothing,  // it is in memory already, or as cheap to read as a copy
  rows,     // the rows that read() wrote. It draws no random numbers: the loader and the cache refuse a source that does
  parts     // what load() brings; finish() makes rows of it, with random numbers if it likes
};

inline constexpr std::size_t kMostParts = 4;

// A data set. Const and thread-safe: read() is called from several reader threads at once. Never calls ATen, never uses OpenMP.
class Source {
 public:
  virtual ~Source() = default;
  [[nodiscard]] virtual std::span<const Field> fields() const = 0;  // fixed for the life of the source
  [[nodiscard]] virtual std::int64_t size() const = 0;              // number of samples
  // Writes sample indices[i] to row i of every field. Throws DataError naming file and sample when one can't be read.
  virtual void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const = 0;
  // Identifies the reading options, and the content of data that comes from no file; part of the loader's state, so that a resume
  // on other data is noticed. Not of paths and times: the same data may lie elsewhere.
  [[nodiscard]] virtual std::string fingerprint() const = 0;
  // What is in its files, in the order in which they make samples: mostly `return stamps_of(files_)`. Asked for once, when a
  // snapshot is to be saved or resumed from. Empty: fingerprint() says it all.
  [[nodiscard]] virtual std::vector<FileStamp> stamps() const { return {}; }
  // Samples that are cheap enough to be read many per call: how many one ticket should claim. 1 for files that are decoded.
  [[nodiscard]] virtual std::int64_t samples_per_ticket() const { return 1; }
  // True when reading waits (disk, network) rather than computes: readers may then outnumber the cores.
  [[nodiscard]] virtual bool waits() const { return false; }
  // Where sample `index` comes from, for people: a path, or a path and a place in it. "" = nothing to add to its number.
  [[nodiscard]] virtual std::string describe(std::int64_t) const { return {}; }

  // Look-ahead: when looks_ahead(), will_need() is called once for (nearly) every sample some batches before it is read, by the
  // reader threads, with the randomness of that read. For advice to the system (posix_fadvise); it neither waits nor throws.
  [[nodiscard]] virtual bool looks_ahead() const { return false; }
  virtual void will_need(std::span<const std::int64_t>, const ReadRandom&) const noexcept {}

  // Keeping. A part is what is stored and decoded at once: a sample, what several samples are cut from, or one of several files
  // that a sample is made of. Keeps::rows: each sample is a part.
  [[nodiscard]] virtual Keeps keeps() const { return Keeps::nothing; }
  // The rest is asked of Keeps::parts only. read() of a sample gives the same bytes as load() of its parts and then finish().
  [[nodiscard]] virtual std::int64_t parts() const { return size(); }
  [[nodiscard]] virtual std::size_t parts_per_sample() const { return 1; }  // at most kMostParts
  // Which ones, in the order of finish(); those that are drawn come from random(0).
  virtual void parts_of(std::int64_t index, const ReadRandom&, std::span<std::int64_t> parts) const { parts[0] = index; }
  [[nodiscard]] virtual std::size_t part_bytes(std::int64_t) const { return 0; }     // what load() writes, at least 1
  virtual void load(std::int64_t /*part*/, std::span<std::byte> /*bytes*/) const {}  // throws as read() does
  // Writes row 0 of `rows` with the randomness random(0).
  virtual void finish(std::int64_t /*index*/, std::span<const std::span<const std::byte>> /*parts*/, Rows /*rows*/,
                      const ReadRandom&) const {}
};

// One data set of a pipeline.
struct Dataset {
  std::string name;  // "" when there is only one
  std::shared_ptr<const Source> source;
};

// What Recipe::data returns: the data sets and how samples become batches. Sizes left empty come from the run's config.
struct Pipeline {
  std::vector<Dataset> datasets;  // one: plain batches; several: grouped batches, batch_size rows of each data set in turn order
  std::optional<std::int64_t> batch_size;  // samples per rank and micro-step (per data set when grouped)
  std::optional<bool> shuffle;             // default: data.shuffle for training, false for validation
  std::optional<bool> drop_last;           // default: data.drop_last for training, false for validation
};

[[nodiscard]] inline Pipeline single(std::shared_ptr<const Source> source) {
  Pipeline pipeline;
  pipeline.datasets.push_back({"", std::move(source)});
  return pipeline;
}

}  // namespace millrace::data
