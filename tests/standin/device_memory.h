// The memory of the stand-in's devices. Each device's memory is mapped twice: at the addresses that tensors have, which nobody
// may touch, and at those that kernels compute with. So a touch by the host is seen whoever is inside a kernel meanwhile.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace millrace::standin {

inline constexpr int kDevices = 4;

// LibTorch's allocator for kCUDA, of the thread's current device.
[[nodiscard]] c10::Allocator* device_allocator();
// The same memory, at the addresses that kernels use: what a kernel on the CPU makes for a tensor of a device.
[[nodiscard]] c10::Allocator* kernel_allocator();

// The address at which kernels find what tensors have at `address`, and back. An address of no device stays what it is.
[[nodiscard]] std::byte* for_kernels(const void* address);
[[nodiscard]] std::byte* for_tensors(const void* address);
// The device that owns an address of either kind; -1 for memory of the host.
[[nodiscard]] int device_of(const void* address);
// Makes of a pointer of kernel_allocator()'s one of device_allocator()'s.
[[nodiscard]] c10::DataPtr as_device_pointer(c10::DataPtr pointer);
// "a block of 4096 bytes on cuda:0"
[[nodiscard]] std::string describe(const void* address);

struct Usage {
  std::uint64_t allocated = 0;
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

// Writes garbage that is no number in any format.
void spoil(void* memory, std::size_t bytes);

}  // namespace millrace::standin
