// The data of a run: the pipelines of its splits, the cache, and the loaders that read through it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "millrace/data/cache/cached_source.h"
#include "millrace/data/cache/disk_cache.h"
#include "millrace/data/loader/loader.h"
#include "millrace/train/assembly/run_setup.h"
#include "millrace/train/step/pinned_arena.h"

namespace millrace {

// Belongs to one thread. Refers to the RunSetup. May be moved, because the objects that it makes do not refer to it.
class Loaders {
 public:
  // Asks the recipe for its data. `note`: called with a text about each change that the loader makes while it runs; null = the
  // text is shown on the console. Throws ConfigError if there is no training data.
  Loaders(RunSetup& setup, Recipe& recipe, std::function<void(const std::string&)> note = nullptr);

  [[nodiscard]] const data::Pipeline* pipeline(Split split) const noexcept;  // the recipe's pipeline, without the cache; null =
                                                                             // the split has no data
  [[nodiscard]] data::Loader& training() const noexcept { return *training_; }
  [[nodiscard]] data::Loader* validation() const noexcept { return validation_.get(); }  // null = no validation
  [[nodiscard]] data::Cache* cache() const noexcept;                                     // null = no cache
  [[nodiscard]] std::uint64_t bytes_in_memory() const noexcept;  // bytes of a cache in memory; 0 for a cache on disk

  [[nodiscard]] std::int64_t steps_per_epoch() const;
  [[nodiscard]] std::int64_t total_steps() const;  // number of steps of the run; 0 = no limit
  // Number of steps of a run of this length.
  [[nodiscard]] std::int64_t total_steps(std::int64_t epochs, std::int64_t max_steps) const;
  [[nodiscard]] std::int64_t global_batch() const;   // rows in one step, over all data sets, ranks and accumulated batches
  [[nodiscard]] std::uint64_t buffer_bytes() const;  // memory of batches in preparation or use, for training and validation

 private:
  void choose_cache(data::Pipeline& training, data::Pipeline& held_out);
  void choose_disk_cache(data::Pipeline& training, data::Pipeline& held_out);
  void plan_slots(const SlotMemory& memory);

  RunSetup& setup_;
  std::optional<data::Pipeline> pipeline_, held_out_;  // pipelines without the cache
  std::shared_ptr<data::SampleCache> cache_;           // at most one of cache_ and disk_cache_ is set
  std::shared_ptr<data::DiskCache> disk_cache_;
  std::unique_ptr<data::Loader> training_, validation_;
};

}  // namespace millrace
