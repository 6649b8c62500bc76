// Checks the limits of the system before libraries below LibTorch crash because of them. If address space runs out, oneDNN's
// code generator crashes. If a thread can't be created, LibTorch's pools hang or end the process.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::device {

// The largest number of intra-op threads that a run may request on this machine. Far more threads than CPUs would only wait for
// each other.
[[nodiscard]] int most_threads();

// Tests whether this many threads can exist at once: creates them and ends them. When the call returns, the system no longer
// counts them. Throws DeviceError, which names the limits, if a thread can't be created.
void require_threads(int count);

// Returns how many bytes of address space to reserve for libraries if `ulimit -v` limits it.
[[nodiscard]] std::uint64_t library_address_space(int threads) noexcept;

// Checks whether `ulimit -v` leaves enough address space for this many intra-op threads; does nothing without that limit.
// Afterwards tensors and the loader leave library_address_space() free (system/process_limits.h). Call it before the process
// creates threads, because it also limits the memory that threads reserve. Throws DeviceError if there is too little address
// space.
void guard_address_space(int threads);

// Prepares a helper process that may die without harm to the run. If memory runs out, the system ends the helper before other
// processes. A tensor throws c10::OutOfMemoryError if it would bring the helper above nine tenths of the memory that is free
// now. Call this before the helper makes tensors.
void stand_back_for_memory();

// Texts for messages: memory_account() gives the process's memory, its limits and the free memory; thread_account() gives the
// limits on threads.
[[nodiscard]] std::string memory_account();
[[nodiscard]] std::string thread_account();

}  // namespace millrace::device
