// Sample data of a preset: a folder that appears whole, by one rename, even if several processes want it or a process is killed.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "millrace/base/fs.h"

namespace millrace {

// True if `target` exists and is not an empty folder.
[[nodiscard]] bool has_sample_data(Fs& fs, const std::filesystem::path& target);

struct SampleDataMaker {
  std::function<void(const std::filesystem::path& folder)> make;  // fills an existing empty folder
  std::function<void()> begin;                                    // called before make(); may be null
  std::function<void(const std::string&)> report;                 // called if another process is waited for; may be null
};

// Makes `target`, which is missing or an empty folder. Processes that want the same folder take turns on .NAME.millrace-part next
// to it: a later one waits and says so. Files that a killed process left there are removed, and nothing remains after an error.
// False if another process had made `target` by then. Throws what make() throws, FsError, and DataError if something that is not
// ours has the name of the part folder, or if `target` is a folder that can't be replaced.
bool make_sample_data(Fs& fs, const std::filesystem::path& target, const SampleDataMaker& maker);

}  // namespace millrace
