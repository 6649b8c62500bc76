#include "millrace/device/child/watched_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

namespace millrace::device {
namespace {

constexpr std::size_t kAlignment = 64;  // alignment of LibTorch's memory

struct Block {
  unsigned char* data = nullptr;
  std::size_t bytes = 0, zone = 0;
  unsigned char junk = 0;

  [[nodiscard]] unsigned char* base() const { return data - zone; }
  // Returns the distance, in bytes, from the block to the farthest overwritten byte before it.
  [[nodiscard]] std::size_t written_before() const {
    const unsigned char* const at = std::find_if(base(), data, [this](unsigned char byte) { return byte != junk; });
    return static_cast<std::size_t>(data - at);
  }
  [[nodiscard]] std::size_t written_behind() const {
    std::size_t last = zone;
    while (last > 0 && data[bytes + last - 1] == junk) --last;
    return last;
  }
};

// Wraps LibTorch's own allocator, from which all memory comes.
class Watch final : public c10::Allocator {
 public:
  static Watch& here() {
    static auto* const watch = [] {
      auto* const made = new Watch;  // never freed, because tensors may exist until the process ends
      c10::SetCPUAllocator(made, /*priority=*/1);
      return made;
    }();
    return *watch;
  }

  void begin(unsigned char junk, std::size_t zone) {
    const std::scoped_lock lock(mutex_);
    junk_ = junk;
    zone_ = (zone + kAlignment - 1) / kAlignment * kAlignment;
    before_ = behind_ = 0;
  }
  void end() {
    const std::scoped_lock lock(mutex_);
    zone_ = 0;
  }
  [[nodiscard]] std::string overrun() {
    const std::scoped_lock lock(mutex_);
    for (const auto& [data, block] : blocks_) look_at(block);
    if (behind_ > 0) return "wrote " + std::to_string(behind_) + " bytes beyond its memory";
    return before_ > 0 ? "wrote " + std::to_string(before_) + " bytes before its memory" : "";
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    const std::scoped_lock lock(mutex_);
    if (zone_ == 0 || bytes == 0) {
      void* const plain = own().raw_allocate(bytes);
      return {plain, plain, &release, c10::Device(c10::kCPU)};
    }
    auto* const base = static_cast<unsigned char*>(own().raw_allocate(bytes + 2 * zone_));
    std::memset(base, junk_, bytes + 2 * zone_);
    const Block block{base + zone_, bytes, zone_, junk_};
    blocks_[block.data] = block;
    return {block.data, block.data, &release, c10::Device(c10::kCPU)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static c10::Allocator& own() { return *c10::GetDefaultCPUAllocator(); }
  static void release(void* data) {
    Watch& watch = here();
    const std::scoped_lock lock(watch.mutex_);
    if (const auto found = watch.blocks_.find(data); found != watch.blocks_.end()) {
      watch.look_at(found->second);
      data = found->second.base();
      watch.blocks_.erase(found);
    }
    own().raw_deallocate(data);
  }
  void look_at(const Block& block) {
    if (zone_ == 0) return;  // the watch is not in use
    before_ = std::max(before_, block.written_before());
    behind_ = std::max(behind_, block.written_behind());
  }

  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  unsigned char junk_ = 0;
  std::size_t zone_ = 0;  // 0 = not in use
  std::size_t before_ = 0, behind_ = 0;
};

}  // namespace

WatchedMemory::WatchedMemory(unsigned char junk, std::size_t zone_bytes) { Watch::here().begin(junk, zone_bytes); }
WatchedMemory::~WatchedMemory() { Watch::here().end(); }
std::string WatchedMemory::overrun() const { return Watch::here().overrun(); }

}  // namespace millrace::device
