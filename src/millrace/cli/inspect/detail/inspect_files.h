// The kinds of file that `millrace inspect` knows: a table with one row each.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "millrace/cli/inspect/detail/file_values.h"
#include "millrace/cli/inspect/inspect_report.h"
#include "millrace/train/recipe/entry.h"

namespace millrace::cli {

struct FileFormat {
  std::string_view kind;                           // "NIfTI volume"
  bool (*holds)(const std::filesystem::path&);     // true by its content, whatever its name
  bool (*is_named)(const std::filesystem::path&);  // true by its name: for files whose content shows no kind, or is damaged
  // Reads all that can be checked and adds facts, table and details. Throws Error if the file is damaged.
  void (*describe)(const std::filesystem::path&, Report&);
  FileArrays arrays;  // reads the arrays of a described file; null = the kind has none
  // For a file that describe() found to be of an unread kind (UnreadKind): adds the checks that are still possible. Null = none.
  void (*check)(const std::filesystem::path&, Report&) = nullptr;
};

// The row for a file: by its content, else by its name. Null if both are unknown.
[[nodiscard]] const FileFormat* format_of(const std::filesystem::path& path);
// If a file is an input of recipes, adds how each of them reads it, as a fact each.
void add_recipes(Report& report, const std::filesystem::path& path, std::span<const Entry> recipes);

// Adds the tensors of a safetensors file to the report's table and details, with `prefix` before each name. Throws Error if the
// file is damaged.
void add_tensors(Report& report, const std::filesystem::path& path, const std::string& prefix);

}  // namespace millrace::cli
