// This process among the ranks of its run, where a launcher started it as one of several.
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

[[nodiscard]] bool is_other_rank();  // by the environment: a rank that is not 0
// Returns when all ranks are here. DistributedError: see distributed::Processes.
[[nodiscard]] Joined join_ranks(const DistributedConfig& config);

}  // namespace millrace::cli
