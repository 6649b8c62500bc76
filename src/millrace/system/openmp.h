// How OpenMP's threads wait for work. LibTorch, oneDNN and MKL use them too.
//
// By default they spin for milliseconds before they sleep. Alone on a machine that costs nothing; if another program uses a core,
// each parallel loop then waits for a thread that has no core while the others spin on theirs: a step of 8 ms takes 200. Threads
// that sleep at once must be woken for each loop: the same step takes 13, and on a virtual machine, where waking is expensive, a
// step of 42 ms takes 63. So they spin for some tenths of a millisecond and then sleep, or sleep at once while other programs
// want the cores (device/shared_cores.h), unless the environment says otherwise; docs/decisions/0037 has the figures. libgomp
// reads its environment once, when it is loaded: the choice is made before.
#pragma once

#include <string>

namespace millrace {

// Whether OMP_WAIT_POLICY or GOMP_SPINCOUNT is in a list of "NAME=VALUE" that ends with null. Allocates nothing.
[[nodiscard]] bool configures_openmp_waits(const char* const* environment) noexcept;
inline constexpr const char* kOpenmpWaits = "GOMP_SPINCOUNT=20000";
// Whether this process's environment leaves it to Millrace how OpenMP's threads wait.
[[nodiscard]] bool are_openmp_waits_ours();
// How this process's threads wait, by its environment, for plans: "they spin briefly and then sleep; they sleep at once while
// other programs want the cores", or the variable that decides otherwise.
[[nodiscard]] std::string openmp_waits();
// The setting of OMP_NUM_THREADS or MKL_NUM_THREADS if it differs from `threads`: "OMP_NUM_THREADS=1"; "" otherwise. Also "" if a
// launcher set them for its ranks, since then no user asked.
[[nodiscard]] std::string other_threads_asked(int threads);

}  // namespace millrace
