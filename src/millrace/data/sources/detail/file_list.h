// The files of a data set.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace millrace::data::detail {

// "4 files". DataError when one can't be opened, or there are none (`what` says of what: "volumes").
[[nodiscard]] std::string count_of_files(std::span<const std::filesystem::path> files, const std::string& what);

}  // namespace millrace::data::detail
