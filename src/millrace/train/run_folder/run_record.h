// run.json: what makes a folder a run, and what in it is Millrace's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "millrace/base/fs.h"

namespace millrace {

// A --fresh start on its way; see RunFolder.
enum class Replacement : std::uint8_t { none, under_way, complete };

struct RunRecord {
  std::string recipe;
  std::set<std::string> files;  // paths below the run folder that Millrace made or is about to make; it touches no others
  Replacement replacement = Replacement::none;
  std::string old_run;     // the folder, below this one, of the run that is being replaced; "" = none
  std::string started_in;  // the current folder of the last start: relative paths in config.json are of it; "" = unknown

  [[nodiscard]] bool owns(const std::string& name) const { return files.contains(name); }
};

// How the run was begun, as its log tells.
struct FirstStart {
  std::string recipe;
  std::string preset;
  std::vector<std::string> command;
};
// Without values where the log is missing or tells none.
[[nodiscard]] FirstStart read_first_start(const std::filesystem::path& run_folder);

// The record of a run folder; of a run of a Millrace that kept none, what it wrote by its names. nullopt: there is no run, or
// run.json is somebody else's.
[[nodiscard]] std::optional<RunRecord> read_record(Fs& fs, const std::filesystem::path& run_folder);
void write_record(Fs& fs, const std::filesystem::path& run_folder, const RunRecord& record);  // FsError

// Name of the recipe a run is of, as run.json says, else its summary, else its log; "" when none of them tells. Never throws over
// what they hold.
[[nodiscard]] std::string recipe_of_run(Fs& fs, const std::filesystem::path& run);

}  // namespace millrace
