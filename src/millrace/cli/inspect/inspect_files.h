// The kinds of file that `millrace inspect` knows: one row of a table each.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "millrace/cli/inspect/file_values.h"
#include "millrace/cli/inspect/inspect_report.h"
#include "millrace/train/recipe/entry.h"

namespace millrace::cli {

struct FileFormat {
  std::string_view kind;                           // "NIfTI volume"
  bool (*holds)(const std::filesystem::path&);     // by its content, whatever its name
  bool (*is_named)(const std::filesystem::path&);  // as such a file is: for those whose content says nothing, or is damaged
  // Adds facts, table and details, having read all that can be checked. Throws Error: damage.
  void (*describe)(const std::filesystem::path&, Report&);
  FileArrays arrays;  // of a file that was described: for their values. Null = it has none
  // Of a file that describe() found to be of an unread kind (UnreadKind): adds what can be checked all the same. Null = nothing.
  void (*check)(const std::filesystem::path&, Report&) = nullptr;
};

// The row of a file: of the kind that its content says, else of its name's. Null = neither is known.
[[nodiscard]] const FileFormat* format_of(const std::filesystem::path& path);
// What the recipes read a file as, where it is one of their input, a fact each.
void add_recipes(Report& report, const std::filesystem::path& path, std::span<const Entry> recipes);

// The tensors of a safetensors file as rows of the report's table and details, `prefix` before each name. Throws Error: damage.
void add_tensors(Report& report, const std::filesystem::path& path, const std::string& prefix);

}  // namespace millrace::cli
