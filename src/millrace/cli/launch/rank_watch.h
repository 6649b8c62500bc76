// Runs the ranks of this machine as child processes: starts them, watches them, and ends all of them.
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

inline constexpr int kTargetsMissed = 4;  // exit code of a finished rank; train --strict

struct RankStart {
  std::vector<std::string> words;  // the program's arguments
  std::vector<Ranks> ranks;        // the ranks of this machine
  std::string host;                // host of the meeting point
  int port = 0;
  int attempt = 0;
  int most_restarts = 0;
  std::filesystem::path logs;           // an existing folder
  bool plain_out = false;               // see RankOutput
  std::vector<std::vector<int>> cores;  // CPUs of each rank; empty = the system chooses
  double hang_limit_s = 0;              // 0 = never
};

// The outcome of all ranks.
struct RanksEnd {
  int exit_code = 0;
  std::string failure;  // "rank 1 was killed by SIGKILL, step 12, forward"; "" = none
  std::string cause;    // first line of its error; "" = none
  std::filesystem::path log;
  std::string run_folder;  // run folder of rank 0, if known
};

// Runs /proc/self/exe once per rank and returns when all have ended. Signals to this process are forwarded. If a rank fails, is
// frozen, or does not move for the limit while others wait, all others are ended within two seconds; the log of a run that has
// begun records the rank. `elsewhere`: called five times a second; returns the text of a failure on another machine.
RanksEnd run_ranks(const RankStart& start, distributed::StatusPages& pages,
                   const std::function<std::optional<std::string>()>& elsewhere);

}  // namespace millrace::cli
