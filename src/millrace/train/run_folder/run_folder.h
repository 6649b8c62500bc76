// The folder of a run while a process trains in it: the one owner of the question what in it may be written, set aside or
// deleted.
//
// Millrace touches what run.json names as its own, and nothing else. A folder in which a file of the user's has a name that a run
// needs is refused before anything is written.
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
  bool takes_next_name = false;  // a folder that is there already is another run's: "-2", "-3" … are tried
};
// run.dir, or runs/<recipe>/<run.name, else date-time> below the current folder.
[[nodiscard]] RunDestination destination_of_run(const std::string& recipe, const RunNames& names);

// Belongs to the loop's thread.
class RunFolder {
 public:
  // Makes the folder where there is none, and locks it. UsageError when it can't be made or locked, another process trains in it,
  // it is a run of another recipe, or it holds what is not a run's. What a --fresh start left when it was killed is put in order.
  RunFolder(Fs& fs, const RunDestination& place, std::string recipe, bool fresh);
  // Without begin(): the folder is as it was before. Without saved(): what begin() set aside is put back.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const RunRecord& record() const noexcept { return record_; }
  [[nodiscard]] bool is_replaced() const noexcept { return is_run_ && fresh_; }  // by begin(): what is there is the old run's
  // A folder for what is made before the first step and is to stay in the run: begin() moves it there. Made at the first call.
  std::filesystem::path staging();

  // The first step can be taken. With `fresh` the old run is set aside, else a branch is made of the snapshots of steps after
  // `branches_after`, if given. What is to be told of it. UsageError.
  std::vector<std::string> begin(std::optional<std::int64_t> branches_after);
  [[nodiscard]] bool has_begun() const noexcept { return has_begun_; }
  // The path of a file that the run is about to write. UsageError when it is somebody else's.
  std::filesystem::path own(const std::string& name);
  void write(const char* name, const std::string& text);  // whole or not at all. FsError, UsageError
  void remove(const std::string& name);                   // a file that the run wrote; others stay. FsError
  // Before a snapshot is written: a folder that was moved or deleted meanwhile is made anew. What is to be told of it, or "".
  // UsageError, as in own() and write(), when another folder is in its place.
  std::string hold();
  void saved();  // a snapshot of this process is on the disk: the run that it replaces goes

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
  bool made_ = false;  // by this process
  std::unique_ptr<Lock> lock_;
  std::set<long> processes_;  // that were at work here before and may have left something
  bool is_run_ = false;       // before this process
  RunRecord record_;
  std::filesystem::path staging_;
  std::filesystem::path branch_;
  std::string told_;
  bool has_begun_ = false;
  bool has_saved_ = false;
  std::map<std::string, std::string> written_;  // texts that a folder made anew needs
};

// config.json: the resolved values, and the origin of each.
[[nodiscard]] std::string config_text(const config::Resolved& config);
// As it stands there: a relative path is one of the folder that the record's started_in names.
[[nodiscard]] config::Resolved read_config(Fs& fs, const std::filesystem::path& run_folder);  // SnapshotError when unreadable

// Of a config, what the schema knows: {"dotted.key": value}.
[[nodiscard]] Json known_values(const config::Schema& schema, const Json& values);
// Where a relative path of a run's config.json is looked for, in order: the current folder, then that of the run's last start.
[[nodiscard]] std::vector<std::filesystem::path> folders_of_run(Fs& fs, const std::filesystem::path& run_folder);

// While a --fresh start has not saved yet, what there is is the run that it replaces: that folder, else `run_folder`.
[[nodiscard]] std::filesystem::path run_with_snapshots(Fs& fs, const std::filesystem::path& run_folder);
// UsageError when `record`, found in `run_folder`, is that of another recipe's run.
void refuse_another_recipe(const RunRecord& record, const std::filesystem::path& run_folder, const std::string& recipe);

// How the run in a folder stands, by its summary (null = none) and its newest snapshot (0 = none). Finished: the steps and the
// last validation are done. A run that failed or was stopped there goes on there.
enum class RunState : std::uint8_t { unsaved, stopped, failed, finished };
[[nodiscard]] RunState state_of_run(const Json& summary, std::int64_t newest_step);

// Where a run saves, and whether it does.
struct SaveDestination {
  bool saves = false;  // the run saves: one of its ranks has the folder
  Fs* fs = nullptr;
  RunFolder* folder = nullptr;       // null: this rank writes nothing
  std::filesystem::path began_from;  // the snapshot that the run goes on from; "" = none
  bool in_background = false;        // snapshots are written beside the training; else in the loop's thread
};

}  // namespace millrace
