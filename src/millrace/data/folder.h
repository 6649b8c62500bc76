// The files of a folder as a data set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::data {

// The files of `folder` whose names end in one of `endings` (".nii.gz", ".png"), in the order of their names; folders inside and
// names that begin with a dot are passed over. DataError when the folder can't be read or holds no such file.
[[nodiscard]] std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder,
                                                          const std::vector<std::string>& endings);

struct LabelledFiles {
  std::vector<std::filesystem::path> files;
  std::vector<std::int64_t> labels;  // of each file: the number of its class
  std::vector<std::string> classes;  // in the order of their numbers
};
// A folder that holds a folder for each class: photos/cat/*.jpg, photos/dog/*.jpg. Classes are numbered from 0 in the order of
// their names. DataError also when there are fewer than two classes.
[[nodiscard]] LabelledFiles labelled_files_in(const std::filesystem::path& folder,
                                              const std::vector<std::string>& endings = {".png", ".jpg", ".jpeg"});

}  // namespace millrace::data
