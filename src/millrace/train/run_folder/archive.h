// Moving a run, or the later part of one, out of the way inside its folder, so that nothing is lost when the folder is used anew.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "millrace/base/fs.h"
#include "millrace/train/run_folder/run_record.h"

namespace millrace {

// --fresh: the files of `record` and the snapshots go to a new folder, record.old_run; what is not Millrace's stays, and so do
// branches. Whatever call is the last before a crash, restore_old_run() or drop_old_run() finds its way by record.replacement.
// What somebody put into that folder meanwhile stays there. FsError.
void archive_old_run(Fs& fs, const std::filesystem::path& run, RunRecord& record);
// Puts it back; what the new run wrote goes.
void restore_old_run(Fs& fs, const std::filesystem::path& run, RunRecord& record);
void drop_old_run(Fs& fs, const std::filesystem::path& run, RunRecord& record);

// Snapshots of steps after `step`, and the pictures of such steps, go to <run>/branches/<name of the last one>, with copies of
// config, plan and history and the summary that tells of them: a run folder of its own. Returns it; "" when there are none.
std::filesystem::path archive_branch(Fs& fs, const std::filesystem::path& run, RunRecord& record, std::int64_t step);
void restore_branch(Fs& fs, const std::filesystem::path& run, RunRecord& record, const std::filesystem::path& branch);

}  // namespace millrace
