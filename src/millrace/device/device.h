// The device that a run uses, behind one interface: nothing else in the tree knows CUDA.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "millrace/device/backend.h"
#include "millrace/device/free_memory.h"

namespace millrace::device {

// The CPU backend, always present.
Backend& cpu();
// The CUDA plugin's backend, opened on first call from the program's folder, its lib/, or ../lib next to it; null if there is no
// plugin, no driver or no GPU (`reason` says which).
Backend* cuda(std::string* reason = nullptr);
Backend& backend_of(c10::Device device);  // DeviceError if it is missing
// Guaranteed properties: the minimum for a kind of device without a backend (meta). DeviceError if its backend is missing.
[[nodiscard]] Backend::Nature nature_of(c10::Device device);

struct Choice {
  c10::Device device = c10::Device(c10::kCPU);
  std::string reason;   // one line for the plan
  std::string warning;  // e.g. a GPU is present but this LibTorch is CPU-only; empty = no warning
};
// "auto", "cpu", "cuda" (this rank's GPU), "cuda:1"; ConfigError with the available devices for any other text.
[[nodiscard]] Choice choose(const std::string& wish, int local_rank = 0);

// How often Backend::memory was called since start: tests pin it to zero between log lines.
[[nodiscard]] std::uint64_t memory_queries() noexcept;

// The CPU's features that MILLRACE_CPU permits (system/instructions.h), read once.
struct Cpu {
  std::string name;
  int physical_cores = 1;  // cores that this process may use
  int logical_cores = 1;
  bool avx2 = false, avx512 = false, avx512_bf16 = false, amx_bf16 = false;
  std::int64_t level2_bytes = 0;  // size of a core's level 2 cache; 0: the CPU does not report it
  std::string capability;         // the level that ATen uses: "DEFAULT", "AVX2", "AVX512"
};
[[nodiscard]] const Cpu& cpu_info();

[[nodiscard]] std::uint64_t peak_resident_bytes();  // of this process
[[nodiscard]] std::uint64_t resident_bytes();
[[nodiscard]] std::uint64_t private_resident_bytes();  // without pages of files, which the system can drop

// Switchboard row "keep_memory": makes glibc's malloc keep freed memory instead of returning it page by page (without it, 456,000
// page faults a step were measured). Must run before the first large allocation.
void keep_freed_memory() noexcept;

// Creates ATen's and OpenMP's intra-op threads. Call it before any computation: from here on known faults of the libraries are
// worked around (device/convolution_guard.h). ConfigError for more than most_threads(), DeviceError if the system refuses them
// (device/preflight.h).
void set_threads(int intra_op);

}  // namespace millrace::device
