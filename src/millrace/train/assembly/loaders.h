// The data of a run: pipelines of its splits, the cache before them, and the loaders.
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

// Belongs to one thread; refers to the setup, and may be moved: nothing that it makes refers to this object.
class Loaders {
 public:
  // Asks the recipe for its data. `note`: called with each change that the loader makes while it runs; null = shown on the
  // console. ConfigError if there is no training data.
  Loaders(RunSetup& setup, Recipe& recipe, std::function<void(const std::string&)> note = nullptr);

  [[nodiscard]] const data::Pipeline* pipeline(Split split) const noexcept;  // without a cache; null = the split has no data
  [[nodiscard]] data::Loader& training() const noexcept { return *training_; }
  [[nodiscard]] data::Loader* validation() const noexcept { return validation_.get(); }  // null = no validation
  [[nodiscard]] data::Cache* cache() const noexcept;                                     // null = off
  [[nodiscard]] std::uint64_t bytes_in_memory() const noexcept;  // of a cache in memory; 0 for a cache on disk

  [[nodiscard]] std::int64_t steps_per_epoch() const;
  [[nodiscard]] std::int64_t total_steps() const;                                             // 0 = open end
  [[nodiscard]] std::int64_t total_steps(std::int64_t epochs, std::int64_t max_steps) const;  // for a run of another length
  [[nodiscard]] std::int64_t global_batch() const;   // rows of a full step, over all data sets, ranks and accumulated batches
  [[nodiscard]] std::uint64_t buffer_bytes() const;  // memory of both loaders: batches being made and used

 private:
  void choose_cache(data::Pipeline& training, data::Pipeline& held_out);
  void choose_disk_cache(data::Pipeline& training, data::Pipeline& held_out);
  void plan_slots(const SlotMemory& memory);

  RunSetup& setup_;
  std::optional<data::Pipeline> pipeline_, held_out_;  // pipelines without a cache
  std::shared_ptr<data::SampleCache> cache_;           // cache_ and disk_cache_ are never both set
  std::shared_ptr<data::DiskCache> disk_cache_;
  std::unique_ptr<data::Loader> training_, validation_;
};

}  // namespace millrace
