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
  std::string left_out;  // "" or a line for the user: how much of the folder is not among them, and the first names
};
// The files of `folder` whose names end in one of `endings` (".nii.gz", ".png"; in capitals too), in the order of their names.
// Links count as what they lead to. Left out: hidden names, folders inside, __MACOSX. DataError when the folder can't be read.
[[nodiscard]] FilesFound find_files(const std::filesystem::path& folder, const std::vector<std::string>& endings);
// The same; DataError also when there is no such file. `told` gets the line.
[[nodiscard]] std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder,
                                                          const std::vector<std::string>& endings,
                                                          std::vector<std::string>* told = nullptr);

struct LabelledFiles {
  std::vector<std::filesystem::path> files;
  std::vector<std::int64_t> labels;  // of each file: the number of its class
  std::vector<std::string> classes;  // in the order of their numbers
  std::vector<std::string> told;     // a line for each folder of which something is left out
};
// A folder that holds a folder for each class: photos/cat/*.jpg, photos/dog/*.jpg. Classes are numbered from 0 in the order of
// their names. DataError also when there are fewer than two classes.
[[nodiscard]] LabelledFiles labelled_files_in(const std::filesystem::path& folder,
                                              const std::vector<std::string>& endings = {".png", ".jpg", ".jpeg"});

}  // namespace millrace::data
