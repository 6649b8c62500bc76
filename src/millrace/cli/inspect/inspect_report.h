// Reports the content of a file or folder, and whether it is intact: for `millrace inspect`.
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
  std::vector<std::string> problems;                       // damage; empty = intact, as far as can be checked
  std::vector<std::string> unread;                         // content that is intact but of an unsupported kind
  Json details = Json::object();                           // for --json
  [[nodiscard]] std::string to_text(const std::filesystem::path& path) const;
  [[nodiscard]] Json to_json(const std::filesystem::path& path) const;
};

// Reports on a path. Damage is listed in the report, not thrown. `values`: the table summarises the values of each array.
// `recipes` explain HDF5 files. UsageError if the path does not exist or is of an unknown kind, or for a run's folder with
// `values`; DataError or FsError if it can't be read.
[[nodiscard]] Report inspect_path(const std::filesystem::path& path, bool values = false, std::span<const Entry> recipes = {});

}  // namespace millrace::cli
