#include "millrace/data/folder.h"

#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"

namespace millrace::data {
namespace {

namespace stdfs = std::filesystem;

std::vector<std::string> names_in(const stdfs::path& folder) {
  try {
    std::vector<std::string> names = Fs::real().list(folder);
    std::erase_if(names, [](const std::string& name) { return name.starts_with("."); });
    return names;
  } catch (const FsError& error) {
    throw DataError(
        {"the folder can't be read: " + std::string(error.what()), folder.string(), remedy_for(error.error_number())});
  }
}

}  // namespace

std::vector<stdfs::path> files_in(const stdfs::path& folder, const std::vector<std::string>& endings) {
  std::vector<stdfs::path> files;
  for (const std::string& name : names_in(folder)) {
    const bool wanted =
        std::any_of(endings.begin(), endings.end(), [&](const std::string& ending) { return name.ends_with(ending); });
    std::error_code ignored;
    if (wanted && !stdfs::is_directory(folder / name, ignored)) files.push_back(folder / name);
  }
  if (files.empty())
    throw DataError({"the folder holds no file " + joined(endings, ", no file ", [](const std::string& e) { return "*" + e; }),
                     folder.string(), "put such files into the folder, or name another folder"});
  return files;
}

LabelledFiles labelled_files_in(const stdfs::path& folder, const std::vector<std::string>& endings) {
  LabelledFiles all;
  for (const std::string& name : names_in(folder)) {
    std::error_code ignored;
    if (!stdfs::is_directory(folder / name, ignored)) continue;
    for (stdfs::path& file : files_in(folder / name, endings)) {
      all.files.push_back(std::move(file));
      all.labels.push_back(static_cast<std::int64_t>(all.classes.size()));
    }
    all.classes.push_back(name);
  }
  if (all.classes.size() < 2) {
    throw DataError(
        {"the folder holds " + std::string(all.classes.empty() ? "no folder" : "one folder") + ", and classes need two or more",
         folder.string(), "put the files of each class into a folder of its own: photos/cat/*.jpg, photos/dog/*.jpg"});
  }
  return all;
}

}  // namespace millrace::data
