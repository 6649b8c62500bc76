// Shares out the cores of a machine among its ranks.
#pragma once

#include <vector>

namespace millrace::cli {

struct LogicalCpu {
  int number = 0;
  int package = 0;  // number of the socket
  int core = 0;     // number of the core in its die; CPUs with the same core are its hardware threads
  int die = 0;      // number of the die in its package
};

// The CPUs that this process may run on.
[[nodiscard]] std::vector<LogicalCpu> usable_cpus();

// For each of `ranks` ranks, the numbers of its CPUs. Each rank gets the same number of whole cores, which are neighbours on a
// socket. Empty if there are fewer cores than ranks; then ranks are not bound to cores.
[[nodiscard]] std::vector<std::vector<int>> core_slices(std::vector<LogicalCpu> cpus, int ranks);

}  // namespace millrace::cli
