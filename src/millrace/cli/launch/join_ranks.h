// Joins this process with the other ranks of its run, if a launcher started several.
#pragma once

#include <memory>

#include "millrace/distributed/processes.h"
#include "millrace/distributed/status.h"
#include "millrace/train/recipe/config.h"

namespace millrace::cli {

struct Joined {
  std::unique_ptr<distributed::StatusWriter> status;  // never null
  std::unique_ptr<distributed::Processes> processes;  // null: one process
};

[[nodiscard]] bool is_other_rank();  // from the environment: true for a rank other than 0
// Returns when all ranks have joined. DistributedError: see distributed::Processes.
[[nodiscard]] Joined join_ranks(const DistributedConfig& config);

}  // namespace millrace::cli
