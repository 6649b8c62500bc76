// How OpenMP's threads wait for work. They are LibTorch's, oneDNN's and MKL's threads too.
//
// By default they spin for milliseconds before they sleep. Alone on a machine that costs nothing; where another program has a
// core, each parallel loop then waits for a thread that has no core while the others burn theirs: a step of 8 ms takes 200.
// Threads that sleep at once have to be woken for each loop: the same step takes 13, and on a virtual machine, where waking is
// dear, a step of 42 ms takes 63. So they spin for some tenths of a millisecond and then sleep, and sleep at once while others
// want the cores (device/shared_cores.h), unless the environment says otherwise; docs/decisions/0037 has the figures. libgomp
// reads its environment once, when it is loaded: the choice is made before.
#pragma once

#include <string>

namespace millrace {

// Whether OMP_WAIT_POLICY or GOMP_SPINCOUNT is in a list of "NAME=VALUE" that ends with null. Allocates nothing.
[[nodiscard]] bool says_how_openmp_waits(const char* const* environment) noexcept;
inline constexpr const char* kOpenmpWaits = "GOMP_SPINCOUNT=20000";
// Nobody but Millrace, in this process's environment, says how they wait.
[[nodiscard]] bool are_openmp_waits_ours();
// How this process's threads wait, by its environment, for plans: "they spin briefly and then sleep, at once
// while others want the cores", or what says otherwise.
[[nodiscard]] std::string openmp_waits();
// What OMP_NUM_THREADS or MKL_NUM_THREADS asks for where that is another number than `threads`: "OMP_NUM_THREADS=1"; "" where
// they ask for nothing else. A launcher that sets them for its ranks asks for nobody: then "" as well.
[[nodiscard]] std::string other_threads_asked(int threads);

}  // namespace millrace
