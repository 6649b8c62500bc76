// The work of the loader's engine for data sets: chooses the samples of a batch, reads them into the batch's slot, and handles
// bad samples.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/data/loader/detail/batch_order.h"
#include "millrace/data/loader/loader.h"
#include "millrace/data/loader/slow_reads.h"

namespace millrace::data::detail {

// A row whose sample could not be read, and what was done about it.
struct BadRow {
  std::size_t group = 0;
  std::int64_t row = 0;
  std::int64_t index = 0;  // the sample that the row should hold
  bool replaced = false;
  int reader = -1;                   // number of the reader thread; -1 = the thread that called next()
  std::exception_ptr error;          // null if the sample was not read again because it is in quarantine
  std::vector<std::int64_t> failed;  // samples that could not be read for this row: `index` and its replacements
};

// Returns the reason why the row could not be read. `sample` names the sample. Rethrows an error that is not about the sample.
[[nodiscard]] Message reason_of(const BadRow& bad, const std::string& sample);

struct GroupSlot {
  std::vector<std::byte*> data;  // first byte of each field
  std::vector<std::int64_t> indices;
  std::vector<std::int64_t> positions;
  std::int64_t rows = 0;
};

// The memory of a batch, and what is known about its rows.
struct BatchSlot {
  BatchSlot(std::shared_ptr<Arena> from, std::size_t size) : arena(std::move(from)), memory(arena->allocate(size)), bytes(size) {}
  ~BatchSlot() { arena->release(memory, bytes); }
  BatchSlot(const BatchSlot&) = delete;
  BatchSlot& operator=(const BatchSlot&) = delete;

  const std::shared_ptr<Arena> arena;
  std::byte* const memory;
  const std::size_t bytes;
  std::vector<GroupSlot> groups;
  std::vector<MixedRow> places;  // the sample of each row; used only by Grouping::mix
  std::mutex mutex;
  std::vector<BadRow> bad;  // protected by mutex while tickets run
};

// Options of BatchWork; constant after construction.
struct WorkOptions {
  BatchOrderOptions order;
  BadSamples bad_samples = BadSamples::fail;
  bool looks_ahead = true;
};

// Samples that are not read again, as (data set, index). The set grows as batches are delivered; readers use a copy that does not
// change.
using Quarantine = std::set<std::pair<std::size_t, std::int64_t>>;

class BatchWork {
 public:
  using Slot = BatchSlot;

  BatchWork(std::vector<Dataset> datasets, WorkOptions options, std::shared_ptr<Arena> arena);

  [[nodiscard]] std::uint64_t batches_per_epoch() const noexcept { return batches_per_epoch_; }
  [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  [[nodiscard]] const std::vector<Dataset>& datasets() const noexcept { return datasets_; }
  [[nodiscard]] std::int64_t samples() const noexcept;  // number of samples of all data sets
  [[nodiscard]] const BatchOrder& order() const noexcept { return order_; }

  // The functions that the engine calls.
  std::unique_ptr<BatchSlot> make_slot();
  [[nodiscard]] std::uint64_t tickets() const noexcept { return tickets_; }
  void begin(BatchSlot& slot, std::uint64_t batch) noexcept;
  void run(BatchSlot& slot, std::uint64_t batch, std::uint64_t ticket, int reader) noexcept;
  void starved(std::size_t lent) { on_starved(lent); }
  void stalled(std::uint64_t batch, double seconds) { on_stalled(batch, seconds); }

  // Removes the rows whose samples could not be read and were not replaced. slot.bad must be sorted by group and row.
  void drop_bad(BatchSlot& slot) const;

  // The loader sets these functions before the engine starts; they are called in the consumer's thread.
  std::function<void(std::size_t lent)> on_starved = [](std::size_t) {};
  std::function<void(std::uint64_t batch, double seconds)> on_stalled = [](std::uint64_t, double) {};

  void set_quarantine(Quarantine quarantine);
  [[nodiscard]] double read_seconds() const noexcept;
  [[nodiscard]] double read_cpu_seconds() const noexcept;
  [[nodiscard]] std::vector<Loader::SlowFile> slow_files() const { return slow_reads_.files(); }
  [[nodiscard]] double take_slowest_seconds() noexcept;  // returns the longest time of a ticket since this was last called
  // Returns a line for each reader that is inside Source::read: "reader 2 has been reading sample 17 of data set "x" (a.h5) for
  // 12 s". `batch`: only readers that work on this batch; nullopt = all readers.
  [[nodiscard]] std::vector<std::string> activity(std::optional<std::uint64_t> batch = std::nullopt) const;
  // Returns "sample 17 of data set "x""; without the data set if its name is empty.
  [[nodiscard]] std::string sample_name(std::size_t group, std::int64_t index) const;
  // Returns sample_name(), followed by Source::describe() in brackets.
  [[nodiscard]] std::string sample_label(std::size_t group, std::int64_t index) const;

 private:
  // A data set, and where its fields are in a slot.
  struct OpenDataset {
    std::shared_ptr<const Source> source;
    std::string reads;                       // the text that reads_of() gives for the data set's source
    std::vector<std::size_t> field_bytes;    // bytes of each field in one row
    std::vector<std::size_t> field_offsets;  // where each field begins in the slot
    std::uint64_t seed = 0;
    std::int64_t rows_per_ticket = 1;
    // Number of the data set's first ticket in a batch. Unused in a mix, where tickets are counted over all rows.
    std::uint64_t first_ticket = 0;
    std::uint64_t end_ticket = 0;
  };
  // What a reader is doing, for messages about a stall. Each reader has its own cache line.
  struct alignas(64) Activity {
    std::atomic<std::int64_t> since{0};  // when the reader began to read, in steady nanoseconds; 0 = it is not reading
    std::atomic<std::int64_t> index{0};
    std::atomic<std::size_t> group{0};
    std::atomic<std::uint64_t> batch{0};
    std::atomic<std::int64_t> read_nanoseconds{0};
    std::atomic<std::int64_t> cpu_nanoseconds{0};
    std::atomic<std::int64_t> slowest_nanoseconds{0};
  };
  struct Block {
    const OpenDataset& part;
    std::size_t group;
    std::int64_t first_row;
    std::int64_t rows;
    std::uint64_t batch;
    std::uint64_t epoch;
    int reader;
  };

  void lay_out();
  void lay_out_mix();
  void begin_mix(BatchSlot& slot, std::uint64_t batch) const;
  void run_mix(BatchSlot& slot, std::uint64_t batch, std::uint64_t ticket, int reader) noexcept;
  [[nodiscard]] bool looks_ahead(const OpenDataset& part) const;
  static void announce(const OpenDataset& part, std::span<const std::int64_t> indices, const ReadRandom& random) noexcept;
  void look_ahead(std::size_t group, std::uint64_t batch, std::uint64_t ticket) const noexcept;
  void look_ahead_in_mix(std::uint64_t batch, std::uint64_t ticket) const noexcept;
  void read_timed(BatchSlot& slot, const Block& block) noexcept;
  void read_block(BatchSlot& slot, const Block& block);
  void read_rows(BatchSlot& slot, const Block& block, std::span<const std::int64_t> indices, std::int64_t first_row) const;
  void read_one(BatchSlot& slot, const Block& block, std::int64_t row, std::exception_ptr error);
  void replace(BatchSlot& slot, const Block& block, BadRow& bad) const;
  [[nodiscard]] bool quarantined(std::size_t group, std::int64_t index) const;
  Activity& activity_of(int reader) const { return activities_[reader < 0 ? 0 : 1 + static_cast<std::size_t>(reader) % 64]; }

  const std::vector<Dataset> datasets_;
  const WorkOptions options_;
  const std::shared_ptr<Arena> arena_;
  const BatchOrder order_;
  std::vector<OpenDataset> parts_;
  std::int64_t rows_per_ticket_ = 1;  // used only by Grouping::mix
  std::uint64_t tickets_ = 0;
  std::uint64_t batches_per_epoch_ = 0;
  std::uint64_t look_ahead_batches_ = 1;
  std::size_t slot_bytes_ = 0;
  SlowReads slow_reads_;
  mutable std::array<Activity, 65> activities_;  // [0]: the calling thread, [i + 1]: reader i; readers from 64 on share entries
  mutable std::mutex quarantine_mutex_;
  std::shared_ptr<const Quarantine> quarantine_;
  std::atomic<bool> has_quarantine_{false};
};

// Returns the default limit for the bytes of all slots: 1 GiB, or three batches if they are larger, but at most half of the
// memory of the machine or of the process's control group. The three batches are the one in the step, the next one and the one
// being made.
[[nodiscard]] std::uint64_t usual_buffer(std::uint64_t slot_bytes);

}  // namespace millrace::data::detail
