#include "device_memory.h"

#include <c10/util/Exception.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "accounts.h"
#include "races.h"
#include "recorder.h"
#include "streams.h"

namespace millrace::standin {
namespace {

constexpr std::size_t kAlignment = 512;  // as CUDA's allocator rounds
constexpr int kGarbage = 0xff;           // NaN in fp16, bf16, fp32 and fp64, -1 in integers

std::size_t memory_of_a_device() {
  const char* const megabytes = std::getenv("STANDIN_MEMORY_MB");
  return (megabytes != nullptr ? std::strtoull(megabytes, nullptr, 10) : 4096ULL) << 20U;
}

// One device's memory: a file without a name, mapped twice, and the blocks in it.
class Arena {
 public:
  Arena() : bytes_(memory_of_a_device()) {
    const int file = ::memfd_create("standin", MFD_CLOEXEC);
    TORCH_CHECK(file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes_)) == 0, "the stand-in has no memory");
    seen_ = map(file, PROT_NONE);
    used_ = map(file, PROT_READ | PROT_WRITE);
    ::close(file);
    free_[0] = bytes_;
  }

  [[nodiscard]] bool is_seen(const void* address) const { return contains(seen_, address); }
  [[nodiscard]] bool is_used(const void* address) const { return contains(used_, address); }
  [[nodiscard]] std::byte* to_used(const void* address) const { return used_ + (static_cast<const std::byte*>(address) - seen_); }
  [[nodiscard]] std::byte* to_seen(const void* address) const { return seen_ + (static_cast<const std::byte*>(address) - used_); }

  // Null where no gap is large enough.
  [[nodiscard]] std::byte* allocate(std::size_t bytes, c10::Stream stream) {
    const std::size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::scoped_lock lock(mutex_);
    const auto gap = std::find_if(free_.begin(), free_.end(), [&](const auto& each) { return each.second >= size; });
    if (gap == free_.end()) return nullptr;
    const auto [at, room] = *gap;
    free_.erase(gap);
    if (room > size) free_[at + size] = room - size;
    blocks_[at] = {.size = size, .line = line_of(stream), .birth = ++births_};
    allocated_ += size;
    peak_ = std::max(peak_, allocated_);
    if (computes_nothing()) return used_ + at;  // zeros, as all of it is: indices in range
    std::memset(used_ + at, kGarbage, size);
    block_begins(used_ + at, used_ + at + size, line_of(stream));
    return used_ + at;
  }

  void release(const std::byte* used) {
    const auto at = static_cast<std::size_t>(used - used_);
    if (stays_kept(at)) return;
    const Slot found = slot_from(at);
    if (found.size == 0) return;
    land_copies_of(used, used + found.size, found.line);
    std::size_t size = found.size;
    const std::scoped_lock lock(mutex_);
    blocks_.erase(at);
    block_ends(used);
    (found.is_left ? kept_ : allocated_) -= size;
    constexpr std::size_t kLarge = 1U << 20U;
    if (size >= kLarge && !computes_nothing()) give_back(at, size);
    const auto next = free_.find(at + size);
    if (next != free_.end()) size += next->second, free_.erase(next);
    const auto after = free_.lower_bound(at);
    if (after != free_.begin() && std::prev(after)->first + std::prev(after)->second == at) {
      std::prev(after)->second += size;
    } else {
      free_[at] = size;
    }
  }

  [[nodiscard]] Block block_of(const std::byte* used) {
    const auto at = static_cast<std::size_t>(used - used_);
    const std::scoped_lock lock(mutex_);
    const auto after = blocks_.upper_bound(at);
    if (after == blocks_.begin()) return {};
    const auto& [begin, slot] = *std::prev(after);
    return at < begin + slot.size ? Block{used_ + begin, slot.size, slot.birth} : Block{};
  }
  void keep(const Block& block) {
    const std::scoped_lock lock(mutex_);
    blocks_.at(static_cast<std::size_t>(block.begin - used_)).is_kept = true;
  }
  void let_go(const Block& block) {
    bool is_left = false;
    {
      const std::scoped_lock lock(mutex_);
      Slot& slot = blocks_.at(static_cast<std::size_t>(block.begin - used_));
      slot.is_kept = false;
      is_left = slot.is_left;
    }
    if (is_left) release(block.begin);
  }

  [[nodiscard]] Usage usage() {
    const std::scoped_lock lock(mutex_);
    return {allocated_, allocated_ + kept_, peak_, bytes_};
  }
  void reset_peak() {
    const std::scoped_lock lock(mutex_);
    peak_ = allocated_;
  }

  // Without a lock: it is asked for by a signal handler, after which the process ends.
  [[nodiscard]] std::size_t block_at(const void* seen) const {
    const auto after = blocks_.upper_bound(static_cast<std::size_t>(static_cast<const std::byte*>(seen) - seen_));
    return after == blocks_.begin() ? 0 : std::prev(after)->second.size;
  }

 private:
  struct Slot {
    std::size_t size = 0;
    std::size_t line = 0;  // the stream that it was made for
    std::uint64_t birth = 0;
    bool is_kept = false;
    bool is_left = false;  // its tensor is gone, and it is or was kept
  };

  [[nodiscard]] Slot slot_from(std::size_t at) {
    const std::scoped_lock lock(mutex_);
    const auto block = blocks_.find(at);
    return block == blocks_.end() ? Slot{} : block->second;
  }
  [[nodiscard]] bool stays_kept(std::size_t at) {
    const std::scoped_lock lock(mutex_);
    const auto block = blocks_.find(at);
    if (block == blocks_.end() || !block->second.is_kept) return false;
    block->second.is_left = true;
    allocated_ -= block->second.size;
    kept_ += block->second.size;
    return true;
  }
  [[nodiscard]] std::byte* map(int file, int rights) const {
    void* const memory = ::mmap(nullptr, bytes_, rights, MAP_SHARED | MAP_NORESERVE, file, 0);
    TORCH_CHECK(memory != MAP_FAILED, "the stand-in's memory can't be mapped");
    return static_cast<std::byte*>(memory);
  }
  [[nodiscard]] bool contains(const std::byte* base, const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return at >= base && at < base + bytes_;
  }
  // Whole pages inside the block; what they hold is lost, as it may be.
  void give_back(std::size_t at, std::size_t size) const {
    constexpr std::size_t kPage = 4096;
    const std::size_t first = (at + kPage - 1) / kPage * kPage;
    const std::size_t last = (at + size) / kPage * kPage;
    if (last > first) ::madvise(used_ + first, last - first, MADV_REMOVE);
  }

  std::size_t bytes_;
  std::byte* seen_ = nullptr;  // what tensors have as their address
  std::byte* used_ = nullptr;  // what kernels compute with
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // offset, size
  std::map<std::size_t, Slot> blocks_;       // by offset
  std::uint64_t births_ = 0;
  std::size_t allocated_ = 0;
  std::size_t kept_ = 0;
  std::size_t peak_ = 0;
};

// Never destroyed: tensors outlive static objects.
std::array<Arena, kDevices>& arenas() {
  static auto* const kept = new std::array<Arena, kDevices>;
  return *kept;
}

struct sigaction earlier {};

// A line on stderr and the call stack, then what would have happened without us.
void on_fault(int signal, siginfo_t* info, void* context) {
  for (std::size_t i = 0; i < kDevices; ++i) {
    if (!arenas().at(i).is_seen(info->si_addr)) continue;
    std::array<char, 160> line{};
    const int length = std::snprintf(line.data(), line.size(), "host touched device memory: a block of %zu bytes on cuda:%zu\n",
                                     arenas().at(i).block_at(info->si_addr), i);
    (void)!::write(STDERR_FILENO, line.data(), static_cast<std::size_t>(length));
    std::array<void*, 64> frames{};
    ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), static_cast<int>(frames.size())), STDERR_FILENO);
    break;
  }
  ::sigaction(SIGSEGV, &earlier, nullptr);
  if ((earlier.sa_flags & SA_SIGINFO) != 0 && earlier.sa_sigaction != nullptr) earlier.sa_sigaction(signal, info, context);
}

void watch_for_faults() {
  std::array<void*, 1> warm{};
  ::backtrace(warm.data(), 1);  // loads what it needs: not within a handler
  (void)arenas();
  struct sigaction action {};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigaction(SIGSEGV, &action, &earlier);
}

Arena& arena_of(const void* address) {
  const int device = device_of(address);
  TORCH_INTERNAL_ASSERT(device >= 0);
  return arenas().at(static_cast<std::size_t>(device));
}

void delete_seen(void* address) {
  if (address != nullptr) arena_of(address).release(arena_of(address).to_used(address));
}
void delete_used(void* address) {
  if (address != nullptr) arena_of(address).release(static_cast<std::byte*>(address));
}

// At an address for kernels; refuses as CUDA's allocator does, also where a test says so.
std::byte* take(std::size_t bytes) {
  static std::once_flag once;
  std::call_once(once, watch_for_faults);
  const int device = current_device();
  count(Count::allocations, "cuda:" + std::to_string(device));
  refuse_if_asked(device, bytes);
  std::byte* const memory =
      arenas().at(static_cast<std::size_t>(device)).allocate(std::max<std::size_t>(bytes, 1), current_stream(device));
  if (memory == nullptr) {
    const Usage now = usage(device);
    C10_THROW_ERROR(OutOfMemoryError, "CUDA out of memory. Tried to allocate " + std::to_string(bytes) + " bytes. GPU " +
                                          std::to_string(device) + " has a total capacity of " + std::to_string(now.total) +
                                          " bytes of which " + std::to_string(now.total - now.reserved) + " bytes is free.");
  }
  if (Recorder* const open = recorder(device)) open->made(memory);
  return memory;
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(current_device()));
    if (bytes == 0) return {nullptr, nullptr, &delete_seen, device};
    std::byte* const memory = for_tensors(take(bytes));
    return {memory, memory, &delete_seen, device};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &delete_seen; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(for_kernels(to), for_kernels(from), bytes);
  }
};

class KernelAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &delete_used, c10::Device(c10::kCPU)};
    std::byte* const memory = take(bytes);
    return {memory, memory, &delete_used, c10::Device(c10::kCPU)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &delete_used; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

class Pinned {
 public:
  void add(const void* memory, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    ranges_[static_cast<const std::byte*>(memory)] = bytes;
  }
  [[nodiscard]] bool remove(const void* memory) {
    const std::scoped_lock lock(mutex_);
    return ranges_.erase(static_cast<const std::byte*>(memory)) != 0;
  }
  [[nodiscard]] bool has(const void* memory) {
    const auto* const at = static_cast<const std::byte*>(memory);
    const std::scoped_lock lock(mutex_);
    const auto after = ranges_.upper_bound(at);
    return after != ranges_.begin() && at < std::prev(after)->first + std::prev(after)->second;
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, std::size_t> ranges_;
};

Pinned& pinned() {
  static auto* const kept = new Pinned;
  return *kept;
}

// LibTorch's keeps a block that a copy still reads; so does this one, by letting the copy land first.
void delete_pinned(void* memory) {
  if (memory == nullptr) return;
  land_copies_of(memory);
  (void)pinned().remove(memory);
  std::free(memory);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &delete_pinned, c10::Device(c10::kCPU)};
    constexpr std::size_t kPage = 4096;
    void* const memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
    TORCH_CHECK(memory != nullptr, "no host memory for ", bytes, " bytes");
    pinned().add(memory, bytes);
    return {memory, memory, &delete_pinned, c10::Device(c10::kCPU)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &delete_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

c10::Allocator* device_allocator() {
  static DeviceAllocator allocator;
  return &allocator;
}

c10::Allocator* kernel_allocator() {
  static KernelAllocator allocator;
  return &allocator;
}

c10::Allocator* pinned_allocator() {
  static PinnedAllocator allocator;
  return &allocator;
}

int device_of(const void* address) {
  for (std::size_t i = 0; i < kDevices; ++i)
    if (arenas().at(i).is_seen(address) || arenas().at(i).is_used(address)) return static_cast<int>(i);
  return -1;
}

std::byte* for_kernels(const void* address) {
  for (const Arena& arena : arenas())
    if (arena.is_seen(address)) return arena.to_used(address);
  return static_cast<std::byte*>(const_cast<void*>(address));
}

std::byte* for_tensors(const void* address) {
  for (const Arena& arena : arenas())
    if (arena.is_used(address)) return arena.to_seen(address);
  return static_cast<std::byte*>(const_cast<void*>(address));
}

c10::DataPtr as_device_pointer(c10::DataPtr pointer) {
  const int owner = device_of(pointer.get());
  const int device = owner < 0 ? current_device() : owner;
  std::byte* const memory = for_tensors(pointer.release_context());
  return {memory, memory, &delete_seen, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device))};
}

std::string describe(const void* address) {
  const int device = device_of(address);
  if (device < 0) return is_pinned(address) ? "page-locked memory" : "pageable memory";
  const Arena& arena = arenas().at(static_cast<std::size_t>(device));
  return "a block of " + std::to_string(arena.block_at(for_tensors(address))) + " bytes on cuda:" + std::to_string(device);
}

Block block_of(const void* address) {
  const int device = device_of(address);
  return device < 0 ? Block{} : arenas().at(static_cast<std::size_t>(device)).block_of(for_kernels(address));
}
void keep(const Block& block) { arena_of(block.begin).keep(block); }
void let_go(const Block& block) { arena_of(block.begin).let_go(block); }

Usage usage(int device) { return arenas().at(static_cast<std::size_t>(device)).usage(); }
void reset_peak(int device) { arenas().at(static_cast<std::size_t>(device)).reset_peak(); }

void pin(const void* memory, std::size_t bytes) { pinned().add(memory, bytes); }
void unpin(const void* memory) { (void)pinned().remove(memory); }
bool is_pinned(const void* memory) { return pinned().has(memory); }

void spoil(void* memory, std::size_t bytes) { std::memset(memory, kGarbage, bytes); }

}  // namespace millrace::standin
