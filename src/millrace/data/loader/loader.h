// The loader reads samples and returns them as batches, in order. A plan of indices decides which samples a batch holds. A
// batch is cut into tickets, and reader threads work on the tickets in a ring of slots. Does not use LibTorch.
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

// Memory for slots. The default maps memory, asks for huge pages and touches every page once; a training run uses an arena that
// also pins the memory.
class Arena {
 public:
  virtual ~Arena() = default;
  // Returns memory aligned to 64 bytes, of which every page was touched. Throws DeviceError if there is not enough memory.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* memory, std::size_t bytes) noexcept = 0;
  static std::shared_ptr<Arena> host();
};

struct LoaderOptions {
  // The number of a rank's rows in a batch: from each data set that sets no batch size of its own or, with Grouping::mix, from
  // all data sets together.
  std::int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last = false;
  std::uint64_t seed = 0;
  int cores = 0;     // number of cores that the process of this loader uses; 0 = all that the process may run on
  int readers = -1;  // number of reader threads; 0 = the calling thread reads; -1 = automatic: see Loader::readers_reason
  int prefetch = 2;  // number of batches that are ready before the consumer asks for them, at least 1
  int rank = 0;
  int world_size = 1;
  BadSamples bad_samples = BadSamples::fail;
  // The largest share of bad samples in an epoch. A larger share ends the run under any policy. One bad sample is always allowed
  // unless this is 0.
  double max_bad_fraction = 0.001;
  std::uint64_t max_buffer_bytes = 0;  // limit for the bytes of all slots; 0 = 1 GiB, or three batches if they are larger
  bool accepts_changed = false;        // value of data.accept_changed; see Loader::check_data
  // True: while the consumer waits, the loader raises the number of batches ahead, and also the number of readers if the loader
  // chose that number. The bits of the batches do not change.
  bool adapts = true;
  bool looks_ahead = true;                       // announces reads to sources that use announcements: see Source::looks_ahead
  std::string called = "the data set";           // how messages call the data, for example "the validation data"
  std::shared_ptr<Arena> arena;                  // null = Arena::host()
  std::function<void(const std::string&)> warn;  // gets each warning, as a line; null = warnings are dropped
  std::function<void(const std::string&)> note;  // gets a line when the loader changes one of its choices
};

// A batch in host memory. It owns its slot: destroying the batch, on any thread, returns the slot to the loader.
struct HostBatch {
  // The part of the batch that comes from one data set. Groups are in the order of the pipeline's data sets. A group without
  // rows (see Pipeline) still has its fields.
  struct Group {
    std::string_view name;                  // the data set's name; valid while the loader lives
    std::span<const Field> fields;          // the data set's fields; valid while the loader lives
    std::vector<std::byte*> data;           // first byte of each field, aligned to 64 bytes; the rows of a field are contiguous
    std::vector<std::int64_t> positions;    // each row's position in the epoch; the vector's size is the number of rows
    std::span<const std::int64_t> indices;  // each row's index in the data set; valid while the batch lives
  };

  std::vector<Group> groups;
  std::uint64_t epoch = 0;
  std::uint64_t index = 0;     // number of the batch in the epoch
  std::shared_ptr<void> slot;  // owns the memory; a copy keeps the memory alive
};

// The order of an epoch is a permutation selected by (seed, epoch); if a data set is repeated within an epoch, also by the
// number of the repetition. The order takes O(1) memory, and any position can be computed directly. Weighted draws are a
// function of (seed, epoch, position) too. Rank r of w takes rows [r*b, (r+1)*b) of each global batch of w*b rows. The same
// options give the same bytes for any number of readers.
//   last batch     without drop_last the last, smaller batch is divided among the ranks in order, as evenly as possible; all
//                  ranks have the same number of batches, and a rank gets no rows if there are fewer rows than ranks
//   grouped        Grouping says how long an epoch is and what a group holds; with drop_last each group is full or empty,
//                  except in a mix, and groups of data sets that repeat are always full
//   bad samples    skip leaves rows out, so a batch may be smaller, even empty; substitute draws another sample of the data
//                  set by (seed, epoch, position, attempt); quarantine also remembers the bad sample and does not read it again
// next() and the other calls belong to one thread; batches may be destroyed on any thread.
class Loader {
 public:
  // A data set's line in the plan.
  struct DatasetPlan {
    std::string name;
    std::int64_t samples = 0;
    std::int64_t batch_size = 0;  // the most rows of the data set in a batch of this rank
    std::string rule;             // such as "repeats 3.2 times an epoch", "cut to 1,200 of 4,000 samples an epoch"
  };

  struct Counters {
    std::uint64_t batches = 0;
    std::uint64_t samples = 0;
    std::uint64_t bad_samples = 0;
    double wait_seconds = 0;      // time that next() has waited
    double read_seconds = 0;      // time inside Source::read, summed over readers
    double read_cpu_seconds = 0;  // CPU time in read_seconds; in the rest, readers waited for a disk, a network or a core
  };

  // A file whose reads took much longer than usual.
  struct SlowFile {
    std::string name;  // the file's name as Source::describe() gives it
    std::uint64_t reads = 0;
    double excess_seconds = 0;  // seconds by which the slow reads of the file exceeded the usual time
    double usual_seconds = 0;   // seconds that a sample usually takes
    std::uint64_t quick = 0;    // approximate number of reads of this file at the usual speed since its first slow read
    std::string worst;          // the place of the slowest read of the file, as Source::describe() gives it
    double worst_seconds = 0;   // seconds per sample in the slowest read
  };

  // Throws ConfigError if an epoch would have no batch, or if a data set breaks its promise to a cache (see Keeps).
  Loader(Pipeline pipeline, LoaderOptions options);
  ~Loader();  // stops the readers; batches that the caller still holds stay valid
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Returns the next batch in order, or nullopt at the end of the epoch; the call after that begins the next epoch, whose
  // samples are already being read. Throws a DataError that names the sample, its batch and its reader, and throws it again
  // until restart() or load_state() is called. Order, content and errors do not depend on the number of readers.
  [[nodiscard]] std::optional<HostBatch> next();
  // Waits until next() would return at once, but no longer than `most`. Returns false if next() would still have to wait. This
  // function is for a caller that must do something else while it waits. Without readers returns true immediately, because
  // next() then reads the batch itself.
  [[nodiscard]] bool wait(std::chrono::milliseconds most);
  [[nodiscard]] std::uint64_t epoch() const noexcept;             // returns the epoch of the next batch
  [[nodiscard]] std::int64_t batches_per_epoch() const noexcept;  // number of batches in an epoch, equal on all ranks
  [[nodiscard]] std::int64_t samples_per_epoch() const noexcept;  // number of samples, over all data sets and ranks
  // The state is {fingerprint, seed, epoch, next batch, quarantine}; only the quarantine grows. load_state() throws
  // SnapshotError if fingerprint, batch size or seed differ; the message has both values. If check_data() has accepted changed
  // data, the next load_state() resumes at the saved batch, or at the end of the epoch if there are fewer batches now. It then
  // empties the quarantine, because the numbers in the quarantine may mean other samples now.
  [[nodiscard]] Json state() const;
  void load_state(const Json& state);
  // Returns the identity of the data: for each data set its fingerprint and the names, sizes and digests of its files (see
  // file_stamps.h; for more than 4,096 files, 1,024 digests of neighbouring files). The first call reads the files.
  [[nodiscard]] Json data_state() const;
  // Compares the data with data_state() of an earlier process. Throws a SnapshotError that says which files differ and how; with
  // LoaderOptions::accepts_changed, `warn` and `note` get that text instead. If only the names of files changed, the data is the
  // same, and a note says so. `called`: the beginning of the messages. If `saved` is null, because the snapshot has no identity,
  // a note says that the data was not compared.
  void check_data(const Json& saved, const std::string& called = "the data");
  // Discards prepared batches and begins this epoch. Used after a validation pass that ended early, and in tests.
  void restart(std::uint64_t epoch = 0);
  // Reads a batch of this rank again, in the calling thread, without an effect on the batches being prepared. The result equals
  // the batch that next() returned, but rows that can't be read are left out. Used to examine a step that went wrong.
  [[nodiscard]] HostBatch read_again(std::uint64_t epoch, std::uint64_t index) const;
  // Returns the name that messages give to a row's sample, by group and index: "sample 17 of data set "x" (a.h5)".
  [[nodiscard]] std::string sample_label(std::size_t group, std::int64_t index) const;
  [[nodiscard]] std::int64_t rows_per_batch() const noexcept;  // number of this rank's rows in a full batch, over all data sets
  [[nodiscard]] std::vector<DatasetPlan> dataset_plans() const;
  [[nodiscard]] Counters counters() const;
  [[nodiscard]] std::vector<SlowFile> slow_files() const;     // sorted, the slowest file first
  [[nodiscard]] int readers() const noexcept;                 // number of readers that are in use now
  [[nodiscard]] std::string readers_reason() const;           // returns a line for the plan about the latest choice of readers
  [[nodiscard]] std::uint64_t buffer_bytes() const noexcept;  // number of bytes of all slots

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::data
