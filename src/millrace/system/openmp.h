// How the threads of OpenMP wait for work. LibTorch, oneDNN and MKL use these threads too.
//
// By default the threads spin for milliseconds before they sleep. On an idle machine that costs nothing. But if another program
// uses a core, each parallel loop waits for a thread that has no core while the other threads spin: a step of 8 ms takes 200
// ms. Threads that sleep at once must be woken for each loop. The same step then takes 13 ms. On a virtual machine, where
// waking is expensive, a step of 42 ms takes 63 ms. Therefore Millrace's threads spin for some tenths of a millisecond and then
// sleep. While other programs want the cores, they sleep at once (device/shared_cores.h). The environment can set other waits;
// docs/decisions/0037 has the figures. The choice is made before libgomp is loaded, because libgomp reads its environment once,
// at that time.
#pragma once

#include <string>

namespace millrace {

// Returns true if `environment`, a list of "NAME=VALUE" that ends with null, contains OMP_WAIT_POLICY or GOMP_SPINCOUNT.
// Allocates nothing.
[[nodiscard]] bool configures_openmp_waits(const char* const* environment) noexcept;
inline constexpr const char* kOpenmpWaits = "GOMP_SPINCOUNT=20000";
// Returns true if this process's environment lets Millrace choose how OpenMP's threads wait.
[[nodiscard]] bool are_openmp_waits_ours();
// Returns a sentence for plans on how this process's threads wait: "threads spin briefly and then sleep; they sleep at once while
// other programs want the cores", or the environment variable that decides otherwise.
[[nodiscard]] std::string openmp_waits();
// Returns "OMP_NUM_THREADS=1" if that variable, or MKL_NUM_THREADS, differs from `threads`; "" otherwise. Also returns "" if a
// launcher set the variables for its ranks, because then no user asked for them.
[[nodiscard]] std::string other_threads_asked(int threads);

}  // namespace millrace
