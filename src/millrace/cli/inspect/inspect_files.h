// The kinds of file that `millrace inspect` knows: one row of a table each.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "millrace/cli/inspect/file_values.h"
#include "millrace/cli/inspect/inspect_report.h"

namespace millrace::cli {

struct FileFormat {
  std::string_view kind;  // "NIfTI volume"
  bool (*recognises)(const std::filesystem::path&);
  // Adds facts, table and details, having read all that can be checked. Throws Error: damage.
  void (*describe)(const std::filesystem::path&, Report&);
  FileArrays arrays;  // of a file that was described: for their values
  // Of a file that describe() found to be of an unread kind (UnreadKind): adds what can be checked all the same. Null = nothing.
  void (*check)(const std::filesystem::path&, Report&) = nullptr;
};

[[nodiscard]] std::span<const FileFormat> file_formats();

// The tensors of a safetensors file as rows of the report's table and details, `prefix` before each name. Throws Error: damage.
void add_tensors(Report& report, const std::filesystem::path& path, const std::string& prefix);

}  // namespace millrace::cli
