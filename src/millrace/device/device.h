// The device a run uses, behind one interface: nothing else in the tree knows CUDA.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "millrace/device/backend.h"
#include "millrace/device/free_memory.h"

namespace millrace::device {

// CPU backend, always there.
Backend& cpu();
// The CUDA plugin's backend, opened on first call from the program's folder, lib/ in it or ../lib beside it; null when there is
// no plugin, no driver or no GPU (`reason` says which).
Backend* cuda(std::string* reason = nullptr);
Backend& backend_of(c10::Device device);  // DeviceError when there is none
// What can be counted on: the least where nobody drives the kind of device (meta). DeviceError where its backend is missing.
[[nodiscard]] Nature nature_of(c10::Device device);

struct Choice {
  c10::Device device = c10::Device(c10::kCPU);
  std::string reason;   // one line for the plan
  std::string warning;  // e.g. a GPU is there but this LibTorch is CPU-only; empty = none
};
// "auto", "cpu", "cuda" (this rank's GPU), "cuda:1"; ConfigError with the devices there are for anything else.
[[nodiscard]] Choice choose(const std::string& wish, int local_rank = 0);

// How often Backend::memory was called since start: tests pin it to zero between log lines.
[[nodiscard]] std::uint64_t memory_queries() noexcept;

// What this CPU can do and MILLRACE_CPU leaves (system/instructions.h), read once.
struct Cpu {
  std::string name;
  int physical_cores = 1;  // that this process may use
  int logical_cores = 1;
  bool avx2 = false, avx512 = false, avx512_bf16 = false, amx_bf16 = false;
  std::int64_t level2_bytes = 0;  // of a core's cache; 0: the CPU does not say it
  std::string capability;         // what ATen uses: "DEFAULT", "AVX2", "AVX512"
};
[[nodiscard]] const Cpu& cpu_info();

[[nodiscard]] std::uint64_t peak_resident_bytes();  // of this process
[[nodiscard]] std::uint64_t resident_bytes();
[[nodiscard]] std::uint64_t private_resident_bytes();  // without pages of files, which the system can drop

// Switchboard row "keep_memory": make glibc's malloc keep freed memory instead of returning it page by page (456,000 page
// faults a step were measured without it). Must run before the first large allocation.
void keep_freed_memory() noexcept;

// ATen's and OpenMP's intra-op threads, made here. ConfigError for more than most_threads(), DeviceError where the system does
// not allow them (device/limits.h). Call it before anything is computed: from here on known faults of the libraries are gone
// around (device/convolution_guard.h).
void set_threads(int intra_op);

}  // namespace millrace::device
