// The folder of a run while a process trains in it. Only this class decides which files in the folder may be written, archived
// or deleted.
//
// Millrace changes only the files that run.json lists as its own. If a user's file has a name that the run needs, Millrace
// refuses the folder before it writes anything.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/config/schema.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/run_folder/run_record.h"

namespace millrace {

struct RunDestination {
  std::filesystem::path folder;
  bool takes_next_name = false;  // true: if the folder exists and holds another run, NAME-2, NAME-3 … are tried
};
// The folder run.dir if it is set, otherwise runs/<recipe>/<name> in the current folder, where <name> is run.name or the date and
// time.
[[nodiscard]] RunDestination destination_of_run(const std::string& recipe, const RunNames& names);

// Belongs to the loop's thread.
class RunFolder {
 public:
  // Creates the folder if it is missing, and locks it. Cleans up if an earlier start with --fresh was killed. Throws UsageError
  // if the folder can't be created or locked, if another process trains in it, if it holds another recipe's run, or if it holds
  // files that do not belong to a run.
  RunFolder(Fs& fs, const RunDestination& place, std::string recipe, bool fresh);
  // If begin() was not called, the folder stays as it was. If begin() was called but saved() was not, the destructor moves back
  // the old run or branch that begin() moved.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const RunRecord& record() const noexcept { return record_; }
  // True if begin() replaces the present files, which belong to an older run.
  [[nodiscard]] bool is_replaced() const noexcept { return is_run_ && fresh_; }
  // A folder for files that are made before the first step and must stay in the run: begin() moves them into the run folder.
  // Created at the first call.
  std::filesystem::path staging();

  // Called before the first step. With --fresh, archives the old run. Otherwise, if `branches_after` is given, moves the
  // snapshots of steps after `branches_after` to a branch. Returns messages for the user. Throws UsageError.
  std::vector<std::string> begin(std::optional<std::int64_t> branches_after);
  [[nodiscard]] bool has_begun() const noexcept { return has_begun_; }
  // The path of a file that the run is about to write. Throws UsageError if the file exists and does not belong to the run.
  std::filesystem::path own(const std::string& name);
  void write(const char* name, const std::string& text);  // Writes the whole file or nothing. Throws FsError, UsageError.
  void remove(const std::string& name);  // Removes a file that the run wrote; does nothing for other files. Throws FsError.
  // Called before a snapshot is written. Makes the run folder again if it was moved or deleted during the run. Returns a message
  // for the user, or "". Throws UsageError, as own() and write() do, if another folder has taken the run folder's place.
  std::string hold();
  void saved();  // called when a snapshot of this process is on the disk: deletes the old run that --fresh replaced

 private:
  class Lock;
  void look_after();
  void keep(const std::string& staged);
  void claim(const RunDestination& place);
  void refuse_what_is_not_ours() const;
  void clear_leftovers();
  void settle_replacement();
  [[nodiscard]] bool has_snapshot() const;

  Fs& fs_;
  const std::string recipe_;
  const bool fresh_;
  std::filesystem::path path_;
  bool made_ = false;  // true: this process made the folder
  std::unique_ptr<Lock> lock_;
  std::set<long> processes_;  // ids of earlier processes that worked in this folder and may have left files behind
  bool is_run_ = false;       // true: the folder held a run before this process started
  RunRecord record_;
  std::filesystem::path staging_;
  std::filesystem::path branch_;
  std::string notice_;
  bool has_begun_ = false;
  bool has_saved_ = false;
  std::map<std::string, std::string> written_;  // file name -> text, to be written again if the folder is recreated
};

// The text of config.json: the resolved values, and the origin of each.
[[nodiscard]] std::string config_text(const config::Resolved& config);
// The config in config.json, with the paths as in the file: relative ones are relative to the folder in the record's started_in.
[[nodiscard]] config::Resolved read_config(Fs& fs, const std::filesystem::path& run_folder);  // throws SnapshotError if the file
                                                                                              // can't be read

// The values of a config that the schema knows: {"dotted.key": value}.
[[nodiscard]] Json known_values(const config::Schema& schema, const Json& values);
// The folders in which a relative path of a run's config.json is looked up, in this order: the current folder, then the folder in
// which the run was last started.
[[nodiscard]] std::vector<std::filesystem::path> folders_of_run(Fs& fs, const std::filesystem::path& run_folder);

// The folder whose snapshots are in use. This is the folder of the old run if a start with --fresh has not saved a snapshot yet,
// otherwise `run_folder`.
[[nodiscard]] std::filesystem::path run_with_snapshots(Fs& fs, const std::filesystem::path& run_folder);
// Throws UsageError if `record`, found in `run_folder`, belongs to another recipe's run.
void refuse_another_recipe(const RunRecord& record, const std::filesystem::path& run_folder, const std::string& recipe);

// The state of a run, from its summary (null = no summary) and the step of its newest snapshot (0 = no snapshot). A run is
// finished when all its steps and the last validation are done. A run that failed or was stopped can resume.
enum class RunState : std::uint8_t { unsaved, stopped, failed, finished };
[[nodiscard]] RunState state_of_run(const Json& summary, std::int64_t newest_step);

// Whether and where a run saves snapshots.
struct SaveDestination {
  bool saves = false;  // true on all ranks if the run saves, although only one rank has a folder
  Fs* fs = nullptr;
  RunFolder* folder = nullptr;       // null: this rank writes nothing
  std::filesystem::path began_from;  // the snapshot from which the run was resumed; "" = a new run
  bool in_background = false;        // true: snapshots are written while training continues; false: training waits for them
};

}  // namespace millrace
