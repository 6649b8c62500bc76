// Reports what a file or folder contains, and whether it is intact: for `millrace inspect`.
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
  std::vector<std::vector<std::string>> table;             // the first row has the headings; empty = there is no table
  std::vector<std::string> problems;                       // what is damaged; empty = everything that can be checked is intact
  std::vector<std::string> unread;                         // what is intact but of a kind that Millrace can't read
  Json details = Json::object();                           // the report for --json
  [[nodiscard]] std::string to_text(const std::filesystem::path& path) const;
  [[nodiscard]] Json to_json(const std::filesystem::path& path) const;
};

// Reports on a file or folder. Damage is listed in the report and does not throw. `values`: adds a table with a summary of each
// array's values. `recipes`: the report says how each of these recipes would read an HDF5 file. Throws UsageError if the path
// does not exist or its kind is unknown, and for a run folder with `values`. Throws DataError or FsError if the path can't be
// read.
[[nodiscard]] Report inspect_path(const std::filesystem::path& path, bool values = false, std::span<const Entry> recipes = {});

}  // namespace millrace::cli
