// Sample data of a preset: a folder that appears whole, by one rename, however many processes want it and whenever one is killed.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "millrace/base/fs.h"

namespace millrace {

// True when `target` exists and is no empty folder.
[[nodiscard]] bool has_sample_data(Fs& fs, const std::filesystem::path& target);

struct SampleDataMaker {
  std::function<void(const std::filesystem::path& folder)> make;  // fills an existing empty folder
  std::function<void()> begin;                                    // before make(); may be null
  std::function<void(const std::string&)> tell;                   // that another process is waited for; may be null
};

// Makes `target`, which is missing or an empty folder. Processes that want the same one take turns on the folder
// .NAME.millrace-part beside it: who comes later waits and says so. What a killed process left there is cleared, and nothing
// stays after an error. False when another process had made `target` by then. Throws what make() throws, FsError, and DataError
// when something that is not ours has the name of the part folder, or `target` is a folder that can't be replaced.
bool make_sample_data(Fs& fs, const std::filesystem::path& target, const SampleDataMaker& maker);

}  // namespace millrace
