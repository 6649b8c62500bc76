// The columns of `millrace runs`: what they are called, what stands in them, how they sort.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/runs/run_row.h"

namespace millrace::runs {

struct RunColumn {
  std::string_view name;  // also its heading, and the word of --columns and --sort
  int importance = 0;     // where width is short the least important goes first; 0 = only where it is asked for
  std::string (*text)(const RunRow& row);
  std::optional<double> (*number)(const RunRow& row) = nullptr;  // what it sorts by; none: by its text
};

[[nodiscard]] std::span<const RunColumn> run_columns();
// From "step,loss": in that order. UsageError names `flag`, the unknown column and all that there are.
[[nodiscard]] std::vector<const RunColumn*> columns_named(std::string_view words, std::string_view flag);
// By "KEY", or the greatest first by "-KEY"; rows without a value are last either way, rows that are alike stay as they stood.
// UsageError.
void sort_rows(std::vector<RunRow>& rows, std::string_view key);
// Those of `run_columns` that are not only for asking, as many as fit into `width` columns of a terminal.
[[nodiscard]] std::vector<const RunColumn*> columns_within(std::size_t width, std::span<const RunRow> rows);
// Heading and rows.
[[nodiscard]] std::string text_of(std::span<const RunColumn* const> columns, std::span<const RunRow> rows);

}  // namespace millrace::runs
