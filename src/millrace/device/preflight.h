// Limits that crash libraries below LibTorch, checked in advance: when address space runs out, oneDNN's code generator crashes;
// if a thread can't be created, LibTorch's pools hang or end the process.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::device {

// Most intra-op threads that a run may request on this machine: far beyond its CPUs threads only wait for each other.
[[nodiscard]] int most_threads();

// Creates this many threads at once and ends them; all are gone from the system's count when it returns. DeviceError names the
// limits if one can't be created.
void require_threads(int count);

// Address space to reserve for libraries if `ulimit -v` limits it.
[[nodiscard]] std::uint64_t library_address_space(int threads) noexcept;

// Checks whether `ulimit -v` leaves enough for this many intra-op threads; without that limit it does nothing. From then on
// tensors and the loader leave library_address_space() free (system/process_limits.h). Call it before the process creates
// threads: it also limits the memory they reserve. DeviceError if there is too little.
void guard_address_space(int threads);

// For a helper process that may be lost: when memory runs out, the system ends it before others, and tensors that would bring it
// beyond nine tenths of the present free memory throw c10::OutOfMemoryError. Call it before the process makes tensors.
void stand_back_for_memory();

// Describe, for messages, the process's memory with the limits in force and the free memory, and the limits on threads.
[[nodiscard]] std::string memory_account();
[[nodiscard]] std::string thread_account();

}  // namespace millrace::device
