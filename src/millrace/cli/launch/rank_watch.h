// The ranks of this machine as child processes: started, watched, and none left behind.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/cli/launch/rank_output.h"
#include "millrace/core/batch.h"
#include "millrace/distributed/status.h"

namespace millrace::cli {

inline constexpr int kTargetsMissed = 4;  // exit code of a rank that came to its end; train --strict

struct RankStart {
  std::vector<std::string> words;  // of the program, without its name
  std::vector<Ranks> ranks;        // of this machine
  std::string host;                // of the meeting point
  int port = 0;
  int attempt = 0;
  int most_restarts = 0;
  std::filesystem::path logs;           // a folder that is there
  bool plain_out = false;               // see RankOutput
  std::vector<std::vector<int>> cores;  // CPUs of each rank; empty = where the system puts them
  double hang_limit_s = 0;              // 0 = never
};

// What became of all of them.
struct RanksEnd {
  int exit_code = 0;
  std::string failure;  // "rank 1 was killed by SIGKILL, step 12, forward"; "" = none
  std::string cause;    // the first line of its error, "" = it said none
  std::filesystem::path log;
  std::string run_folder;  // of rank 0, where it is known
};

// Runs /proc/self/exe once for each rank and returns when all have ended. Signals to this process are handed on. A rank that
// fails takes the others with it within two seconds, as does one that is frozen, or does not move for the limit while others
// wait; the log of a run that has begun keeps which it was. `elsewhere`: asked five times a second for a failure on another
// machine; its text.
RanksEnd run_ranks(const RankStart& start, distributed::StatusPages& pages,
                   const std::function<std::optional<std::string>()>& elsewhere);

}  // namespace millrace::cli
