#include "millrace/train/run_folder/detail/archive.h"

#include <algorithm>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/snapshot/keeper.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/run_folder/run_files.h"

namespace millrace {
namespace {

namespace stdfs = std::filesystem;

bool is_occupied(const stdfs::path& path) {
  std::error_code code;
  return stdfs::exists(stdfs::symlink_status(path, code));
}

// Returns `wish` or, if that name is in use, the first free name of `wish`-2, `wish`-3 …
stdfs::path free_name(const stdfs::path& wish) {
  stdfs::path path = wish;
  for (int i = 2; is_occupied(path); ++i) path = wish.string() + "-" + std::to_string(i);
  return path;
}

// Moves one file. Folders are not moved whole, so files of the user stay where they are, also at the destination.
void move_file(Fs& fs, const stdfs::path& from, const stdfs::path& to) {
  if (!is_occupied(from)) return;
  fs.create_directories(to.parent_path());
  fs.rename(from, free_name(to));
}

// Millrace's snapshots of steps after `after`, also snapshots to which the user added files. A damaged snapshot is left out,
// because another program may have written it.
std::vector<snapshot::Found> snapshots_after(Fs& fs, const stdfs::path& run, std::int64_t after) {
  std::vector<snapshot::Found> found = snapshot::list(fs, run);
  std::erase_if(found, [&](const snapshot::Found& each) { return each.step <= after || snapshot::files_of(fs, each).empty(); });
  return found;
}

void move_snapshots(Fs& fs, const stdfs::path& from, const stdfs::path& to, std::int64_t after) {
  const std::vector<snapshot::Found> found = snapshots_after(fs, from, after);
  if (found.empty()) return;
  fs.create_directories(to / run_files::kSnapshots);
  for (const snapshot::Found& each : found) {
    const stdfs::path place = snapshot::free_place(to, each.step);
    if (snapshot::is_ours(fs, each)) {
      fs.rename(each.path, place);
      continue;
    }
    fs.create_directories(place);
    for (const std::string& name : snapshot::files_of(fs, each)) fs.rename(each.path / name, place / name);
    fs.sync_directory(place);
  }
  fs.sync_directory(to / run_files::kSnapshots);
  fs.sync_directory(from / run_files::kSnapshots);
}

// The files of a run's record that are moved with the run. The lock and the record itself stay in the folder; folders are left
// out.
std::vector<std::string> movable(const RunRecord& record) {
  std::vector<std::string> names;
  for (const std::string& name : record.files) {
    const bool stays = name == run_files::kLock || name == run_files::kRun || name == run_files::kSnapshots ||
                       name == run_files::kPictures || name == run_files::kProfile || name.starts_with(run_files::kBranches);
    if (!stays) names.push_back(name);
  }
  return names;
}

// Copies a file that both branches of a run need.
void copy_file(Fs& fs, const stdfs::path& from, const stdfs::path& to, const char* name, RunRecord& copied) {
  if (!fs.exists(from / name)) return;
  write_atomically(fs, to / name, fs.read_file(from / name));
  copied.files.insert(name);
}

constexpr std::int64_t kAll = -1;

std::vector<std::string> pictures_after(const RunRecord& record, std::int64_t step) {
  std::vector<std::string> names;
  for (const std::string& name : record.files) {
    if (run_files::step_of_picture(name) > step) names.push_back(name);
  }
  return names;
}

// Removes Millrace's files from an archived run, its record last, and then the folders that became empty.
void remove_set_aside(Fs& fs, const stdfs::path& folder) {
  if (const auto record = read_record(fs, folder)) {
    for (const std::string& name : movable(*record)) fs.remove_all(folder / name);
    for (const snapshot::Found& each : snapshots_after(fs, folder, kAll)) {
      if (snapshot::is_ours(fs, each)) fs.remove_all(each.path);
    }
    fs.remove_all(folder / run_files::kRun);
  }
  if (fs.exists(folder)) {
    for (const std::string& name : fs.list(folder)) {  // removes what an interrupted write of the record has left
      if (name.starts_with(std::string(run_files::kRun) + ".tmp.")) fs.remove_all(folder / name);
    }
  }
  std::error_code not_empty;
  for (const char* name : {run_files::kSnapshots, run_files::kPictures, run_files::kProfile})
    stdfs::remove(folder / name, not_empty);
  stdfs::remove(folder, not_empty);
}

}  // namespace

void archive_old_run(Fs& fs, const stdfs::path& run, RunRecord& record) {
  const RunRecord before = record;
  const stdfs::path old = free_name(run / run_files::kOldRun);
  record.old_run = old.filename().string();
  record.replacement = RunRecord::Replacement::under_way;  // from here on the old run's files may be in either folder
  write_record(fs, run, record);
  fs.create_directories(old);
  write_record(fs, old, before);
  for (const std::string& name : movable(before)) move_file(fs, run / name, old / name);
  move_snapshots(fs, run, old, kAll);
  for (const char* folder : run_files::kFileFolders) {
    const std::string prefix = std::string(folder) + "/";
    std::error_code not_empty;
    if (std::ranges::any_of(before.files, [&](const std::string& name) { return name.starts_with(prefix); }))
      stdfs::remove(run / folder, not_empty);
  }
  fs.sync_directory(old);
  fs.sync_directory(run);
  std::erase_if(record.files,
                [](const std::string& name) { return !name.starts_with(run_files::kBranches) && name != run_files::kLock; });
  record.replacement = RunRecord::Replacement::complete;
  write_record(fs, run, record);
}

void restore_old_run(Fs& fs, const stdfs::path& run, RunRecord& record) {
  const stdfs::path old = run / record.old_run;
  // without a record, nothing has been moved yet, or all files are back
  if (std::optional<RunRecord> before = read_record(fs, old)) {
    if (record.replacement == RunRecord::Replacement::complete) {
      for (const std::string& name : movable(record)) fs.remove_all(run / name);
      record.replacement = RunRecord::Replacement::under_way;
      write_record(fs, run, record);
    }
    for (const std::string& name : movable(*before)) move_file(fs, old / name, run / name);
    move_snapshots(fs, old, run, kAll);
    record.files = std::move(before->files);
    record.recipe = before->recipe;
    record.started_in = before->started_in;
    fs.sync_directory(run);
    write_record(fs, run, record);
  }
  drop_old_run(fs, run, record);
}

void drop_old_run(Fs& fs, const stdfs::path& run, RunRecord& record) {
  remove_set_aside(fs, run / record.old_run);
  record.old_run.clear();
  record.replacement = RunRecord::Replacement::none;
  write_record(fs, run, record);
}

stdfs::path archive_branch(Fs& fs, const stdfs::path& run, RunRecord& record, std::int64_t step) {
  const std::vector<snapshot::Found> later = snapshots_after(fs, run, step);
  if (later.empty()) return {};
  const stdfs::path branches = run / run_files::kBranches;
  const std::string newest = later.back().path.filename().string();
  stdfs::path branch = free_name(branches / newest);
  fs.create_directories(branch);
  record.files.insert((stdfs::path(run_files::kBranches) / branch.filename()).string());
  write_record(fs, run, record);

  RunRecord own;
  own.recipe = record.recipe;
  own.started_in = record.started_in;
  own.files = {run_files::kLock, run_files::kRun, run_files::kSnapshots};
  for (const char* name : {run_files::kConfig, run_files::kPlan, run_files::kHistory}) copy_file(fs, run, branch, name, own);
  const stdfs::path summary = run / run_files::kSummary;
  const Json notices = fs.exists(summary) ? Json::parse(fs.read_file(summary), nullptr, /*allow_exceptions=*/false) : Json();
  const bool moves_summary = notices.is_object() && notices.value("steps", Json()).is_number() && notices["steps"] > step;
  if (moves_summary) own.files.insert(run_files::kSummary);
  const std::vector<std::string> pictures = pictures_after(record, step);
  own.files.insert(pictures.begin(), pictures.end());
  write_record(fs, branch, own);
  if (moves_summary)
    // the summary is moved first, because a run without a summary does not count as finished
    move_file(fs, summary, branch / run_files::kSummary);
  move_snapshots(fs, run, branch, step);
  for (const std::string& name : pictures) {
    move_file(fs, run / name, branch / name);
    record.files.erase(name);
  }
  fs.sync_directory(run);
  write_record(fs, run, record);
  return branch;
}

void restore_branch(Fs& fs, const stdfs::path& run, RunRecord& record, const stdfs::path& branch) {
  move_snapshots(fs, branch, run, kAll);
  move_file(fs, branch / run_files::kSummary, run / run_files::kSummary);
  if (const auto moved = read_record(fs, branch)) {
    for (const std::string& name : pictures_after(*moved, kAll)) {
      move_file(fs, branch / name, run / name);
      record.files.insert(name);
    }
  }
  fs.sync_directory(run);
  remove_set_aside(fs, branch);
  record.files.erase((stdfs::path(run_files::kBranches) / branch.filename()).string());
  write_record(fs, run, record);
}

}  // namespace millrace
