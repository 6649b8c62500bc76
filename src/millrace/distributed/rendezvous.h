// Finds where the processes of a run meet, from environment variables that their launcher has set.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "millrace/core/batch.h"

namespace millrace::distributed {

// Returns the value of a variable; nullptr = not set. Programs use ::getenv.
using Environment = std::function<const char*(const char* name)>;

struct Rendezvous {
  Ranks ranks;
  std::string launcher;  // "torchrun", "Slurm", "Open MPI", "MPI (PMI)": for messages
  std::string host;      // the store's machine: a name or an address
  int port = 0;
  bool is_served = false;  // the launcher holds the store; else rank 0 does
  int attempt = 0;         // number of times that the launcher has restarted the ranks
};

// Reads the environment in this order: RANK, WORLD_SIZE … (torchrun, millrace launch), OMPI_COMM_WORLD_* (mpirun of Open MPI),
// PMI_* (mpirun of MPICH), SLURM_* (srun). Returns nullopt for a single process: no such variable, a world of one process, or a
// batch script of Slurm outside srun. Throws DistributedError if a variable is missing or not a number; the error names it and
// says what to set.
[[nodiscard]] std::optional<Rendezvous> rendezvous_of(const Environment& environment);

// Returns the first node, "tux1", of Slurm's list of nodes, "tux[1-3,07],login"; "" if the text is not such a list.
[[nodiscard]] std::string first_node(const std::string& list);

}  // namespace millrace::distributed
