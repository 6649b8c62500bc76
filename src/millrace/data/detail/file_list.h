// The files of a data set.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace millrace::data::detail {

// "4 files". DataError when one can't be opened, or there are none (`what` says of what: "volumes").
[[nodiscard]] std::string count_of_files(std::span<const std::filesystem::path> files, const std::string& what);

// Advises the system that the file will be read soon (posix_fadvise); never fails.
void will_need_file(const std::filesystem::path& path) noexcept;

}  // namespace millrace::data::detail
