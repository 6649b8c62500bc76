// Divides the cores of a machine among its ranks.
#pragma once

#include <vector>

namespace millrace::cli {

struct LogicalCpu {
  int number = 0;
  int package = 0;  // number of the socket
  int core = 0;     // number within its die; CPUs of one core are its hardware threads
  int die = 0;      // number within its package
};

// The CPUs that this process may run on.
[[nodiscard]] std::vector<LogicalCpu> usable_cpus();

// For each of `ranks` ranks, the numbers of its CPUs: whole cores, neighbours on a socket, the same number for each rank. Empty
// if there are fewer cores than ranks; then ranks are not bound.
[[nodiscard]] std::vector<std::vector<int>> core_slices(std::vector<LogicalCpu> cpus, int ranks);

}  // namespace millrace::cli
