#include "millrace/train/step/pinned_arena.h"

#include <mutex>
#include <set>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/device/device.h"

namespace millrace {
namespace {

class PinnedArena final : public data::Arena {
 public:
  PinnedArena(device::Backend& backend, std::uint64_t most_bytes, std::function<void(const std::string&)> report)
      : backend_(backend), most_bytes_(most_bytes), report_(std::move(report)) {}

  std::byte* allocate(std::size_t bytes) override {
    std::byte* const memory = plain_->allocate(bytes);
    const std::lock_guard lock(mutex_);
    if (refused_ || bytes > most_bytes_ - locked_bytes_) return memory;
    try {
      backend_.pin(memory, bytes);
      locked_.insert(memory);
      locked_bytes_ += bytes;
    } catch (const DeviceError& error) {
      refused_ = true;
      if (report_) report_("batches go to the device from pageable memory, which is slower: " + error.message().what);
    }
    return memory;
  }

  void release(std::byte* memory, std::size_t bytes) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      if (locked_.erase(memory) > 0) {
        backend_.unpin(memory);
        locked_bytes_ -= bytes;
      }
    }
    plain_->release(memory, bytes);
  }

 private:
  const std::shared_ptr<data::Arena> plain_ = data::Arena::host();
  device::Backend& backend_;
  const std::uint64_t most_bytes_;
  const std::function<void(const std::string&)> report_;
  std::mutex mutex_;  // guards the members below
  std::set<std::byte*> locked_;
  std::uint64_t locked_bytes_ = 0;
  bool refused_ = false;
};

}  // namespace

std::shared_ptr<data::Arena> pinned_arena(device::Backend& backend, std::uint64_t most_bytes,
                                          std::function<void(const std::string&)> report) {
  return std::make_shared<PinnedArena>(backend, most_bytes, std::move(report));
}

SlotMemory slot_memory(const DataConfig& config, c10::Device device, int ranks_here,
                       std::function<void(const std::string&)> report) {
  device::Backend& backend = device::backend_of(device);
  if (backend.nature(device.has_index() ? device.index() : 0).in_host_memory)
    return {.reason = "batches are used in place, without a copy"};
  if (!config.pin_memory.value_or(true)) return {.reason = "batches go to the device from pageable memory, which is slower"};
  // Locks only a part of the free memory, because other processes can't use locked pages until the run ends.
  const std::uint64_t most = device::available_memory_bytes() / 4 / static_cast<std::uint64_t>(ranks_here);
  return {
      .arena = pinned_arena(backend, most, std::move(report)),
      .most_bytes = most,
      .reason = "batches are copied from page-locked memory (at most a quarter of the free memory) while the device computes"};
}

}  // namespace millrace
