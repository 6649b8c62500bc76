// The loader: index plan -> tickets -> reader threads -> ring of slots -> batches in order. Torch-free.
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

#include "millrace/base/json.h"
#include "millrace/data/loader/source.h"

namespace millrace::data {

// Memory for slots. The default maps huge-page-advised memory and faults it once; train binds one that also pins it.
class Arena {
 public:
  virtual ~Arena() = default;
  virtual std::byte* allocate(std::size_t bytes) = 0;  // 64-byte aligned, faulted; DeviceError when there is not enough
  virtual void release(std::byte* memory, std::size_t bytes) noexcept = 0;
  static std::shared_ptr<Arena> host();
};

struct LoaderOptions {
  std::int64_t batch_size = 1;  // samples per rank and batch; of each data set without a size of its own, or of a mix in all
  bool shuffle = false;
  bool drop_last = false;
  std::uint64_t seed = 0;
  int cores = 0;     // of the machine for this loader's process; 0 = all that it may run on
  int readers = -1;  // 0 = in the calling thread; -1 = chosen: see Loader::readers_reason
  int prefetch = 2;  // batches ready ahead of the consumer, at least 1
  int rank = 0;
  int world_size = 1;
  BadSamples bad_samples = BadSamples::fail;
  double max_bad_fraction =
      0.001;  // of an epoch's samples; one may be bad in any case but at 0; above it the run fails whatever the policy
  std::uint64_t max_buffer_bytes = 0;  // byte budget of all slots; 0 = 1 GiB, or three batches where they are more
  bool accepts_changed = false;        // data.accept_changed: see Loader::check_data
  bool adapts = true;       // more readers (when chosen) and batches ahead while the consumer waits; bits do not depend on it
  bool looks_ahead = true;  // tells sources that can use it what will be read soon: see Source::looks_ahead
  std::string called = "the data set";           // of the data in messages: "the validation data"
  std::shared_ptr<Arena> arena;                  // null = Arena::host()
  std::function<void(const std::string&)> warn;  // one line per warning; null = dropped
  std::function<void(const std::string&)> note;  // one line per choice made anew
};

// Groups stand in the order of the pipeline's data sets; one may have no rows (see Pipeline), but has its fields.
struct HostGroup {
  std::string_view name;                  // of the data set; valid while the loader lives
  std::span<const Field> fields;          // of the data set; valid while the loader lives
  std::vector<std::byte*> data;           // first byte of each field, 64-byte aligned, rows contiguous
  std::vector<std::int64_t> positions;    // position in the epoch of each row; size() = number of rows
  std::span<const std::int64_t> indices;  // sample index of each row; valid while the batch lives
};

// A batch in host memory. Owns its slot: destroying it (on any thread) gives the slot back.
struct HostBatch {
  std::vector<HostGroup> groups;
  std::uint64_t epoch = 0;
  std::uint64_t index = 0;     // batch number within the epoch
  std::shared_ptr<void> slot;  // the memory; copy it to keep the memory alive
};

// One line of the plan.
struct DatasetPlan {
  std::string name;
  std::int64_t samples = 0;
  std::int64_t batch_size = 0;  // most rows of it in a batch of this rank
  std::string rule;  // "repeats 3.2 times an epoch", "cut to 1,200 of 4,000 samples an epoch", "mixed: 23.4 % of the rows, ..."
};

struct LoaderCounters {
  std::uint64_t batches = 0;
  std::uint64_t samples = 0;
  std::uint64_t bad_samples = 0;
  double wait_seconds = 0;      // time next() spent waiting
  double read_seconds = 0;      // sum over readers of time in Source::read
  double read_cpu_seconds = 0;  // of it on a core: the rest waited for a disk, a network or a core
};

// A file whose reads took many times what reads usually take.
struct SlowFile {
  std::string name;  // as Source::describe() says it, without the place in it
  std::uint64_t reads = 0;
  double excess_seconds = 0;  // beyond the usual, in all
  double usual_seconds = 0;   // of a sample
  std::uint64_t quick = 0;    // about so many reads of it were as quick as usual, since the first that was not
  std::string worst;          // the place of the slowest read, as Source::describe() says it
  double worst_seconds = 0;   // of a sample there
};

// Order: a keyed bijection of [0, size) per (seed, epoch), and per round where a data set repeats: O(1) memory, any position
// addressable. Draws by weight are a function of (seed, epoch, position) too. Rank r of w takes rows [r*b, (r+1)*b) of each
// global batch of w*b rows. The same options give the same stream of bytes for any number of readers.
//   last batch     without drop_last the ragged rest is dealt to the ranks in order, as evenly as it goes: all ranks have equally
//                  many batches, and one may get no rows when there are fewer rows than ranks
//   grouped        how long an epoch is and what stands in a group, see Grouping; but for a mix, with drop_last each group is
//   either
//                  full or empty, and data sets that repeat are always full
//   bad samples    skip leaves rows out, so a batch may be smaller, even empty; substitute draws another sample of the data set
//   by
//                  (seed, epoch, position, attempt); quarantine also remembers the bad one and does not read it again
// next() and the other calls belong to one thread; batches may be destroyed on any thread.
class Loader {
 public:
  // ConfigError when nothing would ever be delivered, or a data set breaks its promise to a cache (see Keeps).
  Loader(Pipeline pipeline, LoaderOptions options);
  ~Loader();  // stops the readers; outstanding batches stay valid
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Next batch in order, nullopt at the end of the epoch; the call after that begins the next epoch (its samples are being
  // read already). Throws DataError with the sample, its batch and its reader named, and throws it again until restart() or
  // load_state(). Order, content and errors do not depend on the number of readers.
  [[nodiscard]] std::optional<HostBatch> next();
  [[nodiscard]] std::uint64_t epoch() const noexcept;             // epoch of the next batch
  [[nodiscard]] std::int64_t batches_per_epoch() const noexcept;  // of this rank (equal on all ranks)
  [[nodiscard]] std::int64_t samples_per_epoch() const noexcept;  // over all data sets and ranks
  // {fingerprint, seed, epoch, next batch, quarantine}: O(1) apart from the quarantine list. load_state() refuses another
  // fingerprint, batch size or seed with a SnapshotError that names both values. After check_data() let other data pass, the
  // next load_state() goes on at that batch (at the end of the epoch when there are fewer now) without the quarantine, whose
  // samples may be others.
  [[nodiscard]] Json state() const;
  void load_state(const Json& state);
  // What the data is: of each data set the fingerprint, and names, sizes and digests of its files (see file_stamps.h; of more
  // than 4,096 files 1,024 digests of neighbours). Reads them at the first call.
  [[nodiscard]] Json data_state() const;
  // Compares the data with data_state() of an earlier process. SnapshotError names the files that differ and how, unless
  // LoaderOptions::accepts_changed: then warn and note say it. Null, of a snapshot that holds none: a note says that nothing
  // could be compared. Files that have other names and the same content in the same order are the same data, with a note.
  // `called` begins the messages.
  void check_data(const Json& saved, const std::string& called = "the data");
  void restart(std::uint64_t epoch = 0);  // drop what is prepared and begin that epoch: early stop of a validation pass, tests
  [[nodiscard]] std::int64_t rows_per_batch() const noexcept;  // of this rank, in a full batch over all data sets
  [[nodiscard]] std::vector<DatasetPlan> dataset_plans() const;
  [[nodiscard]] LoaderCounters counters() const;
  [[nodiscard]] std::vector<SlowFile> slow_files() const;     // the slowest first
  [[nodiscard]] int readers() const noexcept;                 // in use now
  [[nodiscard]] std::string readers_reason() const;           // one line for the plan; of the latest choice
  [[nodiscard]] std::uint64_t buffer_bytes() const noexcept;  // all slots

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::data
