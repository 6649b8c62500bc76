// Moves a run, or its later part, aside inside its folder, so that nothing is lost when the folder is used again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "millrace/base/fs.h"
#include "millrace/train/run_folder/run_record.h"

namespace millrace {

// For --fresh: moves the files of `record` and the snapshots to a new folder, record.old_run; files that are not Millrace's stay,
// and so do branches. After a crash at any call, record.replacement says whether restore_old_run() or drop_old_run() must follow.
// Files that the user put into the new folder meanwhile stay there. FsError.
void archive_old_run(Fs& fs, const std::filesystem::path& run, RunRecord& record);
// Moves the old run back, and removes the files of the new run.
void restore_old_run(Fs& fs, const std::filesystem::path& run, RunRecord& record);
void drop_old_run(Fs& fs, const std::filesystem::path& run, RunRecord& record);

// Moves snapshots of steps after `step`, and the pictures of such steps, to <run>/branches/<name of the last snapshot>. Adds the
// summary about them and copies of config, plan and history, which make it a run folder. Returns that folder; "" if there are no
// such snapshots.
std::filesystem::path archive_branch(Fs& fs, const std::filesystem::path& run, RunRecord& record, std::int64_t step);
void restore_branch(Fs& fs, const std::filesystem::path& run, RunRecord& record, const std::filesystem::path& branch);

}  // namespace millrace
