#include "millrace/cli/launch/slurm_file.h"

#include <algorithm>
#include <csignal>
#include <string_view>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/base/shell_word.h"
#include "millrace/system/signals.h"

namespace millrace::cli {
namespace {

constexpr const char* kSecondsToSave = "180";

bool names(const std::string& word, std::string_view flag) {
  return word == flag || (word.starts_with(flag) && word[flag.size()] == '=');
}

bool any_names(const std::vector<std::string>& words, std::string_view flag) {
  return std::ranges::any_of(words, [&](const std::string& word) { return names(word, flag); });
}

std::string in_shell(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += " " + shell_word(word);
  return text;
}

void check(const SlurmJob& job) {
  if (job.words.size() < 2 || job.words[0] != "train" || job.words[1].starts_with("-"))
    throw UsageError({"the batch file needs a training run that names its recipe", "millrace launch --slurm",
                      "millrace launch --slurm job.sbatch --nproc 4 train RECIPE ..."});
  if (any_names(job.words, "--fresh"))
    throw UsageError({"--fresh would start over each time the job is queued again", "flag --fresh",
                      "leave it out; for a new run give another folder: --run DIR"});
  const std::vector<std::string> never = {"--train.resume", "never"};
  const bool has_never = std::search(job.words.begin(), job.words.end(), never.begin(), never.end()) != job.words.end();
  if (has_never || std::ranges::count(job.words, "--train.resume=never") > 0)
    throw UsageError({"with train.resume=never the run can't resume when the job is queued again", "flag --train.resume",
                      "leave it out; for a new run give another folder: --run DIR"});
  for (const std::string& option : job.sbatch)
    if (!option.starts_with("-") || option.find('\n') != std::string::npos)
      throw UsageError({"\"" + option + "\" is not an option of sbatch", "flag --sbatch",
                        "write --sbatch=--time=8:00:00, once for each option"});
}

// The run folder that the words name; "" = the words name no run folder.
std::string given_folder(const std::vector<std::string>& words) {
  std::string folder;
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (const std::string_view flag : {"--run", "--run.dir"}) {
      if (words[i] == flag && i + 1 < words.size()) folder = words[i + 1];
      if (words[i] != flag && names(words[i], flag)) folder = words[i].substr(flag.size() + 1);
    }
  }
  return folder;
}

std::string head(const SlurmJob& job) {
  std::string text = "#!/bin/bash\n";
  const auto line = [&](const std::string& option) { text += "#SBATCH " + option + "\n"; };
  line("--job-name=" + job.words[1]);
  line("--nodes=" + std::to_string(job.nodes));
  line("--ntasks-per-node=1");
  if (!any_names(job.sbatch, "--cpus-per-task") && !any_names(job.sbatch, "-c")) line("--exclusive");
  line("--requeue");
  line("--open-mode=append");
  line(std::string("--signal=USR1@") + kSecondsToSave);
  for (const std::string& option : job.sbatch) line(option);
  return text;
}

// The words of srun and of the launcher on each machine, up to the command of the ranks.
std::string launchers(const SlurmJob& job) {
  const std::string own = " --nproc " + std::to_string(job.nproc) + in_shell(job.launch_options);
  const std::string srun =
      "srun --ntasks=" + std::to_string(job.nodes) +
      " --kill-on-bad-exit=0 --cpu-bind=none ${SLURM_CPUS_PER_TASK:+--cpus-per-task=\"$SLURM_CPUS_PER_TASK\"} \\\n  ";
  if (job.nodes == 1) return srun + "millrace launch" + own;
  return "machines=($(scontrol show hostnames \"$SLURM_JOB_NODELIST\"))\n" + srun + "bash -c 'exec millrace launch --nodes " +
         std::to_string(job.nodes) +
         " --rank \"$SLURM_NODEID\" --at \"$0\" \"$@\"' \\\n  \"${machines[0]}:$((20000 + SLURM_JOB_ID % 20000))\"" + own;
}

}  // namespace

std::string slurm_text(const SlurmJob& job) {
  check(job);
  const std::string saved = std::to_string(exit_code_for(SIGUSR1));
  const std::string given = given_folder(job.words);
  const std::string folder =
      given.empty() ? shell_word("runs/" + job.words[1] + "/slurm-") + "\"$SLURM_JOB_ID\"" : shell_word(given);
  return head(job) + "\n# " + kSecondsToSave +
         " s before the time is up Slurm signals the launchers: all ranks finish their step, save, and leave with exit code " +
         saved +
         ".\n# The job is then queued again, and continues from there in the same run folder, unless nothing new was saved.\n"
         "newest() { ls " +
         folder + "/snapshots 2>/dev/null | tail -n 1; }\nbefore=$(newest)\n" + launchers(job) + in_shell(job.words) +
         (given.empty() ? " --run " + folder : "") + "\ncode=$?\nif [[ $code == " + saved +
         " && $(newest) == \"$before\" ]]; then\n"
         "  echo 'nothing new was saved in the time of this job, so it is not queued again: ask for more with --time' >&2\n"
         "elif [[ $code == " +
         saved + " ]]; then\n  scontrol requeue \"$SLURM_JOB_ID\"\nfi\nexit $code\n";
}

void write_slurm_file(const SlurmJob& job, const std::filesystem::path& file) {
  const std::string text = slurm_text(job);
  if (std::filesystem::exists(file) || std::filesystem::is_symlink(file))
    throw UsageError({"there is a file " + file.string() + " already", "flag --slurm", "remove it, or give another name"});
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (!std::filesystem::is_directory(folder))
    throw UsageError({"there is no folder " + folder.string(), "flag --slurm", "make it, or name a file in another folder"});
  write_atomically(Fs::real(), file, text);
}

}  // namespace millrace::cli
