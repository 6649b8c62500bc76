// The device that a run uses, behind one interface. No other code in the tree knows CUDA.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "millrace/device/backend.h"
#include "millrace/device/free_memory.h"

namespace millrace::device {

// The CPU backend, always present.
Backend& cpu();
// The CUDA plugin's backend. The first call opens the plugin from the program's folder, its lib/, or ../lib next to it. Null if
// there is no plugin, driver or GPU; `reason` says which is missing.
Backend* cuda(std::string* reason = nullptr);
Backend& backend_of(c10::Device device);  // DeviceError if it is missing
// Properties on which code may rely. A kind of device without a backend (meta) has the minimum. DeviceError if a device's backend
// is missing.
[[nodiscard]] Backend::Nature nature_of(c10::Device device);

struct Choice {
  c10::Device device = c10::Device(c10::kCPU);
  std::string reason;   // one line for the plan
  std::string warning;  // for example: a GPU is present but this LibTorch is CPU-only; "" = no warning
};
// Chooses the device for `wish`: "auto", "cpu", "cuda" (this rank's GPU) or "cuda:1". ConfigError, with the available devices,
// for any other text.
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

[[nodiscard]] std::uint64_t peak_resident_bytes();  // peak bytes of this process since its start
[[nodiscard]] std::uint64_t resident_bytes();
// Present bytes of this process, without pages of files, which the system can drop.
[[nodiscard]] std::uint64_t private_resident_bytes();

// Switchboard row "keep_memory": glibc's malloc keeps freed memory instead of returning it page by page. Without this, 456,000
// page faults a step were measured. Call it before the first large allocation.
void keep_freed_memory() noexcept;

// Creates ATen's and OpenMP's intra-op threads. Call it before any computation: from here on known faults of the libraries are
// worked around (device/convolution_guard.h). ConfigError for more than most_threads(). DeviceError if the system refuses the
// threads (device/preflight.h).
void set_threads(int intra_op);

}  // namespace millrace::device
