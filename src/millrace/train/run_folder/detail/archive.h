// Moves a run, or its later part, to a subfolder of its run folder, so that nothing is lost when the folder is used again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "millrace/base/fs.h"
#include "millrace/train/run_folder/run_record.h"

namespace millrace {

// For --fresh: moves the files of `record` and the snapshots to a new folder, which record.old_run names. Branches stay, and so
// do files that are not Millrace's. If the process is killed during the move, record.replacement says whether restore_old_run()
// or drop_old_run() must follow. Files that the user puts into the new folder later stay there. Throws FsError.
void archive_old_run(Fs& fs, const std::filesystem::path& run, RunRecord& record);
// restore_old_run() moves the old run back and removes the files of the new run; drop_old_run() removes the old run's files.
void restore_old_run(Fs& fs, const std::filesystem::path& run, RunRecord& record);
void drop_old_run(Fs& fs, const std::filesystem::path& run, RunRecord& record);

// archive_branch() moves the snapshots and pictures of steps after `step` to <run>/branches/<name of the last snapshot>. It
// makes that folder a run folder by adding a summary and copies of config, plan and history. Returns the folder, or "" if there
// are no such snapshots. restore_branch() moves the snapshots and pictures back.
std::filesystem::path archive_branch(Fs& fs, const std::filesystem::path& run, RunRecord& record, std::int64_t step);
void restore_branch(Fs& fs, const std::filesystem::path& run, RunRecord& record, const std::filesystem::path& branch);

}  // namespace millrace
