// The loader: index plan -> tickets -> reader threads -> ring of slots -> batches in order. Torch-free.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/data/loader/source.h"

namespace millrace::data {

// Memory for slots. The default maps memory with advice for huge pages and touches every page once; train uses an arena that also
// pins it.
class Arena {
 public:
  virtual ~Arena() = default;
  virtual std::byte* allocate(std::size_t bytes) = 0;  // 64-byte aligned, pages touched; DeviceError if there is not enough
  virtual void release(std::byte* memory, std::size_t bytes) noexcept = 0;
  static std::shared_ptr<Arena> host();
};

struct LoaderOptions {
  std::int64_t batch_size = 1;  // samples per rank and batch: of each data set without its own size, or in total for a mix
  bool shuffle = false;
  bool drop_last = false;
  std::uint64_t seed = 0;
  int cores = 0;     // cores for this loader's process; 0 = all that it may run on
  int readers = -1;  // 0 = in the calling thread; -1 = chosen: see Loader::readers_reason
  int prefetch = 2;  // batches ready ahead of the consumer, at least 1
  int rank = 0;
  int world_size = 1;
  BadSamples bad_samples = BadSamples::fail;
  double max_bad_fraction = 0.001;  // largest share of bad samples in an epoch, above which the run fails under any policy; one
                                    // bad sample is always allowed unless this is 0
  std::uint64_t max_buffer_bytes = 0;  // byte budget of all slots; 0 = 1 GiB, or three batches if they are larger
  bool accepts_changed = false;        // data.accept_changed: see Loader::check_data
  bool adapts = true;       // raises readers (if chosen) and batches ahead while the consumer waits; does not change bits
  bool looks_ahead = true;  // announces upcoming reads to sources that use it: see Source::looks_ahead
  std::string called = "the data set";           // name of the data in messages: "the validation data"
  std::shared_ptr<Arena> arena;                  // null = Arena::host()
  std::function<void(const std::string&)> warn;  // one line per warning; null = dropped
  std::function<void(const std::string&)> note;  // one line per changed choice
};

// A batch in host memory. Owns its slot: destroying the batch (on any thread) returns the slot.
struct HostBatch {
  // Groups are in the order of the pipeline's data sets; a group without rows (see Pipeline) still has its fields.
  struct Group {
    std::string_view name;                  // of the data set; valid while the loader lives
    std::span<const Field> fields;          // of the data set; valid while the loader lives
    std::vector<std::byte*> data;           // first byte of each field, 64-byte aligned, rows contiguous
    std::vector<std::int64_t> positions;    // position in the epoch of each row; size() = number of rows
    std::span<const std::int64_t> indices;  // sample index of each row; valid while the batch lives
  };

  std::vector<Group> groups;
  std::uint64_t epoch = 0;
  std::uint64_t index = 0;     // batch number within the epoch
  std::shared_ptr<void> slot;  // owns the memory; copy it to keep the memory alive
};

// Order: a keyed bijection of [0, size) per (seed, epoch), and per round if a data set repeats: O(1) memory, any position
// addressable. Weighted draws are a function of (seed, epoch, position) too. Rank r of w takes rows [r*b, (r+1)*b) of each global
// batch of w*b rows. The same options give the same stream of bytes for any number of readers.
//   last batch     without drop_last the partial batch is dealt to the ranks in order, as evenly as possible: all ranks have the
//                  same number of batches, and a rank may get no rows if there are fewer rows than ranks
//   grouped        Grouping says how long an epoch is and what a group holds; except in a mix, with drop_last each group is
//                  full or empty, and data sets that repeat are always full
//   bad samples    skip leaves rows out, so a batch may be smaller, even empty; substitute draws another sample of the data
//                  set by (seed, epoch, position, attempt); quarantine also remembers the bad sample and does not read it again
// next() and the other calls belong to one thread; batches may be destroyed on any thread.
class Loader {
 public:
  // One line of the plan.
  struct DatasetPlan {
    std::string name;
    std::int64_t samples = 0;
    std::int64_t batch_size = 0;  // most rows in a batch of this rank
    std::string rule;  // "repeats 3.2 times an epoch", "cut to 1,200 of 4,000 samples an epoch", "mixed: 23.4 % of the rows, ..."
  };

  struct Counters {
    std::uint64_t batches = 0;
    std::uint64_t samples = 0;
    std::uint64_t bad_samples = 0;
    double wait_seconds = 0;      // time next() spent waiting
    double read_seconds = 0;      // sum over readers of time in Source::read
    double read_cpu_seconds = 0;  // CPU time of it: the rest waited for a disk, a network or a core
  };

  // A file whose reads took many times longer than usual.
  struct SlowFile {
    std::string name;  // from Source::describe(), without the place in the file
    std::uint64_t reads = 0;
    double excess_seconds = 0;  // total time beyond the usual
    double usual_seconds = 0;   // per sample
    std::uint64_t quick = 0;    // approximate number of its reads that were as quick as usual since the first slow one
    std::string worst;          // the place of the slowest read, from Source::describe()
    double worst_seconds = 0;   // per sample at that place
  };

  // ConfigError if no batch would ever be delivered, or a data set breaks its promise to a cache (see Keeps).
  Loader(Pipeline pipeline, LoaderOptions options);
  ~Loader();  // stops the readers; outstanding batches stay valid
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Returns the next batch in order, nullopt at the end of the epoch; the call after that begins the next epoch (whose samples
  // are already being read). Throws DataError naming the sample, its batch and its reader, and throws it again until restart() or
  // load_state(). Order, content and errors do not depend on the number of readers.
  [[nodiscard]] std::optional<HostBatch> next();
  // Waits until next() will return at once, for `most` at most; false: not yet. For a caller that must look at something else
  // while it waits. Without readers next() itself reads: true.
  [[nodiscard]] bool wait(std::chrono::milliseconds most);
  [[nodiscard]] std::uint64_t epoch() const noexcept;             // epoch of the next batch
  [[nodiscard]] std::int64_t batches_per_epoch() const noexcept;  // on each rank
  [[nodiscard]] std::int64_t samples_per_epoch() const noexcept;  // over all data sets and ranks
  // {fingerprint, seed, epoch, next batch, quarantine}: O(1) apart from the quarantine list. load_state() refuses another
  // fingerprint, batch size or seed with a SnapshotError that names both values. After check_data() accepted changed data, the
  // next load_state() resumes at that batch (at the end of the epoch if there are fewer batches now) and drops the quarantine,
  // whose numbers may mean other samples.
  [[nodiscard]] Json state() const;
  void load_state(const Json& state);
  // Identifies the data: for each data set its fingerprint and the names, sizes and digests of its files (see file_stamps.h; for
  // more than 4,096 files, 1,024 digests of neighbouring files). The first call reads them.
  [[nodiscard]] Json data_state() const;
  // Compares the data with data_state() of an earlier process. SnapshotError names the files that differ and how; with
  // LoaderOptions::accepts_changed, warn and note report it instead. Files with other names and the same content in the same
  // order are the same data, with a note. `called` begins the messages. If `saved` is null (the snapshot has no identity), a note
  // says that nothing was compared.
  void check_data(const Json& saved, const std::string& called = "the data");
  // Drops prepared batches and begins that epoch: after an early stop of a validation pass, and in tests.
  void restart(std::uint64_t epoch = 0);
  // Reads a batch of this rank once more, in the calling thread, beside the batches under way, which it leaves alone. It has what
  // next() returned for it, but rows that can't be read are left out. For looks at a step that went wrong.
  [[nodiscard]] HostBatch read_again(std::uint64_t epoch, std::uint64_t index) const;
  // "sample 17 of data set "x" (a.h5)": a row of a batch, by its group and index, for messages.
  [[nodiscard]] std::string sample_label(std::size_t group, std::int64_t index) const;
  [[nodiscard]] std::int64_t rows_per_batch() const noexcept;  // of this rank, in a full batch over all data sets
  [[nodiscard]] std::vector<DatasetPlan> dataset_plans() const;
  [[nodiscard]] Counters counters() const;
  [[nodiscard]] std::vector<SlowFile> slow_files() const;     // the slowest first
  [[nodiscard]] int readers() const noexcept;                 // currently in use
  [[nodiscard]] std::string readers_reason() const;           // one line for the plan, about the latest choice
  [[nodiscard]] std::uint64_t buffer_bytes() const noexcept;  // of all slots

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::data
