// Runs the ranks of this machine as child processes: starts them, watches them, and ends all of them together.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/cli/launch/detail/rank_output.h"
#include "millrace/core/batch.h"
#include "millrace/distributed/status.h"

namespace millrace::cli {

inline constexpr int kTargetsMissed = 4;  // the exit code of a rank that finished but missed a target of train --strict

struct RankStart {
  std::vector<std::string> words;  // the arguments of the program
  std::vector<Ranks> ranks;        // the ranks of this machine
  std::string host;                // the host at which the ranks meet
  int port = 0;
  int attempt = 0;
  int most_restarts = 0;
  std::filesystem::path logs;           // an existing folder for the logs of the ranks
  bool plain_out = false;               // see RankOutput
  std::vector<std::vector<int>> cores;  // the CPUs of each rank; empty = the system chooses
  double hang_limit_s = 0;              // seconds; 0 = no limit
};

// How the ranks ended, as one result.
struct RanksEnd {
  int exit_code = 0;
  std::string failure;  // such as "rank 1 was killed by SIGKILL, step 12, forward"; "" = no rank failed
  std::string cause;    // the first line of the failed rank's error; "" = it printed no error
  std::filesystem::path log;
  std::string run_folder;  // run folder of rank 0; "" = not known
};

// Runs /proc/self/exe as each rank and returns when all have ended. Passes signals to this process on to the ranks. A rank
// fails if it ends with an error, is frozen for hang_limit_s, or makes no progress for that time although it does not wait for
// other ranks. All other ranks are then ended within two seconds, and the run's log, if there is one, records which rank
// failed. `elsewhere`: called five times a second; returns a text if a rank on another machine has failed.
RanksEnd run_ranks(const RankStart& start, distributed::StatusPages& pages,
                   const std::function<std::optional<std::string>()>& elsewhere);

}  // namespace millrace::cli
