// A data set as the loader sees it: named fields of fixed shape, a size, and a function that writes samples into given memory.
// Sources built from other sources, which augment, select, join and repeat samples, are in compose.h and augment.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/base/philox.h"
#include "millrace/data/files/file_stamps.h"

namespace millrace::data {

// The policy for a sample that can't be read: the run fails, the sample is left out, another sample replaces it, or it is
// replaced and also listed in a file.
enum class BadSamples : std::uint8_t { fail, skip, substitute, quarantine };
// The most samples of `all` that may be bad where the fraction of them is limited (data.max_bad_fraction): one is always allowed
// unless the fraction is 0.
[[nodiscard]] double most_bad(double fraction, std::int64_t all) noexcept;
// The least fraction, of four decimals, that allows `bad` of `all`.
[[nodiscard]] double fraction_for(std::int64_t bad, std::int64_t all) noexcept;

// Where read() writes its samples: for each field, the first byte of its first row. Row r of field f starts at field_data[f] + r
// * fields()[f].bytes(). Rows of a field are contiguous, so a source may write them all with one copy.
struct Rows {
  std::span<std::byte* const> field_data;
  std::byte* row(std::size_t field, std::size_t index, std::size_t row_bytes) const {
    return field_data[field] + index * row_bytes;
  }
};

// Random numbers of a read: rng(i) is a separate stream for the i-th index of the call, keyed by seed, epoch and the sample's
// position in the epoch. The same sample at the same position gets the same numbers for any number of readers.
class ReadRandom {
 public:
  ReadRandom(std::uint64_t seed, std::uint64_t epoch, std::span<const std::int64_t> positions) noexcept
      : seed_(seed), epoch_(epoch), positions_(positions) {}
  // `operation` separates independent uses within one source (crop, flip, ...).
  [[nodiscard]] Philox operator()(std::size_t i, std::uint64_t operation = 0) const noexcept {
    if (drawn_ != nullptr) *drawn_ = true;
    return Philox(make_key(seed_, epoch_, static_cast<std::uint64_t>(positions_[i]), operation));
  }
  // The randomness for a call on indices [first, first + count) of this one.
  [[nodiscard]] ReadRandom part(std::size_t first, std::size_t count) const noexcept {
    ReadRandom some(seed_, epoch_, positions_.subspan(first, count));
    some.drawn_ = drawn_;
    return some;
  }
  // The randomness for a wrapped source: separate streams, so that the numbers of the two sources are independent.
  [[nodiscard]] ReadRandom inside() const noexcept {
    ReadRandom other(make_key(seed_, kInside), epoch_, positions_);
    other.drawn_ = drawn_;
    return other;
  }
  // Gives the same streams and sets `drawn` to true when a number is requested. `drawn` must outlive the call.
  [[nodiscard]] ReadRandom watched(bool& drawn) const noexcept {
    ReadRandom same = *this;
    same.drawn_ = &drawn;
    return same;
  }

 private:
  static constexpr std::uint64_t kInside = 0x696E73696465;
  std::uint64_t seed_;
  std::uint64_t epoch_;
  std::span<const std::int64_t> positions_;
  bool* drawn_ = nullptr;
};

// What a cache may keep of a data set (see cached_source.h).
enum class Keeps : std::uint8_t {
  nothing,  // read() makes each sample anew, and a cache must not keep it
  memory,   // the source holds its data in memory, or has its files mapped into it: a read is a copy, and a cache saves nothing
  rows,     // the rows that read() wrote. read() draws no random numbers: loader and cache refuse a source that does
  parts     // the parts that load() writes; finish() makes rows of them and may draw random numbers
};
[[nodiscard]] constexpr bool is_cacheable(Keeps keeps) noexcept { return keeps == Keeps::rows || keeps == Keeps::parts; }

inline constexpr std::size_t kMostParts = 4;

// Bytes [offset, offset + bytes) of a part.
struct PartRange {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

// A data set. Const and thread-safe: several reader threads call read() at once. Must not call ATen or use OpenMP.
class Source {
 public:
  virtual ~Source() = default;
  [[nodiscard]] virtual std::span<const Field> fields() const = 0;  // fixed for the life of the source
  [[nodiscard]] virtual std::int64_t size() const = 0;              // number of samples
  // Writes sample indices[i] to row i of every field. Throws DataError naming file and sample if one can't be read.
  virtual void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const = 0;
  // Identifies the reading options (all that changes samples of the same files), and the content of data without files: a
  // checksum of arrays, or the seed and version of a generating function. It is part of the loader's state, so that a resume on
  // other data is detected. It must not depend on paths, times and the content of files, which stamps() covers: the same data may
  // be moved.
  [[nodiscard]] virtual std::string fingerprint() const = 0;
  // Stamps of the files' content, in the order in which they make samples: usually `return stamps_of(files_)`. Called once, when
  // a snapshot is saved or resumed from. Empty: fingerprint() identifies everything.
  [[nodiscard]] virtual std::vector<FileStamp> stamps() const { return {}; }
  // How many samples one ticket should claim, if samples are cheap enough to read many per call. 1 for files that are decoded.
  [[nodiscard]] virtual std::int64_t samples_per_ticket() const { return 1; }
  // True if reading waits (disk, network) rather than computes: readers may then outnumber the cores.
  [[nodiscard]] virtual bool waits() const { return false; }
  // The origin of sample `index`, for messages: a path, or a path and a place in it. "" = nothing to add to its number.
  [[nodiscard]] virtual std::string describe(std::int64_t) const { return {}; }
  // One line for the plan about how the files are read, taken from their headers: orientation, units, bits, separators. "" =
  // nothing.
  [[nodiscard]] virtual std::string read_as() const { return {}; }

  // Look-ahead: if looks_ahead(), reader threads call will_need() once for (nearly) every sample some batches before it is read,
  // with the randomness of that read. It is for advice to the system (posix_fadvise) and must neither wait nor throw.
  [[nodiscard]] virtual bool looks_ahead() const { return false; }
  virtual void will_need(std::span<const std::int64_t>, const ReadRandom&) const noexcept {}

  // Keeping. A part is the unit that is stored and decoded at once: a sample, the data that several samples are cut from, or one
  // of several files that make a sample. With Keeps::rows each sample is a part.
  [[nodiscard]] virtual Keeps keeps() const { return Keeps::nothing; }
  // The functions below are called only for Keeps::parts. read() of a sample must give the same bytes as load() of its parts
  // followed by finish().
  [[nodiscard]] virtual std::int64_t parts() const { return size(); }
  [[nodiscard]] virtual std::size_t parts_per_sample() const { return 1; }  // at most kMostParts
  // The parts of a sample, in the order that finish() expects; a random choice draws from random(0).
  virtual void parts_of(std::int64_t index, const ReadRandom&, std::span<std::int64_t> parts) const { parts[0] = index; }
  [[nodiscard]] virtual std::size_t part_bytes(std::int64_t) const { return 0; }     // size that load() writes, at least 1
  virtual void load(std::int64_t /*part*/, std::span<std::byte> /*bytes*/) const {}  // throws as read() does
  // For a cache on disk: the byte ranges of the sample's part number `which` that finish() will read with the same randomness;
  // sorted, not overlapping. Empty: the whole part.
  [[nodiscard]] virtual std::vector<PartRange> looks_at(std::int64_t /*index*/, std::size_t /*which*/, const ReadRandom&) const {
    return {};
  }
  // For a cache on disk, called once: one key per part. Equal keys mean equal bytes from load(), in any run and data set;
  // a key includes the file's content and the time it was written (content_text()). "" = the part is not kept. Empty vector:
  // stamps(), fingerprint() and the part's number make the key.
  [[nodiscard]] virtual std::vector<std::string> part_texts() const { return {}; }
  // Makes row 0 of `rows` from the loaded parts, with the randomness random(0).
  virtual void finish(std::int64_t /*index*/, std::span<const std::span<const std::byte>> /*parts*/, Rows /*rows*/,
                      const ReadRandom&) const {}
};

// Weights of a data set's samples in an epoch: size() finite numbers >= 0, at least one above 0; samples are drawn with
// replacement in proportion to their weights. Empty: that epoch is a permutation, each sample once. Must be a pure function,
// since a resumed run and every rank call it again; called in any thread, once or a few times an epoch. An exception ends the
// run.
using SampleWeights = std::function<std::vector<float>(std::uint64_t epoch)>;

// One data set of a pipeline. batch_size, weight and weights are for several data sets: see Grouping.
struct Dataset {
  std::string name;  // "" when there is only one
  std::shared_ptr<const Source> source;
  std::optional<std::int64_t> batch_size = {};  // rows per rank and batch; default: Pipeline::batch_size. Unused in a mix
  std::optional<double> weight = {};            // in a mix: its share of the rows; defaults to 1 if another data set has a weight
  SampleWeights weights = {};                   // also allowed for a single data set. They take 8 bytes per sample and epoch
};

// How several data sets share the batches of an epoch. Each batch has one group per data set, in the order of the pipeline.
//   each    batch_size rows of each; an epoch lasts until the longest data set ends, and an exhausted one has no more rows
//   repeat  batch_size rows of each; an exhausted data set begins again, in a new order each time, until the longest ends.
//           Positions continue to count, so a repeated sample is augmented anew
//   cut     batch_size rows of each; an epoch ends with the shortest data set
//   mix     batch_size rows in total. Without weights each sample of all data sets comes once an epoch. With a weight of a
//           data set, or weights of samples, every row is drawn with replacement: first a data set, by its weight (by default
//           the sum of its samples' weights, 1 each if unset), then one of its samples
// An epoch of a data set with weights has as many draws as the data set has samples.
enum class Grouping : std::uint8_t { each, repeat, cut, mix };

// The return value of Recipe::data: the data sets and how samples become batches. Unset sizes come from the run's config.
//
// A group has no rows if its data set is exhausted (each), no row of a mix was drawn from it, or its samples were left out as bad
// (data.bad_samples=skip). It is still present, so that groups keep their places: it has no positions, and every field is a
// tensor [0, shape of the field...] of the field's type. Recipe::prepare, the losses and Recipe::measure must accept it: its sums
// and counts are 0, but a mean over it is 0 / 0. The trainer skips only a batch in which every group is without rows.
struct Pipeline {
  std::vector<Dataset> datasets;           // one: plain batches; several: grouped batches, one group per data set
  std::optional<std::int64_t> batch_size;  // samples per rank and batch (per data set if grouped; in total for a mix)
  std::optional<bool> shuffle;             // default: data.shuffle for training, false for validation
  std::optional<bool> drop_last;           // default: data.drop_last for training, false for validation
  Grouping grouping = Grouping::each;
  // For a mix, over all ranks; default: the number of samples. With fewer, each epoch has a different subset; with more, samples
  // repeat, in a new order each time.
  std::optional<std::int64_t> samples_per_epoch = {};
};

[[nodiscard]] inline Pipeline single(std::shared_ptr<const Source> source) {
  Pipeline pipeline;
  pipeline.datasets.push_back({"", std::move(source)});
  return pipeline;
}

}  // namespace millrace::data
