// Checks the files of a data set.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace millrace::data::detail {

// Returns a text such as "4 files". Throws DataError if a file can't be opened or the list is empty. `what` names the kind of
// files in the message: "volumes".
[[nodiscard]] std::string count_of_files(std::span<const std::filesystem::path> files, const std::string& what);

}  // namespace millrace::data::detail
