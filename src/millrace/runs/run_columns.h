// The columns of `millrace runs`: their names, content and sort order.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/runs/run_row.h"

namespace millrace::runs {

struct RunColumn {
  std::string_view name;  // also its heading, and its word in --columns and --sort
  int importance = 0;     // the least important column is left out first if width is short; 0 = shown only on request
  std::string (*text)(const RunRow& row);
  std::optional<double> (*number)(const RunRow& row) = nullptr;  // sort key; null: sorts by its text
};

[[nodiscard]] std::span<const RunColumn> run_columns();
// Columns of "step,loss", in that order. UsageError names `flag`, the unknown column and all valid ones.
[[nodiscard]] std::vector<const RunColumn*> columns_named(std::string_view words, std::string_view flag);
// Sorts by "KEY", or in descending order by "-KEY"; rows without a value are last either way; ties keep their order. UsageError.
void sort_rows(std::vector<RunRow>& rows, std::string_view key);
// The columns of `run_columns` that are shown without request, as many as fit into `width` columns of a terminal.
[[nodiscard]] std::vector<const RunColumn*> columns_within(std::size_t width, std::span<const RunRow> rows);
// The table as text: heading and rows.
[[nodiscard]] std::string text_of(std::span<const RunColumn* const> columns, std::span<const RunRow> rows);

}  // namespace millrace::runs
