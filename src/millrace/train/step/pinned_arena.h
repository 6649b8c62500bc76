// Loader slots in page-locked memory. A device copies several times as fast from such memory as from other memory, and it can
// compute during the copy.
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

// An arena that locks each slot when the slot is made and unlocks it when it is freed. Slots beyond `most_bytes`, and slots that
// the system refuses to lock, are plain memory; the first refusal is passed to `report`. `backend` must outlive the arena. Any
// thread may free slots.
[[nodiscard]] std::shared_ptr<data::Arena> pinned_arena(device::Backend& backend, std::uint64_t most_bytes,
                                                        std::function<void(const std::string&)> report);

// Memory for the slots of a run's loaders.
struct SlotMemory {
  std::shared_ptr<data::Arena> arena;  // null = the loader's own memory
  std::uint64_t most_bytes = 0;        // most bytes that are locked; 0 = memory is not locked
  std::string reason;                  // one line for the plan
};
// Chooses the memory for a run on `device`. `ranks_here`: number of processes that share the machine's memory.
[[nodiscard]] SlotMemory slot_memory(const DataConfig& config, c10::Device device, int ranks_here,
                                     std::function<void(const std::string&)> report);

}  // namespace millrace
