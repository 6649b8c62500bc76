// run.json: marks a folder as a run, and lists which of its files are Millrace's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "millrace/base/fs.h"

namespace millrace {

struct RunRecord {
  // Progress of a --fresh start; see RunFolder.
  enum class Replacement : std::uint8_t { none, under_way, complete };

  std::string recipe;
  std::set<std::string> files;  // paths below the run folder that Millrace made or is about to make; it changes no others
  Replacement replacement = Replacement::none;
  std::string old_run;     // folder of the run that is being replaced, below this run folder; "" = no replacement
  std::string started_in;  // the current folder of the last start, where relative paths in config.json start; "" = unknown

  [[nodiscard]] bool owns(const std::string& name) const { return files.contains(name); }
};

// How the run was started, from its log.
struct FirstStart {
  std::string recipe;
  std::string preset;
  std::vector<std::string> command;
};
// Members are empty if the log is missing or lacks them.
[[nodiscard]] FirstStart read_first_start(const std::filesystem::path& run_folder);

// The record of a run folder. For a run of an early Millrace, which wrote no record, it lists the files with a run's names.
// nullopt if there is no run, or if run.json is not Millrace's.
[[nodiscard]] std::optional<RunRecord> read_record(Fs& fs, const std::filesystem::path& run_folder);
void write_record(Fs& fs, const std::filesystem::path& run_folder, const RunRecord& record);  // FsError

// Name of the recipe of a run, from run.json, else its summary, else its log; "" if all lack it. Never throws because of their
// contents.
[[nodiscard]] std::string recipe_of_run(Fs& fs, const std::filesystem::path& run);

}  // namespace millrace
