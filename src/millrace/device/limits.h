// Limits that libraries below LibTorch do not survive, seen to before they meet them: where address space ends, oneDNN's code
// generator crashes; where a thread can't be made, LibTorch's pools hang or end the process.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::device {

// Most intra-op threads a run may ask for on this machine: far beyond its CPUs threads only wait for each other.
[[nodiscard]] int most_threads();

// Makes as many threads as this at once and ends them; none of them counts any more when it returns. DeviceError names the limits
// when one can't be made.
void require_threads(int count);

// Address space to leave to libraries where `ulimit -v` limits it.
[[nodiscard]] std::uint64_t library_address_space(int threads) noexcept;

// DeviceError when `ulimit -v` leaves too little for this many intra-op threads; nothing without that limit. From then on tensors
// and the loader leave library_address_space() (system/limits.h). Before the process makes threads: it also limits what they
// reserve.
void guard_address_space(int threads);

// For a helper whose end costs little: where memory ends, the system ends this process before others, and tensors that would
// bring it beyond nine tenths of what is free now throw c10::OutOfMemoryError. Before it makes tensors.
void stand_back_for_memory();

// For messages: what the process holds, the limits there are and what is free; which limits there are on threads.
[[nodiscard]] std::string memory_account();
[[nodiscard]] std::string thread_account();

}  // namespace millrace::device
