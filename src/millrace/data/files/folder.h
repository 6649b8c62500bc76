// The files of a folder as a data set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::data {

struct FilesFound {
  std::vector<std::filesystem::path> files;
  std::string left_out;  // a line for the user: how many files of the folder are skipped, and the first names; "" if none
};
// The files of `folder` whose names end in one of `endings` (".nii.gz", ".png"; upper case too), sorted by name. A link counts as
// its target. Skipped: hidden names, subfolders, __MACOSX. DataError if the folder can't be read.
[[nodiscard]] FilesFound find_files(const std::filesystem::path& folder, const std::vector<std::string>& endings);
// Returns the same files; DataError also if there is no such file. `told` receives FilesFound::left_out.
[[nodiscard]] std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder,
                                                          const std::vector<std::string>& endings,
                                                          std::vector<std::string>* notices = nullptr);

struct LabelledFiles {
  std::vector<std::filesystem::path> files;
  std::vector<std::int64_t> labels;  // one per file: the number of its class
  std::vector<std::string> classes;  // by number
  std::vector<std::string> notices;  // one line per folder in which files are skipped
};
// Reads a folder that holds one folder per class: photos/cat/*.jpg, photos/dog/*.jpg. Classes are numbered from 0, sorted by
// name. DataError also for fewer than two classes.
[[nodiscard]] LabelledFiles labelled_files_in(const std::filesystem::path& folder,
                                              const std::vector<std::string>& endings = {".png", ".jpg", ".jpeg"});

}  // namespace millrace::data
