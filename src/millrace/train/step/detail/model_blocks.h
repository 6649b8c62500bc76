// The named blocks of a model in a step (memory/block.h): which of them are recomputed, and the time of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/memory/block.h"
#include "millrace/memory/block_clock.h"

namespace millrace {

// Part of a stepper; only the loop's thread uses it.
class ModelBlocks {
 public:
  ModelBlocks(at::Device device, memory::Recompute recompute) : device_(device), recompute_(std::move(recompute)) {}

  // Names in the model's order; known after the first forward pass.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  [[nodiscard]] const memory::Recompute& recompute() const noexcept { return recompute_; }
  void set_recompute(memory::Recompute recompute) { recompute_ = std::move(recompute); }
  // Recomputes every block. Returns false if all blocks are recomputed already, or the model has no blocks.
  bool recompute_all();
  void check(const memory::Recompute& recompute) const;  // throws ConfigError if a name is not that of a block

  // From here on one step in eight measures the time in each block. Only on a CPU, and never in a trial.
  void time() noexcept { timed_ = device_.is_cpu(); }
  [[nodiscard]] const std::vector<memory::BlockClock::Part>& times() const noexcept { return clock_.parts(); }
  [[nodiscard]] memory::BlockClock* clock_of(std::int64_t step);  // null if this step is not timed

  // Begins a forward pass of training. The pass lasts until the caller destroys `scope`.
  void enter(std::optional<memory::BlockScope>& scope);
  // Called after the first pass of a step. Throws ConfigError if recompute() names something that is not a block.
  void end_pass();

  // begin_trial() and end_trial() enclose passes that leave no trace. `watcher` sees the blocks of these passes; null = nothing
  // watches.
  void begin_trial() noexcept { trying_ = true; }
  void watch(memory::Watcher* watcher) noexcept { watcher_ = watcher; }
  void end_trial() noexcept;

 private:
  at::Device device_;
  memory::Recompute recompute_;
  std::vector<std::string> names_;
  bool known_ = false;
  bool trying_ = false;
  memory::Watcher* watcher_ = nullptr;
  memory::BlockClock clock_;
  bool timed_ = false;
};

}  // namespace millrace
