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
  std::string left_out;  // a line for the user: the number and the first names of skipped files; "" if no file is skipped
};
// Finds the files of `folder` whose names end in one of `endings` (such as ".nii.gz" or ".png", also in upper case), sorted by
// name. A link counts as its target. Hidden files, subfolders and __MACOSX are skipped. Throws DataError if the folder can't be
// read.
[[nodiscard]] FilesFound find_files(const std::filesystem::path& folder, const std::vector<std::string>& endings);
// Returns the files that find_files() finds, and throws DataError if there is none. `notices` gets FilesFound::left_out.
[[nodiscard]] std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder,
                                                          const std::vector<std::string>& endings,
                                                          std::vector<std::string>* notices = nullptr);

struct LabelledFiles {
  std::vector<std::filesystem::path> files;
  std::vector<std::int64_t> labels;  // for each file, the number of its class
  std::vector<std::string> classes;  // names of the classes, by number
  std::vector<std::string> notices;  // a line for each folder in which files are skipped
};
// Reads a folder that holds a subfolder for each class: photos/cat/*.jpg, photos/dog/*.jpg. The classes are numbered from 0 in
// the order of their names. Throws DataError as files_in() does, and for fewer than two classes.
[[nodiscard]] LabelledFiles labelled_files_in(const std::filesystem::path& folder,
                                              const std::vector<std::string>& endings = {".png", ".jpg", ".jpeg"});

}  // namespace millrace::data
