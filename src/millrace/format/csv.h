// CSV as RFC 4180 has it: a table that grows by rows and survives kills and resumes.
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

// Shortest text that reads back as the same number; "nan", "inf", "-inf".
[[nodiscard]] std::string csv_number(double value);
// Cells with commas, quotes or line breaks are quoted. Without a newline at the end.
[[nodiscard]] std::string csv_line(std::span<const std::string> cells);

// What stands between the cells of a table with a line of names: a comma, or in a line without one a semicolon or a tab, as
// spreadsheets write them where numbers have commas.
[[nodiscard]] char csv_separator(std::string_view text);
// The number of a whole cell without blanks around it. With `decimal_comma` also 12,5; then not 12,500, which may be either.
[[nodiscard]] std::optional<double> csv_value(std::string_view cell, bool decimal_comma = false);
// Without the byte-order mark that spreadsheets write.
[[nodiscard]] std::string_view without_mark(std::string_view text);

// The rows of a text, one after the other. Cells are bytes of any kind; the text outlives the reader.
class CsvReader {
 public:
  explicit CsvReader(std::string_view text, char separator = ',') : text_(text), separator_(separator) {}
  // The next row; false when there is none.
  bool next(std::vector<std::string>& row);
  [[nodiscard]] std::int64_t line() const noexcept { return line_; }  // where the row begins that next() gave, from 1
  // Of the row that next() gave: false when the text ends inside of it, without a newline or (ends_in_quotes) before the quote
  // that closes a cell.
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

// Appends rows to a table whose first column is the step. A file that can't be written never stops the run (see LogFile).
class CsvWriter {
 public:
  // Goes on with an existing file of the same columns, without a row that was cut and without the rows after step
  // `keep_through` (of a run that is resumed there); a file with other columns is kept as "<path>.old".
  CsvWriter(Fs& fs, const std::filesystem::path& path, std::vector<std::string> columns, Warn warn,
            std::optional<std::int64_t> keep_through = std::nullopt);
  void row(std::int64_t step, std::span<const std::string> cells);  // one cell per column after the first

 private:
  void take_over(Fs& fs, std::optional<std::int64_t> keep_through);
  std::vector<std::string> columns_;
  LogFile file_;
  bool has_head_ = false;
};

}  // namespace millrace::format
