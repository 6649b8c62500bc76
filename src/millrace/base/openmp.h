// How OpenMP's threads wait for work. They are LibTorch's, oneDNN's and MKL's threads too.
//
// By default they spin for milliseconds before they sleep. Alone on a machine that saves little; where another program has a
// core, each parallel loop then waits for a thread that has no core while the others burn theirs: a step of 5 ms takes 300. So
// threads sleep at once (OMP_WAIT_POLICY=passive) unless the environment says otherwise. libgomp reads its environment once, when
// it is loaded: the choice is made before.
#pragma once

#include <string>

namespace millrace {

// Whether OMP_WAIT_POLICY or GOMP_SPINCOUNT is in a list of "NAME=VALUE" that ends with null. Allocates nothing.
[[nodiscard]] bool says_how_openmp_waits(const char* const* environment) noexcept;
inline constexpr const char* kOpenmpSleeps = "OMP_WAIT_POLICY=passive";
// How this process's threads wait, by its environment: "asleep while they wait", or what says otherwise. For plans.
[[nodiscard]] std::string openmp_waits();

}  // namespace millrace
