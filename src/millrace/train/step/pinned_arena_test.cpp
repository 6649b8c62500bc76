#include "millrace/train/step/pinned_arena.h"

#include <gtest/gtest.h>

#include <map>

#include "millrace/base/error.h"
#include "millrace/device/device.h"

namespace millrace {
namespace {

// A device that counts the bytes that are locked for it, up to a limit of the system.
class Locking final : public device::Backend {
 public:
  [[nodiscard]] int device_count() const override { return 1; }
  [[nodiscard]] std::string device_name(int) const override { return "locking"; }
  [[nodiscard]] std::pair<int, int> compute_capability(int) const override { return {9, 0}; }
  [[nodiscard]] bool has_fast_bf16(int) const override { return true; }
  [[nodiscard]] device::Backend::Nature nature(int) const override { return {}; }
  [[nodiscard]] device::Backend::DriverMemory driver_memory(int) const override { return {}; }
  void synchronize(int) override {}
  [[nodiscard]] c10::Stream copy_stream(int) override { return device::cpu().copy_stream(0); }
  void pin(std::byte* memory, std::size_t bytes) override {
    if (locked.size() == most_blocks) throw DeviceError({"the system locks no more", "loader slots", ""});
    locked[memory] = bytes;
  }
  void unpin(std::byte* memory) noexcept override { locked.erase(memory); }

  std::map<std::byte*, std::size_t> locked;
  std::size_t most_blocks = 100;

 private:
  [[nodiscard]] device::Backend::MemoryCounters read_memory(int) const override { return {}; }
};

TEST(PinnedArena, LocksWhatFitsAndGivesItBack) {
  Locking device;
  const auto arena = pinned_arena(device, 10'000, nullptr);
  std::byte* const first = arena->allocate(6'000);
  std::byte* const second = arena->allocate(6'000);
  EXPECT_EQ(device.locked, (std::map<std::byte*, std::size_t>{{first, 6'000}}));
  second[5'999] = std::byte{1};
  arena->release(second, 6'000);
  arena->release(first, 6'000);
  EXPECT_TRUE(device.locked.empty());
  std::byte* const third = arena->allocate(10'000);
  EXPECT_TRUE(device.locked.contains(third));
  arena->release(third, 10'000);
}

TEST(PinnedArena, SaysOnceThatTheSystemLocksNoMore) {
  Locking device;
  device.most_blocks = 1;
  std::vector<std::string> notices;
  const auto arena = pinned_arena(device, 1'000'000, [&](const std::string& text) { notices.push_back(text); });
  std::vector<std::byte*> memory;
  for (int i = 0; i < 4; ++i) memory.push_back(arena->allocate(64));
  EXPECT_EQ(device.locked.size(), 1U);
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_NE(notices[0].find("the system locks no more"), std::string::npos);
  for (std::byte* one : memory) arena->release(one, 64);
  EXPECT_TRUE(device.locked.empty());
}

TEST(SlotMemory, OfACpuIsTheLoadersOwn) {
  const SlotMemory memory = slot_memory({}, c10::Device(c10::kCPU), 1, nullptr);
  EXPECT_EQ(memory.arena, nullptr);
  EXPECT_EQ(memory.most_bytes, 0U);
}

}  // namespace
}  // namespace millrace
