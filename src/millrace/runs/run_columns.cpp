#include "millrace/runs/run_columns.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/config/arguments.h"

namespace millrace::runs {
namespace {

constexpr std::size_t kMinutes = 16;  // number of characters that a table shows of "2026-11-23 21:03:26"

std::string or_dash(std::string text) { return text.empty() ? "-" : printable(text); }

// Turns a value that is not finite into a missing value, so that both are sorted alike.
std::optional<double> finite(std::optional<double> value) { return value && std::isfinite(*value) ? value : std::nullopt; }

constexpr std::array kColumns = {
    RunColumn{"run", 12, [](const RunRow& row) { return printable(row.folder.string()); }},
    RunColumn{"recipe", 8, [](const RunRow& row) { return printable(row.recipe); }},
    RunColumn{"step", 11, [](const RunRow& row) { return with_commas(row.step); },
              [](const RunRow& row) { return std::optional(static_cast<double>(row.step)); }},
    RunColumn{"loss", 9, [](const RunRow& row) { return row.loss ? fixed(*row.loss, 4) : "-"; },
              [](const RunRow& row) { return finite(row.loss); }},
    RunColumn{"best", 6,
              [](const RunRow& row) {
                const std::string version = row.best_version == 1 ? "" : " (version " + std::to_string(row.best_version) + ")";
                return row.best ? figure(*row.best) + " " + printable(row.best_metric) + version : std::string("-");
              },
              [](const RunRow& row) { return finite(row.best); }},
    RunColumn{"step_ms", 7, [](const RunRow& row) { return row.step_ms ? fixed(*row.step_ms, 1) : "-"; },
              [](const RunRow& row) { return finite(row.step_ms); }},
    RunColumn{"rate", 3,
              [](const RunRow& row) {
                return row.rate ? human_rate(*row.rate) + " " + printable(row.rate_unit) + "/s" : std::string("-");
              },
              [](const RunRow& row) { return finite(row.rate); }},
    RunColumn{"findings", 5, [](const RunRow& row) { return row.findings ? with_commas(*row.findings) : "-"; },
              [](const RunRow& row) { return row.findings ? std::optional(static_cast<double>(*row.findings)) : std::nullopt; }},
    RunColumn{"bound_by", 2, [](const RunRow& row) { return or_dash(row.bound_by); }},
    RunColumn{"state", 10, [](const RunRow& row) { return printable(row.state); }},
    RunColumn{"when", 4, [](const RunRow& row) { return row.when.substr(0, kMinutes); }}};

// The text by which a column without a number is sorted; "" for a missing value.
std::string sort_text(const RunColumn& column, const RunRow& row) {
  std::string text = column.name == "when" ? row.when : column.text(row);
  return text == "-" ? "" : text;
}

const RunColumn& column_named(std::string_view word, std::string_view flag) {
  std::vector<std::string> names;
  for (const RunColumn& column : kColumns) names.emplace_back(column.name);
  const std::string name = config::with_underscores(word);
  const auto found = std::ranges::find(kColumns, name, &RunColumn::name);
  if (found != kColumns.end()) return *found;
  throw UsageError({"the table of runs has no column " + quoted(word), "flag " + std::string(flag),
                    config::suggestion(name, names) + "columns: " + joined(names, ", ")});
}

std::size_t width_of(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto columns = std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
    widest = std::max(widest, static_cast<std::size_t>(columns));
  }
  return widest;
}

}  // namespace

std::span<const RunColumn> run_columns() { return kColumns; }

std::vector<const RunColumn*> columns_named(std::string_view words, std::string_view flag) {
  std::vector<const RunColumn*> columns;
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    columns.push_back(&column_named(words.substr(begin, end - begin), flag));
    begin = end + 1;
  }
  return columns;
}

void sort_rows(std::vector<RunRow>& rows, std::string_view key) {
  const bool falling = key.starts_with('-');
  const RunColumn& column = column_named(falling ? key.substr(1) : key, "--sort");
  const auto before = [&](const auto& a, const auto& b) { return falling ? b < a : a < b; };
  std::ranges::stable_sort(rows, [&](const RunRow& a, const RunRow& b) {
    if (column.number != nullptr) {
      const auto of_a = column.number(a);
      const auto of_b = column.number(b);
      return of_a && of_b ? before(*of_a, *of_b) : of_a.has_value() && !of_b.has_value();
    }
    const std::string of_a = sort_text(column, a);
    const std::string of_b = sort_text(column, b);
    return of_a.empty() || of_b.empty() ? !of_a.empty() && of_b.empty() : before(of_a, of_b);
  });
}

std::vector<const RunColumn*> columns_within(std::size_t width, std::span<const RunRow> rows) {
  // columns of this importance are always shown, even if a long name makes the table wider than the terminal
  constexpr int kAlways = 9;
  std::vector<const RunColumn*> by_importance;
  for (const RunColumn& column : kColumns) {
    if (column.importance > 0) by_importance.push_back(&column);
  }
  std::ranges::sort(by_importance, std::ranges::greater(), &RunColumn::importance);
  std::vector<const RunColumn*> columns;
  for (const RunColumn* column : by_importance) {
    std::vector<const RunColumn*> more = columns;
    more.insert(std::ranges::find_if(more, [&](const RunColumn* each) { return each > column; }),
                column);  // the columns stay in the order of the table
    if (column->importance >= kAlways || width_of(text_of(more, rows)) <= width) columns = std::move(more);
  }
  return columns;
}

std::string text_of(std::span<const RunColumn* const> columns, std::span<const RunRow> rows) {
  std::vector<std::vector<std::string>> cells(1);
  for (const RunColumn* column : columns) cells.front().emplace_back(column->name);
  for (const RunRow& row : rows) {
    cells.emplace_back();
    for (const RunColumn* column : columns) cells.back().push_back(column->text(row));
  }
  return table(cells);
}

}  // namespace millrace::runs
