// Writes the batch file for training under Slurm. The job starts a launcher on each machine, with the same run folder. Before
// the job's time limit, the run saves and the job is queued again.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace millrace::cli {

struct SlurmJob {
  int nproc = 1, nodes = 1;                 // nproc: ranks on each machine; nodes: number of machines
  std::vector<std::string> sbatch;          // options of sbatch, such as "--time=8:00:00"; they override the file's own options
  std::vector<std::string> launch_options;  // further words for each launcher
  std::vector<std::string> words;           // the command of each rank: "train", a recipe, ...
};

// Returns the text of the file. If the words have no --run, the run folder is runs/<recipe>/slurm-<job>. Throws UsageError for
// words that don't start a training run, and for words that make the job begin anew each time it is queued again.
[[nodiscard]] std::string slurm_text(const SlurmJob& job);

// Writes the text to a new file. Throws UsageError if the file exists, because its owner may have edited it.
void write_slurm_file(const SlurmJob& job, const std::filesystem::path& file);

}  // namespace millrace::cli
