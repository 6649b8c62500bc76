// run.json marks a folder as a run and lists which of its files are Millrace's.
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
  // How far a start with --fresh has come in replacing the old run; see RunFolder.
  enum class Replacement : std::uint8_t { none, under_way, complete };

  std::string recipe;
  std::set<std::string> files;  // paths, below the run folder, of files that Millrace made or is about to make; Millrace changes
                                // no other files
  Replacement replacement = Replacement::none;
  std::string old_run;     // folder, below this run folder, of the old run that is being replaced; "" = no replacement
  std::string started_in;  // the current folder of the last start, to which relative paths in config.json are relative; "" =
                           // unknown

  [[nodiscard]] bool owns(const std::string& name) const { return files.contains(name); }
};

// How a run was started for the first time, from its log.
struct FirstStart {
  std::string recipe;
  std::string preset;
  std::vector<std::string> command;
};
// Reads the first "start" line of the log. All members are empty if the log is missing or has no such line; a member that the
// line lacks is empty.
[[nodiscard]] FirstStart read_first_start(const std::filesystem::path& run_folder);

// The record of a run folder. For a run without run.json, the record lists all files that have names of run files. nullopt if the
// folder holds no run, or if run.json is not Millrace's.
[[nodiscard]] std::optional<RunRecord> read_record(Fs& fs, const std::filesystem::path& run_folder);
void write_record(Fs& fs, const std::filesystem::path& run_folder, const RunRecord& record);  // throws FsError

// The name of a run's recipe, from run.json, else from the summary, else from the log. "" if all three lack the name. Does not
// throw for unreadable contents.
[[nodiscard]] std::string recipe_of_run(Fs& fs, const std::filesystem::path& run);

}  // namespace millrace
