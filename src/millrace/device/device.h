// Chooses the device for a run, and gives access to the devices through one interface. The rest of the code does not depend on
// CUDA.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "millrace/device/backend.h"
#include "millrace/device/free_memory.h"

namespace millrace::device {

// The CPU backend, always present.
Backend& cpu();
// The CUDA plugin's backend. The first call opens the plugin from the program's folder, its lib/, or ../lib next to it. Returns
// null if the plugin, the driver or the GPU is missing; `reason` says which.
Backend* cuda(std::string* reason = nullptr);
Backend& backend_of(c10::Device device);  // throws DeviceError if the backend is missing
// The properties of the device. A kind of device without a backend, such as meta, has the default properties. Throws
// DeviceError if the device's backend is missing.
[[nodiscard]] Backend::Nature nature_of(c10::Device device);

struct Choice {
  c10::Device device = c10::Device(c10::kCPU);
  std::string reason;   // why this device was chosen, in one line for the plan
  std::string warning;  // for example: a GPU is present but this LibTorch is CPU-only; "" = no warning
};
// Chooses the device for `wish`: "auto", "cpu", "cuda" (this rank's GPU) or "cuda:1". For any other text, throws ConfigError,
// which lists the available devices.
[[nodiscard]] Choice choose(const std::string& wish, int local_rank = 0);

// Number of calls of Backend::memory() since start. Tests check that it stays zero between log lines.
[[nodiscard]] std::uint64_t memory_queries() noexcept;

// The CPU's features that MILLRACE_CPU permits (system/instructions.h), read once.
struct Cpu {
  std::string name;
  int physical_cores = 1;  // cores that this process may use
  int logical_cores = 1;
  bool avx2 = false, avx512 = false, avx512_bf16 = false, amx_bf16 = false;
  std::int64_t level2_bytes = 0;  // size of a core's level 2 cache; 0 if the CPU does not report it
  std::string capability;         // the instruction set that ATen uses: "DEFAULT", "AVX2", "AVX512"
};
[[nodiscard]] const Cpu& cpu_info();

[[nodiscard]] std::uint64_t peak_resident_bytes();  // peak of this process's bytes in memory since its start
[[nodiscard]] std::uint64_t resident_bytes();
// Bytes that this process has in memory now. Pages of files do not count, because the system can drop them.
[[nodiscard]] std::uint64_t private_resident_bytes();

// Implements the switch "keep_memory" (train/recipe/switchboard.h): glibc's malloc keeps freed memory instead of returning it
// page by page. Without this, 456,000 page faults per step were measured. Call it before the first large allocation.
void keep_freed_memory() noexcept;

// Creates ATen's and OpenMP's intra-op threads. Call it before any computation, because it also installs the workarounds for
// known faults of the libraries (device/convolution_guard.h). Throws ConfigError for more than most_threads() threads, and
// DeviceError if the system refuses the threads (device/preflight.h).
void set_threads(int intra_op);

}  // namespace millrace::device
