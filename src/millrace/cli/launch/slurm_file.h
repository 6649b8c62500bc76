// The batch file that trains under Slurm: a launcher on each machine, one run folder, and a job that saves before its time is up
// and is queued again.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace millrace::cli {

struct SlurmJob {
  int nproc = 1, nodes = 1;                 // ranks on each machine, machines
  std::vector<std::string> sbatch;          // options of sbatch, such as "--time=8:00:00"; they go over the file's own
  std::vector<std::string> launch_options;  // further words for each launcher
  std::vector<std::string> words;           // the command of each rank: "train", a recipe, ...
};

// The file's text. Without --run among the words the run folder is runs/<recipe>/slurm-<job>. Throws UsageError for words with
// which a job that is queued again would not go on.
[[nodiscard]] std::string slurm_text(const SlurmJob& job);

// Writes the text to a new file. Throws UsageError if there is a file of this name: its owner may have changed it.
void write_slurm_file(const SlurmJob& job, const std::filesystem::path& file);

}  // namespace millrace::cli
