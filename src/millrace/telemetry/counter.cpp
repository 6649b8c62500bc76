#include "millrace/telemetry/counter.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "millrace/base/error.h"

namespace millrace::telemetry {
namespace {

constexpr std::size_t kMostCounters = 64;

// One thread's share of all counters. Only that thread writes its share, so a plain load and store suffice. Readers never see
// half-written values.
struct alignas(64) Cells {
  std::array<std::atomic<std::int64_t>, kMostCounters> values{};
};

class Registry {
 public:
  static Registry& instance() {
    static Registry* registry = new Registry;  // never destroyed, because threads may outlive main's statics
    return *registry;
  }
  std::uint32_t index_of(std::string_view name) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found != names_.end()) return static_cast<std::uint32_t>(found - names_.begin());
    MR_CHECK(names_.size() < kMostCounters, "there is room for 64 counters");
    names_.emplace_back(name);
    return static_cast<std::uint32_t>(names_.size() - 1);
  }
  void enter(Cells* cells) {
    const std::lock_guard lock(mutex_);
    threads_.push_back(cells);
  }
  // Keeps the counts of a thread that ends; its cells are no longer read.
  void leave(Cells* cells) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < kMostCounters; ++i) ended_[i] += cells->values[i].load(std::memory_order_relaxed);
    std::erase(threads_, cells);
  }
  std::int64_t total(std::uint32_t index) {
    const std::lock_guard lock(mutex_);
    std::int64_t sum = ended_[index];
    for (const Cells* cells : threads_) sum += cells->values[index].load(std::memory_order_relaxed);
    return sum;
  }

 private:
  std::mutex mutex_;  // guards the members below
  std::vector<std::string> names_;
  std::vector<Cells*> threads_;
  std::array<std::int64_t, kMostCounters> ended_{};
};

class ThreadCells {
 public:
  ThreadCells() : cells_(std::make_unique<Cells>()) { Registry::instance().enter(cells_.get()); }
  ~ThreadCells() { Registry::instance().leave(cells_.get()); }
  ThreadCells(const ThreadCells&) = delete;
  ThreadCells& operator=(const ThreadCells&) = delete;
  std::atomic<std::int64_t>& operator[](std::uint32_t index) noexcept { return cells_->values[index]; }

 private:
  std::unique_ptr<Cells> cells_;
};

}  // namespace

Counter::Counter(std::string_view name) : index_(Registry::instance().index_of(name)) {}

void Counter::add(std::int64_t value) const noexcept {
  thread_local ThreadCells cells;
  std::atomic<std::int64_t>& cell = cells[index_];
  cell.store(cell.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

std::int64_t Counter::total() const { return Registry::instance().total(index_); }

}  // namespace millrace::telemetry
