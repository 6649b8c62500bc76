// A table of the kinds of file that `millrace inspect` knows.
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
  bool (*holds)(const std::filesystem::path&);     // true if the content shows this kind, whatever the name is
  bool (*is_named)(const std::filesystem::path&);  // true if the name shows this kind; called if the content shows no kind or is
                                                   // damaged
  // Checks everything that can be checked in a file and adds facts, table and details. Throws Error if the file is damaged.
  void (*describe)(const std::filesystem::path&, Report&);
  FileArrays arrays;  // reads the arrays of a file that describe() accepted; null = this kind has no arrays
  // Called if describe() found that the file is intact but of a variant that Millrace can't read (UnreadKind). Makes the checks
  // that are still possible. Null = no further checks.
  void (*check)(const std::filesystem::path&, Report&) = nullptr;
};

// Finds the row of the table for a file by the file's content or, if the content shows no kind, by its name. Null if the kind
// is unknown.
[[nodiscard]] const FileFormat* format_of(const std::filesystem::path& path);
// For each recipe that can read the file, adds a fact that says how the recipe reads it.
void add_recipes(Report& report, const std::filesystem::path& path, std::span<const Entry> recipes);

// Adds the tensors of a safetensors file to the report's table and details, with `prefix` before each name. Throws Error if the
// file is damaged.
void add_tensors(Report& report, const std::filesystem::path& path, const std::string& prefix);

}  // namespace millrace::cli
