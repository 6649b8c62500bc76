// A data set as the loader sees it: named fields of fixed shape, a number of samples, and a function that writes samples into
// given memory. compose.h and augment.h make sources from other sources: they augment, select, join and repeat samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/base/philox.h"
#include "millrace/data/files/file_stamps.h"

namespace millrace::data {

// What happens if a sample can't be read: fail ends the run; skip leaves the sample out; substitute takes another sample
// instead; quarantine also takes another sample, and never reads the bad one again.
enum class BadSamples : std::uint8_t { fail, skip, substitute, quarantine };
// Returns how many of `all` samples may be bad if `fraction` is the limit (data.max_bad_fraction). One bad sample is always
// allowed unless the fraction is 0.
[[nodiscard]] double most_bad(double fraction, std::int64_t all) noexcept;
// Returns the smallest fraction, with four decimals, that allows `bad` samples of `all`.
[[nodiscard]] double fraction_for(std::int64_t bad, std::int64_t all) noexcept;

// Where read() writes its samples. field_data[f] is the first byte of the first row of field f; row r of that field begins r *
// fields()[f].bytes() later. The rows of a field are contiguous, so a source may write them all with one copy.
struct Rows {
  std::span<std::byte* const> field_data;
  std::byte* row(std::size_t field, std::size_t index, std::size_t row_bytes) const {
    return field_data[field] + index * row_bytes;
  }
};

// The random numbers of a call to read(). rng(i) is a separate stream for the i-th index of the call. Its key consists of seed,
// epoch and the sample's position in the epoch. So the same sample at the same position gets the same numbers for any number of
// readers.
class ReadRandom {
 public:
  ReadRandom(std::uint64_t seed, std::uint64_t epoch, std::span<const std::int64_t> positions) noexcept
      : seed_(seed), epoch_(epoch), positions_(positions) {}
  // `operation` selects independent streams for independent uses within a source (crop, flip, ...).
  [[nodiscard]] Philox operator()(std::size_t i, std::uint64_t operation = 0) const noexcept {
    if (drawn_ != nullptr) *drawn_ = true;
    return Philox(make_key(seed_, epoch_, static_cast<std::uint64_t>(positions_[i]), operation));
  }
  // Returns the random numbers for the indices [first, first + count) of this call.
  [[nodiscard]] ReadRandom part(std::size_t first, std::size_t count) const noexcept {
    ReadRandom some(seed_, epoch_, positions_.subspan(first, count));
    some.drawn_ = drawn_;
    return some;
  }
  // Returns the random numbers for a source inside this one. Their streams are independent of the streams of this source.
  [[nodiscard]] ReadRandom inside() const noexcept {
    ReadRandom other(make_key(seed_, kInside), epoch_, positions_);
    other.drawn_ = drawn_;
    return other;
  }
  // Returns the same streams. `drawn` becomes true when a number is drawn from them; `drawn` must outlive the returned object.
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

// What a cache may keep of a data set (see cache/cached_source.h). A part is the unit of Source::keeps().
enum class Keeps : std::uint8_t {
  nothing,  // read() makes each sample anew, and a cache must not keep it
  memory,   // the source holds its data or its mapped files in memory: a read is a copy, so a cache gains nothing
  rows,     // the rows that read() wrote. read() draws no random numbers; loader and cache refuse a source whose read() does
  parts     // the parts that load() writes; finish() makes rows of them and may draw random numbers
};
[[nodiscard]] constexpr bool is_cacheable(Keeps keeps) noexcept { return keeps == Keeps::rows || keeps == Keeps::parts; }

inline constexpr std::size_t kMostParts = 4;

// Bytes [offset, offset + bytes) of a part.
struct PartRange {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

// A data set. Constant and thread-safe: several reader threads call read() at once. Its functions must not call ATen or use
// OpenMP.
class Source {
 public:
  virtual ~Source() = default;
  [[nodiscard]] virtual std::span<const Field> fields() const = 0;  // must not change during the source's life
  [[nodiscard]] virtual std::int64_t size() const = 0;              // number of samples in the data set
  // Writes sample indices[i] to row i of every field. Throws DataError with the file and the sample if a sample can't be read.
  virtual void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const = 0;
  // Returns a text that identifies the reading options: everything that changes the samples made from the same files. For data
  // without files the text also identifies the content, for example by a checksum of arrays, or by the seed and version of a
  // generating function. The text is part of the loader's state, so that a resume with other data is noticed. It must not depend
  // on paths, times and the content of files: data may be moved, and stamps() covers content.
  [[nodiscard]] virtual std::string fingerprint() const = 0;
  // Returns a stamp of each file's content, with the files in the order of their samples: usually `return stamps_of(files_)`.
  // Called once when a snapshot is saved or resumed from. An empty vector means that fingerprint() identifies the data
  // completely.
  [[nodiscard]] virtual std::vector<FileStamp> stamps() const { return {}; }
  // Returns how many samples a ticket (the work that a reader takes at once) should have: many if reading a sample is cheap, 1
  // for files that are decoded.
  [[nodiscard]] virtual std::int64_t samples_per_ticket() const { return 1; }
  // Returns true if reading mostly waits for a disk or a network: there may then be more readers than cores.
  [[nodiscard]] virtual bool waits() const { return false; }
  // Returns where sample `index` comes from, for messages: a path, or a path and a place in the file. "" = the index is enough.
  [[nodiscard]] virtual std::string describe(std::int64_t) const { return {}; }
  // Returns a line for the plan about how the files are read, taken from their headers: orientation, units, bits, separators. ""
  // = no such line.
  [[nodiscard]] virtual std::string read_as() const { return {}; }
  // Returns the names of the values of `field`, in the order of the values' numbers; for a label these are the classes. Empty if
  // the values have no names.
  [[nodiscard]] virtual std::vector<std::string> value_names(std::string_view /*field*/) const { return {}; }

  // If looks_ahead() is true, reader threads call will_need() once for (nearly) every sample, some batches before the sample is
  // read and with the random numbers of that read. will_need() is for advice to the system (posix_fadvise); it must neither wait
  // nor throw.
  [[nodiscard]] virtual bool looks_ahead() const { return false; }
  virtual void will_need(std::span<const std::int64_t>, const ReadRandom&) const noexcept {}

  // Returns what a cache may keep. A part is the unit that is decoded and stored: a sample, the data of several samples, or one
  // of several files of a sample. With Keeps::rows each sample is a part.
  [[nodiscard]] virtual Keeps keeps() const { return Keeps::nothing; }
  // The functions from here on are called only with Keeps::parts. load() of a sample's parts followed by finish() must give the
  // same bytes as read() of that sample. parts() is the number of parts.
  [[nodiscard]] virtual std::int64_t parts() const { return size(); }
  [[nodiscard]] virtual std::size_t parts_per_sample() const { return 1; }  // number of parts of each sample, at most kMostParts
  // Writes the numbers of the sample's parts, in the order in which finish() expects them. If parts are chosen at random, use
  // random(0).
  virtual void parts_of(std::int64_t index, const ReadRandom&, std::span<std::int64_t> parts) const { parts[0] = index; }
  [[nodiscard]] virtual std::size_t part_bytes(std::int64_t) const { return 0; }     // bytes that load() writes, at least 1
  virtual void load(std::int64_t /*part*/, std::span<std::byte> /*bytes*/) const {}  // throws the errors of read()
  // For a cache on disk. Returns the byte ranges that finish() will read, given the same random numbers, from part number
  // `which` of the sample. The ranges are sorted and do not overlap. An empty vector means the whole part.
  [[nodiscard]] virtual std::vector<PartRange> looks_at(std::int64_t /*index*/, std::size_t /*which*/, const ReadRandom&) const {
    return {};
  }
  // For a cache on disk; called once. Returns a text for each part. Equal texts must mean equal bytes from load(), in any run
  // and data set. So a text must include the file's content and the time when the file was written (content_text()). "" = the
  // part is not kept on disk. If the vector is empty, the cache makes each part's key from stamps(), fingerprint() and the
  // part's number.
  [[nodiscard]] virtual std::vector<std::string> part_texts() const { return {}; }
  // Makes row 0 of `rows` from the loaded parts, with the random numbers random(0).
  virtual void finish(std::int64_t /*index*/, std::span<const std::span<const std::byte>> /*parts*/, Rows /*rows*/,
                      const ReadRandom&) const {}
};

// The weights of a data set's samples in an epoch. The vector has size() finite numbers >= 0, at least one above 0; samples are
// drawn with replacement in proportion to them. If the vector is empty, that epoch has each sample once, in shuffled order. Must
// be a pure function, because a resumed run and every rank call it again. Called in any thread, one to a few times in an epoch.
// An exception ends the run.
using SampleWeights = std::function<std::vector<float>(std::uint64_t epoch)>;

// A data set of a pipeline. batch_size and weight are for pipelines of several data sets: see Grouping.
struct Dataset {
  std::string name;  // "" if the pipeline has only one data set
  std::shared_ptr<const Source> source;
  std::optional<std::int64_t> batch_size = {};  // rows of a rank in a batch; default: Pipeline::batch_size. Not used in a mix
  std::optional<double> weight = {};            // share of a mix's rows; default 1 if another data set has a weight
  SampleWeights weights = {};                   // weights of the samples, also for one data set; 8 bytes per sample and epoch
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

// The return value of Recipe::data: the data sets, and how their samples become batches. Values that are not set come from the
// run's config.
//
// A group may have no rows: if its data set is exhausted (Grouping::each), if no row of a mix was drawn from it, or if its
// samples were left out as bad (data.bad_samples=skip). The group is still present, so that the other groups keep their places.
// It has no positions, and each of its fields is a tensor [0, shape of the field...]. Recipe::prepare, the losses and
// Recipe::measure must accept such a group: its sums and counts are 0, but a mean over it is 0 / 0. The trainer skips a batch
// only if all groups have no rows.
struct Pipeline {
  std::vector<Dataset> datasets;           // one data set gives plain batches, several give batches with a group for each
  std::optional<std::int64_t> batch_size;  // rows of a rank in a batch: of each data set if grouped, of the whole batch in a mix
  std::optional<bool> shuffle;             // default: data.shuffle for training, false for validation
  std::optional<bool> drop_last;           // default: data.drop_last for training, false for validation
  Grouping grouping = Grouping::each;
  // For a mix: the number of samples in an epoch, over all ranks; default: all samples. A smaller number gives each epoch another
  // subset; with a larger number samples repeat, in a new order each time.
  std::optional<std::int64_t> samples_per_epoch = {};
};

[[nodiscard]] inline Pipeline single(std::shared_ptr<const Source> source) {
  Pipeline pipeline;
  pipeline.datasets.push_back({"", std::move(source)});
  return pipeline;
}

}  // namespace millrace::data
