// What is in a file or folder, and whether it is whole: for `millrace inspect`.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/train/recipe/entry.h"

namespace millrace::cli {

struct Report {
  std::string kind;                                        // "snapshot", "run", "NIfTI volume", ...
  std::vector<std::pair<std::string, std::string>> facts;  // label, value
  std::vector<std::vector<std::string>> table;             // first row = headings; empty = none
  std::vector<std::string> problems;                       // what is damaged; empty = whole, as far as can be told
  std::vector<std::string> unread;                         // what is intact and of a kind that nobody reads here
  Json details = Json::object();                           // for --json
  [[nodiscard]] std::string to_text(const std::filesystem::path& path) const;
  [[nodiscard]] Json to_json(const std::filesystem::path& path) const;
};

// UsageError when the path does not exist or is of no kind that is known here, DataError or FsError when it may not be read.
// Damage is a problem of the report, not an error. With `values` the table says what the values of each array are; UsageError for
// the folder of a run. `recipes` say what an HDF5 file is to them.
[[nodiscard]] Report inspect_path(const std::filesystem::path& path, bool values = false, std::span<const Entry> recipes = {});

}  // namespace millrace::cli
