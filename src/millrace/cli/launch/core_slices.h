// The cores of a machine, shared out among the ranks on it.
#pragma once

#include <vector>

namespace millrace::cli {

struct LogicalCpu {
  int number = 0;
  int package = 0;  // socket
  int core = 0;     // within its die; CPUs of one core are its hardware threads
  int die = 0;      // within its package
};

// Those that this process may run on.
[[nodiscard]] std::vector<LogicalCpu> usable_cpus();

// For each of `ranks` the numbers of its CPUs: whole cores, neighbours on a socket, as many for each as there are for the rank
// with the fewest. Empty: there are fewer cores than ranks, and nobody is to be bound.
[[nodiscard]] std::vector<std::vector<int>> core_slices(std::vector<LogicalCpu> cpus, int ranks);

}  // namespace millrace::cli
