// What a data set is to the loader: named fields of fixed shape, a size, and a function that writes samples into given memory.
// Sources of other sources, which augment, choose, join and repeat samples: see compose.h and augment.h.
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

// What becomes of a sample that can't be read: the run fails, the sample is left out, another stands in for it, or that and it is
// listed in a file.
enum class BadSamples : std::uint8_t { fail, skip, substitute, quarantine };

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
  // For a source that another one stands before: streams of their own, so that what the two draw has nothing in common.
  [[nodiscard]] ReadRandom inside() const noexcept {
    ReadRandom other(make_key(seed_, kInside), epoch_, positions_);
    other.drawn_ = drawn_;
    return other;
  }
  // The same streams; `drawn` becomes true when one of them is asked for. It outlives the call.
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

// What of a data set a cache may keep (see cached_source.h).
enum class Keeps : std::uint8_t {
  nothing,  // it is in memory already, or as cheap to read as a copy
  rows,     // the rows that read() wrote. It draws no random numbers: the loader and the cache refuse a source that does
  parts     // what load() brings; finish() makes rows of it, with random numbers if it likes
};

inline constexpr std::size_t kMostParts = 4;

// Bytes [offset, offset + bytes) of a part.
struct PartRange {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

// A data set. Const and thread-safe: read() is called from several reader threads at once. Never calls ATen, never uses OpenMP.
class Source {
 public:
  virtual ~Source() = default;
  [[nodiscard]] virtual std::span<const Field> fields() const = 0;  // fixed for the life of the source
  [[nodiscard]] virtual std::int64_t size() const = 0;              // number of samples
  // Writes sample indices[i] to row i of every field. Throws DataError naming file and sample when one can't be read.
  virtual void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const = 0;
  // Identifies the reading options (all that makes other samples of the same files), and the content of data that comes from no
  // file: a checksum of arrays, or the seed and version of a function that makes samples up. Part of the loader's state, so that
  // a resume on other data is noticed. Not of paths, times and what is in files, for which stamps() speaks: the same data may lie
  // elsewhere.
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
  // What its files say of themselves, as it reads them, in one line for the plan: orientation, units, bits, separators. "" =
  // nothing.
  [[nodiscard]] virtual std::string read_as() const { return {}; }

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
  // For a cache on disk. Of part number `which` of the sample, what finish() looks at with the same randomness: ordered, apart.
  // Empty: all of it.
  [[nodiscard]] virtual std::vector<PartRange> looks_at(std::int64_t /*index*/, std::size_t /*which*/, const ReadRandom&) const {
    return {};
  }
  // For a cache on disk, asked once: of each part a text, equal where load() writes equal bytes, in other runs too and whatever
  // else is in their data set; with what is in its file and when that was written (content_text()). "" = the part is not kept. No
  // texts at all: stamps(), fingerprint() and the part's number tell parts apart.
  [[nodiscard]] virtual std::vector<std::string> part_texts() const { return {}; }
  // Writes row 0 of `rows` with the randomness random(0).
  virtual void finish(std::int64_t /*index*/, std::span<const std::span<const std::byte>> /*parts*/, Rows /*rows*/,
                      const ReadRandom&) const {}
};

// Weights of a data set's samples in an epoch: size() finite numbers of 0 or more, one of them above 0; a sample is drawn, with
// replacement, in proportion to its own. Empty: that epoch is a permutation, each sample once. A pure function, since a resumed
// run and every rank ask anew; called in any thread, once or a few times an epoch. What it throws ends the run.
using SampleWeights = std::function<std::vector<float>(std::uint64_t epoch)>;

// One data set of a pipeline. batch_size, weight and weights are for several: see Grouping.
struct Dataset {
  std::string name;  // "" when there is only one
  std::shared_ptr<const Source> source;
  std::optional<std::int64_t> batch_size = {};  // rows per rank and batch; default: Pipeline::batch_size. Not in a mix
  std::optional<double> weight = {};            // in a mix: its share of the rows; one without counts as 1 beside one with
  SampleWeights weights = {};                   // a single data set may have them too. They take 8 bytes a sample and epoch
};

// How several data sets share the batches of an epoch. Each batch has a group of each data set, in the order of the pipeline.
//   each    batch_size rows of each; an epoch lasts until the longest is through, and one that is through has no rows
//   repeat  batch_size rows of each; one that is through begins again, in an order of its own each time, until the longest is
//           through. Its positions count on, so a sample that comes again is augmented anew
//   cut     batch_size rows of each; an epoch ends when the shortest is through
//   mix     batch_size rows in all. Without weights each sample of all data sets comes once an epoch. With a weight of a data
//           set, or weights of samples, every row is drawn with replacement: a data set by its weight (or else by the sum of
//           its samples' weights, 1 each where there are none), then a sample of it
// An epoch of a data set with weights has as many draws as it would have samples.
enum class Grouping : std::uint8_t { each, repeat, cut, mix };

// What Recipe::data returns: the data sets and how samples become batches. Sizes left empty come from the run's config.
//
// A group without rows is one whose data set is through (each), to which no row of a mix fell, or whose samples were left out as
// bad (data.bad_samples=skip). It is there all the same, so that groups keep their places: no positions, and every field a tensor
// [0, shape of the field...] of the field's type. Recipe::prepare, the losses and Recipe::measure see it as any other group and
// must bear it: sums over it are 0 and so are counts, but a mean over it is 0 / 0. The trainer skips a batch in which no group
// has rows; a batch with some is theirs.
struct Pipeline {
  std::vector<Dataset> datasets;           // one: plain batches; several: grouped batches, rows of each data set in turn order
  std::optional<std::int64_t> batch_size;  // samples per rank and batch (per data set when grouped; in all of a mix)
  std::optional<bool> shuffle;             // default: data.shuffle for training, false for validation
  std::optional<bool> drop_last;           // default: data.drop_last for training, false for validation
  Grouping grouping = Grouping::each;
  // Of a mix, over all ranks; default: as many as there are. With fewer an epoch has some of them, others each time; with more
  // they come again, in an order of its own each time.
  std::optional<std::int64_t> samples_per_epoch = {};
};

[[nodiscard]] inline Pipeline single(std::shared_ptr<const Source> source) {
  Pipeline pipeline;
  pipeline.datasets.push_back({"", std::move(source)});
  return pipeline;
}

}  // namespace millrace::data
