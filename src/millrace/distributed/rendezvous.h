// Where the processes of a run meet, as the program that started them says in their environment.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "millrace/core/batch.h"

namespace millrace::distributed {

// Value of a variable; nullptr = not set. ::getenv in programs.
using Environment = std::function<const char*(const char* name)>;

struct Rendezvous {
  Ranks ranks;
  std::string launcher;  // "torchrun", "Slurm", "Open MPI", "MPI (PMI)": for messages
  std::string host;      // machine of the store: a name or an address
  int port = 0;
  bool is_served = false;  // the launcher holds the store; else rank 0 does
  int attempt = 0;         // how often the launcher has started the ranks anew
};

// Read in this order: RANK, WORLD_SIZE … (torchrun, millrace launch), OMPI_COMM_WORLD_* (mpirun of Open MPI), PMI_* (MPICH's),
// SLURM_* (srun). nullopt = one process: none of them, a world of one, or a batch script of Slurm outside of srun.
// DistributedError names the variable that is missing or no number, and what to set.
[[nodiscard]] std::optional<Rendezvous> rendezvous_of(const Environment& environment);

// Slurm's list of nodes, "tux[1-3,07],login": its first node, "tux1". "" for a text that is none.
[[nodiscard]] std::string first_node(const std::string& list);

}  // namespace millrace::distributed
