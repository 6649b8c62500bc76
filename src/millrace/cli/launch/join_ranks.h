// If a launcher started several ranks, connects this process with the others.
#pragma once

#include <memory>

#include "millrace/distributed/processes.h"
#include "millrace/distributed/status.h"
#include "millrace/train/recipe/config.h"

namespace millrace::cli {

struct Joined {
  std::unique_ptr<distributed::StatusWriter> status;  // never null
  std::unique_ptr<distributed::Processes> processes;  // null: the run has only this process
};

[[nodiscard]] bool is_other_rank();  // from the environment: true if this process is a rank other than 0
// Joins the other ranks, and returns when all have joined. Throws DistributedError: see distributed::Processes.
[[nodiscard]] Joined join_ranks(const DistributedConfig& config);
// Tells the launcher that this rank has finished its work, such as a dry run, without joining the other ranks. Otherwise the
// launcher would treat the end of this process as a failure.
void end_without_joining();

}  // namespace millrace::cli
