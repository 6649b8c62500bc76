// The folder of a run while a process trains in it: decides alone what in it may be written, set aside or deleted.
//
// Millrace changes only what run.json lists as its own. A folder in which a user's file has a name that a run needs is refused
// before anything is written.
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
  bool takes_next_name = false;  // if the folder already exists, it is another run's: "-2", "-3" … are tried
};
// run.dir, or runs/<recipe>/<run.name, else date-time> in the current folder.
[[nodiscard]] RunDestination destination_of_run(const std::string& recipe, const RunNames& names);

// Belongs to the loop's thread.
class RunFolder {
 public:
  // Creates the folder if it is missing, and locks it. Cleans up after a --fresh start that was killed. UsageError if the folder
  // can't be created or locked, another process trains in it, it is a run of another recipe, or it holds files that are not a
  // run's.
  RunFolder(Fs& fs, const RunDestination& place, std::string recipe, bool fresh);
  // If begin() was not called, the folder stays as it was; if saved() was not called, what begin() set aside is put back.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const RunRecord& record() const noexcept { return record_; }
  // Whether begin() replaces the present files: they are the old run's.
  [[nodiscard]] bool is_replaced() const noexcept { return is_run_ && fresh_; }
  // A folder for files made before the first step that must stay in the run: begin() moves it there. Created at the first call.
  std::filesystem::path staging();

  // Called before the first step. With `fresh` the old run is set aside, else a branch is made of the snapshots of steps after
  // `branches_after`, if given. Returns messages for the user. UsageError.
  std::vector<std::string> begin(std::optional<std::int64_t> branches_after);
  [[nodiscard]] bool has_begun() const noexcept { return has_begun_; }
  // The path of a file that the run is about to write. UsageError if the file is not the run's.
  std::filesystem::path own(const std::string& name);
  void write(const char* name, const std::string& text);  // writes the whole file or nothing. FsError, UsageError
  void remove(const std::string& name);                   // a file that the run wrote; other files stay. FsError
  // Called before a snapshot is written: recreates a folder that was moved or deleted meanwhile. Returns a message for the user,
  // or "". UsageError, as in own() and write(), if another folder is in its place.
  std::string hold();
  void saved();  // a snapshot of this process is on the disk: the replaced run is deleted

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
  bool made_ = false;  // this process made the folder
  std::unique_ptr<Lock> lock_;
  std::set<long> processes_;  // earlier processes here that may have left files behind
  bool is_run_ = false;       // the folder held a run before this process
  RunRecord record_;
  std::filesystem::path staging_;
  std::filesystem::path branch_;
  std::string notice_;
  bool has_begun_ = false;
  bool has_saved_ = false;
  std::map<std::string, std::string> written_;  // texts that a recreated folder needs
};

// config.json: the resolved values, and the origin of each.
[[nodiscard]] std::string config_text(const config::Resolved& config);
// Paths as in the file: relative ones start at the folder in the record's started_in.
[[nodiscard]] config::Resolved read_config(Fs& fs, const std::filesystem::path& run_folder);  // SnapshotError if unreadable

// The values of a config that the schema knows: {"dotted.key": value}.
[[nodiscard]] Json known_values(const config::Schema& schema, const Json& values);
// The folders in which a relative path of a run's config.json is looked up, in order: the current folder, then the current folder
// of the run's last start.
[[nodiscard]] std::vector<std::filesystem::path> folders_of_run(Fs& fs, const std::filesystem::path& run_folder);

// The folder whose snapshots count: the replaced run's while a --fresh start has not saved yet, else `run_folder`.
[[nodiscard]] std::filesystem::path run_with_snapshots(Fs& fs, const std::filesystem::path& run_folder);
// UsageError if `record`, found in `run_folder`, belongs to another recipe's run.
void refuse_another_recipe(const RunRecord& record, const std::filesystem::path& run_folder, const std::string& recipe);

// The state of the run in a folder, by its summary (null = missing) and its newest snapshot (0 = no snapshot yet). A run is
// finished when its steps and the last validation are done. A run that failed or was stopped can resume there.
enum class RunState : std::uint8_t { unsaved, stopped, failed, finished };
[[nodiscard]] RunState state_of_run(const Json& summary, std::int64_t newest_step);

// Where and whether a run saves.
struct SaveDestination {
  bool saves = false;  // the run saves: one of its ranks has a folder
  Fs* fs = nullptr;
  RunFolder* folder = nullptr;       // null: this rank writes nothing
  std::filesystem::path began_from;  // the snapshot from which the run was resumed; "" = a new run
  bool in_background = false;        // snapshots are written while training continues; else in the loop's thread
};

}  // namespace millrace
