// The columns of the table `millrace runs`: their names, their contents and how they are sorted.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/runs/run_row.h"

namespace millrace::runs {

struct RunColumn {
  std::string_view name;  // the name of the column: its heading, and its name in --columns and --sort
  int importance = 0;     // if the terminal is narrow, the column with the smallest number is left out first; 0 = shown only if
                          // --columns names it
  std::string (*text)(const RunRow& row);
  std::optional<double> (*number)(const RunRow& row) = nullptr;  // the number by which rows are sorted; null: rows are sorted by
                                                                 // the column's text
};

[[nodiscard]] std::span<const RunColumn> run_columns();
// The columns that a list such as "step,loss" names, in the order of the list. Throws UsageError that names `flag`, the unknown
// column and all valid columns.
[[nodiscard]] std::vector<const RunColumn*> columns_named(std::string_view words, std::string_view flag);
// Sorts rows by the column `key`, or in descending order for "-KEY". Rows without a value come last in both cases; rows with
// equal values keep their order. Throws UsageError.
void sort_rows(std::vector<RunRow>& rows, std::string_view key);
// Of the columns that are shown without --columns, the most important ones that fit into a terminal of `width` characters.
[[nodiscard]] std::vector<const RunColumn*> columns_within(std::size_t width, std::span<const RunRow> rows);
// The table as text: the heading and a line for each row.
[[nodiscard]] std::string text_of(std::span<const RunColumn* const> columns, std::span<const RunRow> rows);

}  // namespace millrace::runs
