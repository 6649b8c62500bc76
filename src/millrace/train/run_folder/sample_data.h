// Makes the sample data of a preset. The folder appears complete, by one rename, even if several processes make the data at once
// or a process is killed.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "millrace/base/fs.h"

namespace millrace {

// True if `target` exists and is not an empty folder.
[[nodiscard]] bool has_sample_data(Fs& fs, const std::filesystem::path& target);

struct SampleDataMaker {
  std::function<void(const std::filesystem::path& folder)> make;  // fills the folder, which exists and is empty
  std::function<void()> begin;                                    // called before make(); may be null
  std::function<void(const std::string&)> report;                 // called if this process must wait for another one; may be null
};

// Makes `target`, which is missing or an empty folder. Processes that want the same folder take turns in the part folder
// .NAME.millrace-part next to it: a later process waits and reports that it waits. Files that a killed process left in the part
// folder are removed, and nothing remains there after an error. Returns false if another process made `target` meanwhile. Throws
// what make() throws, FsError, and DataError if the part folder's name is taken by something that is not Millrace's or if
// `target` is a folder that can't be replaced.
bool make_sample_data(Fs& fs, const std::filesystem::path& target, const SampleDataMaker& maker);

}  // namespace millrace
