#include "millrace/data/files/folder.h"

#include <algorithm>
#include <span>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/utf8.h"

namespace millrace::data {
namespace {

namespace stdfs = std::filesystem;

std::vector<std::string> names_in(const stdfs::path& folder) {
  try {
    return Fs::real().list(folder);
  } catch (const FsError& error) {
    throw DataError(
        {"the folder can't be read: " + std::string(error.what()), folder.string(), remedy_for(error.error_number())});
  }
}

// Millrace writes this file next to each data set that it generates, so the file is not the user's data.
constexpr auto kTruth = "truth.json";

// Returns true for files and folders that systems and programs create, not the user.
bool is_left_behind(const std::string& name) { return name.starts_with(".") || name == "__MACOSX"; }

bool is_folder(const stdfs::path& path) {
  std::error_code ignored;
  return stdfs::is_directory(path, ignored);
}

bool ends_in(const std::string& name, const std::vector<std::string>& endings) {
  const std::string lower = to_lower(name);
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& ending) { return lower.ends_with(ending); });
}

std::string notice_of(const stdfs::path& folder, const std::vector<std::string>& left_out, std::size_t taken) {
  constexpr std::size_t kNamed = 3;
  if (left_out.empty()) return "";
  const std::size_t named = std::min(left_out.size(), kNamed);
  return std::to_string(left_out.size()) + " of " + std::to_string(left_out.size() + taken) + " names in " + folder.string() +
         (left_out.size() == 1 ? " is" : " are") +
         " left out: " + joined(std::span(left_out).first(named), ", ", [](const std::string& name) { return quoted(name); }) +
         (named < left_out.size() ? ", …" : "");
}

}  // namespace

FilesFound find_files(const stdfs::path& folder, const std::vector<std::string>& endings) {
  FilesFound found;
  std::vector<std::string> left_out;
  for (const std::string& name : names_in(folder)) {
    const bool wanted = ends_in(name, endings);
    const bool is_worth_a_word = wanted || (!is_left_behind(name) && name != kTruth);
    if (wanted && !is_left_behind(name) && !is_folder(folder / name)) {
      found.files.push_back(folder / name);
    } else if (is_worth_a_word) {
      left_out.push_back(is_folder(folder / name) ? name + "/" : name);
    }
  }
  found.left_out = notice_of(folder, left_out, found.files.size());
  return found;
}

std::vector<stdfs::path> files_in(const stdfs::path& folder, const std::vector<std::string>& endings,
                                  std::vector<std::string>* notices) {
  FilesFound found = find_files(folder, endings);
  if (found.files.empty())
    throw DataError({"the folder holds no file " + joined(endings, ", no file ", [](const std::string& e) { return "*" + e; }),
                     folder.string() + (found.left_out.empty() ? "" : " (" + found.left_out + ")"),
                     "put such files into the folder, or name another folder"});
  if (notices != nullptr && !found.left_out.empty()) notices->push_back(std::move(found.left_out));
  return std::move(found.files);
}

LabelledFiles labelled_files_in(const stdfs::path& folder, const std::vector<std::string>& endings) {
  LabelledFiles all;
  for (const std::string& name : names_in(folder)) {
    if (is_left_behind(name) || !is_folder(folder / name)) continue;
    for (stdfs::path& file : files_in(folder / name, endings, &all.notices)) {
      all.files.push_back(std::move(file));
      all.labels.push_back(static_cast<std::int64_t>(all.classes.size()));
    }
    all.classes.push_back(name);
  }
  if (all.classes.size() < 2) {
    throw DataError({"the folder holds " + std::string(all.classes.empty() ? "no subfolder" : "only one subfolder") +
                         ", but there must be at least two, one for each class",
                     folder.string(),
                     "put the files of each class into a folder of its own: photos/cat/*.jpg, photos/dog/*.jpg"});
  }
  return all;
}

}  // namespace millrace::data
