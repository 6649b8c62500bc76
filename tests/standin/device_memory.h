// The memory of the stand-in's devices. Each device's memory is mapped twice: at the addresses of tensors, where every access
// faults, and at the addresses with which kernels compute. So an access by the host is noticed even while another thread is
// inside a kernel.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace millrace::standin {

inline constexpr int kDevices = 4;

// LibTorch's allocator for kCUDA, on the thread's current device.
[[nodiscard]] c10::Allocator* device_allocator();
// The same memory at the kernels' addresses: for tensors that a CPU kernel makes on behalf of a device.
[[nodiscard]] c10::Allocator* kernel_allocator();

// The kernels' address for a tensor's `address`, and back. An address outside all devices is returned unchanged.
[[nodiscard]] std::byte* for_kernels(const void* address);
[[nodiscard]] std::byte* for_tensors(const void* address);
// The device that owns an address of either kind; -1 for memory of the host.
[[nodiscard]] int device_of(const void* address);
// Turns a pointer of kernel_allocator() into one of device_allocator().
[[nodiscard]] c10::DataPtr as_device_pointer(c10::DataPtr pointer);
// "a block of 4096 bytes on cuda:0"
[[nodiscard]] std::string describe(const void* address);

// A block as long as it lives: another one at the same address has another birth.
struct Block {
  std::byte* begin = nullptr;  // the kernels' address; null where there is no block
  std::size_t bytes = 0;
  std::uint64_t birth = 0;
};
[[nodiscard]] Block block_of(const void* address);  // an address of either kind
// Gives the block to no other tensor until let_go(), also where its own is gone.
void keep(const Block& block);
void let_go(const Block& block);

struct Usage {
  std::uint64_t allocated = 0;  // without what is only kept
  std::uint64_t reserved = 0;
  std::uint64_t peak = 0;
  std::uint64_t total = 0;
};
[[nodiscard]] Usage usage(int device);
void reset_peak(int device);

// Page-locked memory of the host.
[[nodiscard]] c10::Allocator* pinned_allocator();
void pin(const void* memory, std::size_t bytes);
void unpin(const void* memory);
[[nodiscard]] bool is_pinned(const void* memory);

// Fills the memory with bytes that are a number in no format.
void spoil(void* memory, std::size_t bytes);

}  // namespace millrace::standin
