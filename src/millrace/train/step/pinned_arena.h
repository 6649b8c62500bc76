// Loader slots in page-locked memory, which a device copies from beside its work and several times as fast.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "millrace/data/loader/loader.h"
#include "millrace/device/backend.h"
#include "millrace/train/recipe/config.h"

namespace millrace {

// Each slot is locked when it is made and given back with it. Slots beyond `most_bytes`, and those that the system does not let
// be locked, are plain memory; `tell` hears of the latter once. `backend` outlives the arena; any thread may give slots back.
[[nodiscard]] std::shared_ptr<data::Arena> pinned_arena(device::Backend& backend, std::uint64_t most_bytes,
                                                        std::function<void(const std::string&)> tell);

// What a run's loaders put their slots into on its device. `ranks_here`: processes that share the machine's memory.
struct SlotMemory {
  std::shared_ptr<data::Arena> arena;  // null = the loader's own
  std::uint64_t most_bytes = 0;        // that are locked; 0 = none are
  std::string reason;                  // one line for the plan
};
[[nodiscard]] SlotMemory slot_memory(const DataConfig& config, c10::Device device, int ranks_here,
                                     std::function<void(const std::string&)> tell);

}  // namespace millrace
