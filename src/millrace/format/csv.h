// CSV as defined by RFC 4180: a table that grows by rows and survives kills and resumes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/format/log_file.h"

namespace millrace::format {

// Returns the shortest text that reads back as the same number; "nan", "inf", "-inf".
[[nodiscard]] std::string csv_number(double value);
// Returns the line of a table without its newline. Cells with commas, quotes or line breaks are quoted.
[[nodiscard]] std::string csv_line(std::span<const std::string> cells);

// Returns the separator of a table whose first line has names: a comma or, if that line has no comma, a semicolon or a tab.
// Spreadsheets write a semicolon or a tab in regions whose numbers have a decimal comma.
[[nodiscard]] char csv_separator(std::string_view text);
// Reads the whole cell, without the blanks around it, as a number. With `decimal_comma` 12,5 is a number too, but 12,500 is not,
// because it may mean 12.5 or 12500. Returns nullopt if the cell is not a number.
[[nodiscard]] std::optional<double> csv_value(std::string_view cell, bool decimal_comma = false);
// Returns the text without the byte-order mark that spreadsheets write.
[[nodiscard]] std::string_view without_mark(std::string_view text);

// Reads the rows of a text one by one. Cells may hold any bytes; the text must outlive the reader.
class CsvReader {
 public:
  explicit CsvReader(std::string_view text, char separator = ',') : text_(text), separator_(separator) {}
  // Sets `row` to the cells of the next row; returns false if there is none.
  bool next(std::vector<std::string>& row);
  [[nodiscard]] std::int64_t line() const noexcept { return line_; }  // line (from 1) in which the row of the last next() begins
  // complete() is false if the text ends inside the last row: without a newline or, if ends_in_quotes(), before a cell's closing
  // quote.
  [[nodiscard]] bool complete() const noexcept { return complete_; }
  [[nodiscard]] bool ends_in_quotes() const noexcept { return ends_in_quotes_; }

 private:
  std::string_view text_;
  char separator_;
  std::size_t at_ = 0;
  std::int64_t line_ = 0, next_line_ = 1;
  bool complete_ = true, ends_in_quotes_ = false;
};

struct CsvTable {
  std::vector<std::vector<std::string>> rows;
  bool complete = true;  // false: the text ends inside its last row (no newline, or an open quote)
};
[[nodiscard]] CsvTable parse_csv(std::string_view text);

// Appends rows to a table whose first column is the step. A failed write never stops the run (see LogFile).
class CsvWriter {
 public:
  // Continues an existing file with the same columns. Drops an incomplete row and, for a run resumed at step `keep_through`, the
  // rows after that step. If the file or `columns` has additional columns at the end, the table has those columns too, with
  // empty cells in the rows that lack values. A file with other columns is renamed to "<path>.old", or to
  // "<path>.old.2" and so on if that name is taken.
  CsvWriter(Fs& fs, const std::filesystem::path& path, std::vector<std::string> columns, Warn warn,
            std::optional<std::int64_t> keep_through = std::nullopt);
  void row(std::int64_t step, std::span<const std::string> cells);  // `cells`: the values; the last ones may be missing
  [[nodiscard]] const std::vector<std::string>& columns() const noexcept { return columns_; }

 private:
  void take_over(Fs& fs, std::optional<std::int64_t> keep_through);
  std::vector<std::string> columns_;
  LogFile file_;
  bool has_head_ = false;
};

}  // namespace millrace::format
