#include "millrace/device/tensor_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>

#include "millrace/base/format.h"
#include "millrace/device/device.h"
#include "millrace/system/process_limits.h"

namespace millrace::device {
namespace {

std::atomic<std::uint64_t> live{0};
std::atomic<std::uint64_t> peak{0};
std::atomic<std::uint64_t> limit{0};
std::atomic<std::uint64_t> resident_limit{0};
std::atomic<std::uint64_t> unchecked{0};
std::atomic<std::uint64_t> unmapped{0};  // bytes of tensors made since the last check of the address space

void add(std::uint64_t bytes) noexcept {
  const std::uint64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::uint64_t highest = peak.load(std::memory_order_relaxed);
  while (now > highest && !peak.compare_exchange_weak(highest, now, std::memory_order_relaxed)) {
  }
}

// Asks the C library for the block's size, so that neither a header nor a table is needed.
void release(void* memory) {
  if (memory == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(memory);
  live.fetch_sub(malloc_usable_size(memory), std::memory_order_relaxed);
  c10::free_cpu(memory);
}

void check_resident(std::uint64_t bytes) {
  constexpr std::uint64_t kWorthALook = std::uint64_t{16} << 20U;
  const std::uint64_t most = resident_limit.load(std::memory_order_relaxed);
  if (most == 0 || unchecked.fetch_add(bytes, std::memory_order_relaxed) + bytes < kWorthALook) return;
  unchecked.store(0, std::memory_order_relaxed);
  if (private_resident_bytes() + bytes <= most) return;
  malloc_trim(0);  // memory that the C library keeps counts as resident, so return it first
  const std::uint64_t now = private_resident_bytes();
  TORCH_CHECK_WITH(OutOfMemoryError, now + bytes <= most, "a tensor of ", human_bytes(static_cast<double>(bytes)),
                   " does not fit: the process holds ", human_bytes(static_cast<double>(now)), " of ",
                   human_bytes(static_cast<double>(most)));
}

[[noreturn]] void refuse_address_space(std::uint64_t bytes) {
  const std::uint64_t mapped = mapped_bytes();
  malloc_trim(0);  // other programs can't use memory that the C library keeps
  TORCH_CHECK_WITH(OutOfMemoryError, false, "a tensor of ", human_bytes(static_cast<double>(bytes)),
                   " does not fit: ", human_bytes(static_cast<double>(mapped)), " of ",
                   human_bytes(static_cast<double>(limit_of(RLIMIT_AS).value_or(0))),
                   " of address space (ulimit -v) are in use, and libraries need the rest");
}

// Calls c10's allocator, but keeps the reserved address space free. Memory that the C library has already mapped may always be
// used, so the mapped space is compared before and after the call.
void* take_memory(std::uint64_t bytes) {
  constexpr std::uint64_t kWorthALook = std::uint64_t{1} << 20U;
  if (kept_address_space() == 0) return c10::alloc_cpu(bytes);
  const bool looks = unmapped.fetch_add(bytes, std::memory_order_relaxed) + bytes >= kWorthALook;
  const std::uint64_t before = looks ? mapped_bytes() : 0;
  void* memory = nullptr;
  try {
    memory = c10::alloc_cpu(bytes);
  } catch (const c10::Error&) {
    refuse_address_space(bytes);
  }
  if (!looks) return memory;
  unmapped.store(0, std::memory_order_relaxed);
  if (may_map(0) || mapped_bytes() <= before) return memory;
  c10::free_cpu(memory);
  refuse_address_space(bytes);
}

class Counting final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const std::uint64_t most = limit.load(std::memory_order_relaxed);
    const std::uint64_t now = live.load(std::memory_order_relaxed);
    TORCH_CHECK_WITH(OutOfMemoryError, most == 0 || now + bytes <= most, "a tensor of ", human_bytes(static_cast<double>(bytes)),
                     " does not fit: tensors hold ", human_bytes(static_cast<double>(now)), " of ",
                     human_bytes(static_cast<double>(most)));
    check_resident(bytes);
    void* const memory = take_memory(bytes);
    if (memory != nullptr) add(malloc_usable_size(memory));
    c10::profiledCPUMemoryReporter().New(memory, bytes);
    return {memory, memory, &release, c10::Device(c10::DeviceType::CPU)};
  }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return data.get_context() == data.get(); }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

void count_tensor_memory() {
  // The allocator is never destroyed, because tensors of static objects are freed after main.
  static const bool installed = [] {
    c10::SetCPUAllocator(new Counting);
    return true;
  }();
  (void)installed;
}

TensorMemory tensor_memory(c10::Device device) {
  if (device.is_cpu()) return {live.load(std::memory_order_relaxed), peak.load(std::memory_order_relaxed)};
  const Backend::MemoryCounters counters = backend_of(device).memory(device.has_index() ? device.index() : 0);
  return {counters.allocated_bytes, counters.peak_bytes};
}

void reset_peak_tensor_memory(c10::Device device) {
  if (device.is_cpu()) {
    peak.store(live.load(std::memory_order_relaxed), std::memory_order_relaxed);
  } else {
    backend_of(device).reset_peak(device.has_index() ? device.index() : 0);
  }
}

std::uint64_t free_tensor_memory(c10::Device device) {
  const Backend& backend = backend_of(device);
  const int index = device.has_index() ? device.index() : 0;
  const std::uint64_t free = backend.driver_memory(index).free_bytes;
  if (device.is_cpu()) return free;
  const Backend::MemoryCounters ours = backend.memory(index);
  return free + ours.reserved_bytes - std::min(ours.reserved_bytes, ours.allocated_bytes);
}

void release_cached_memory(c10::Device device) {
  if (device.is_cpu()) {
    malloc_trim(0);
  } else {
    backend_of(device).release_cached(device.has_index() ? device.index() : 0);
  }
}

void limit_tensor_memory(std::uint64_t bytes) noexcept { limit.store(bytes, std::memory_order_relaxed); }

std::uint64_t tensor_memory_limit() noexcept { return limit.load(std::memory_order_relaxed); }

void limit_resident_memory(std::uint64_t bytes) noexcept { resident_limit.store(bytes, std::memory_order_relaxed); }

std::uint64_t resident_memory_limit() noexcept { return resident_limit.load(std::memory_order_relaxed); }

}  // namespace millrace::device
