#include "millrace/data/sources/csv_source.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/input_file.h"
#include "millrace/base/text_encoding.h"
#include "millrace/format/csv.h"

namespace millrace::data {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Returns a cell or a number as a message shows it: quoted, and shortened if it is long.
std::string shown(std::string_view cell) {
  constexpr std::size_t kMost = 60;
  return cell.size() <= kMost ? quoted(cell) : quoted(cell.substr(0, kMost)) + "…";
}

template <class T>
std::optional<T> number(std::string_view cell) {
  cell = trimmed(cell);
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size()) return std::nullopt;
  return value;
}

const char* word_of(char separator) { return separator == ',' ? "commas" : separator == ';' ? "semicolons" : "tabs"; }

// Returns the text of a table; `bytes` holds its memory. Throws DataError if the file is not text.
std::string_view text_of(const std::filesystem::path& path, std::vector<std::byte>& bytes) {
  const std::span<const std::byte> content = InputFile(path).read_all(bytes);
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  if (const std::optional<NoText> other = other_than_text(text, path))
    throw DataError({"the table " + other->is, path.string(), other->next});
  return text;
}

// What is known about a field while the table is read.
struct Columns {
  const CsvField* field = nullptr;
  std::vector<std::size_t> places;
  std::vector<float> floats;
  std::vector<std::int64_t> integers;
};

class Table {
 public:
  Table(const std::filesystem::path& path, std::string_view text)
      : path_(path), separator_(format::csv_separator(text)), reader_(text, separator_) {
    const std::size_t returns = text.find('\r');
    has_one_line_ = text.find('\n') == std::string_view::npos && returns != std::string_view::npos && returns + 1 < text.size();
  }

  void read_header() {
    if (has_one_line_) {
      throw DataError(
          {"the table's lines end in carriage returns alone", path_.string(), "write line feeds: tr '\\r' '\\n' < FILE > NEW"});
    }
    if (!reader_.next(header_))
      throw DataError({"the table is empty", path_.string(), "give a file whose first row names its columns"});
    for (std::string& name : header_) name = std::string(trimmed(name));
  }

  [[nodiscard]] std::size_t place_of(const std::string& column) const {
    const auto count = std::count(header_.begin(), header_.end(), column);
    if (count == 1) return static_cast<std::size_t>(std::find(header_.begin(), header_.end(), column) - header_.begin());
    constexpr std::size_t kMost = 20;
    const std::size_t listed = std::min(header_.size(), kMost);
    const std::string near = nearest(column, header_.data(), header_.data() + header_.size());
    const bool has_numbers =
        std::ranges::all_of(header_, [](const std::string& name) { return number<double>(name).has_value(); });
    throw DataError({count == 0 ? "the table has no column " + quoted(column) : "the table has two columns " + quoted(column),
                     where(),
                     (has_numbers                 ? "the first row must name the columns, but it holds numbers; "
                      : near.empty() || count > 1 ? ""
                                                  : "did you mean " + quoted(near) + "? ") +
                         "columns, separated by " + word_of(separator_) + ": " +
                         joined(std::span(header_).first(listed), ", ", shown) + (listed < header_.size() ? ", …" : "")});
  }

  // Reads the next row. Returns false if there are no more rows.
  bool next() {
    do {
      if (!reader_.next(row_)) return false;
    } while (row_.size() == 1 && trimmed(row_[0]).empty());
    if (reader_.ends_in_quotes())
      throw DataError(
          {"a quoted cell has no end", where(), "close the cell with a quote; a quote inside a cell is written twice"});
    if (row_.size() != header_.size()) {
      throw DataError({"the row has " + std::to_string(row_.size()) + " cells, the header has " + std::to_string(header_.size()),
                       where(), "give each row one cell for each column; put text with commas into quotes"});
    }
    return true;
  }

  void take(Columns& columns) {
    for (const std::size_t place : columns.places) {
      if (columns.field->dtype == DType::f32) {
        columns.floats.push_back(as_float(place, value_of<double>(place)));
        watch_marks(place);
      } else {
        columns.integers.push_back(value_of<std::int64_t>(place));
      }
    }
  }

  [[nodiscard]] std::int64_t line() const { return reader_.line(); }
  [[nodiscard]] char separator() const { return separator_; }
  [[nodiscard]] const std::vector<std::string>& header() const { return header_; }
  [[nodiscard]] const std::string& rounded() const { return rounded_; }  // returns a line about a rounded number, or ""
  // What a cell holds: a number as C writes it, a number with a decimal comma, another text, or nothing.
  enum class Cell : std::uint8_t { number, decimal_comma, text, empty };
  [[nodiscard]] Cell cell_at(std::size_t place) const {
    if (trimmed(row_[place]).empty()) return Cell::empty;
    if (number<double>(row_[place])) return Cell::number;
    return format::csv_value(trimmed(row_[place]), separator_ != ',') ? Cell::decimal_comma : Cell::text;
  }

 private:
  // Returns the value as f32. Throws DataError if the value is larger than any 32-bit float. Notes the first whole number that
  // is rounded, because rounding can make sample numbers, or times in seconds, equal to those of neighbouring rows.
  float as_float(std::size_t place, double value) {
    if (std::isfinite(value) && std::abs(value) > static_cast<double>(std::numeric_limits<float>::max())) {
      throw DataError(
          {"column " + shown(header_[place]) + " holds " + shown(row_[place]) + ", which is too large for a 32-bit float",
           where(), "give the column in a larger unit"});
    }
    const auto result = static_cast<float>(value);
    if (rounded_.empty() && std::isfinite(value) && static_cast<double>(result) != value) {
      const std::string_view cell = trimmed(row_[place]);
      if (cell.find_first_not_of("+-0123456789") == std::string_view::npos) {
        rounded_ = "column " + shown(header_[place]) + " is rounded to 32-bit floats: " + std::string(cell) + " becomes " +
                   fixed(static_cast<double>(result), 0) + "; a field of whole numbers would keep the number exactly";
      }
    }
    return result;
  }

  // Throws DataError if the table has both numbers with commas and numbers with points. A point next to decimal commas may
  // separate thousands, as in 1.500 next to 12,5.
  void watch_marks(std::size_t place) {
    if (separator_ == ',') return;
    const std::string& cell = row_[place];
    if (with_comma_.empty() && cell.find(',') != std::string::npos) with_comma_ = cell;
    if (with_point_.empty() && cell.find('.') != std::string::npos) with_point_ = cell;
    if (with_comma_.empty() || with_point_.empty()) return;
    throw DataError({"the table holds " + shown(with_comma_) + " and " + shown(with_point_) +
                         ", a decimal comma and a point; the point may mark decimals or thousands",
                     where(), "write all numbers with a decimal point, and without marks between thousands"});
  }

  [[nodiscard]] std::string where() const { return path_.string() + " line " + std::to_string(reader_.line()); }

  template <class T>
  [[nodiscard]] T value_of(std::size_t place) const {
    const std::string& cell = row_[place];
    if (const auto value = number<T>(cell)) return *value;
    if constexpr (std::is_same_v<T, double>) {
      if (const auto value = format::csv_value(trimmed(cell), separator_ != ',')) return *value;
    }
    const bool empty = trimmed(cell).empty();
    const bool has_comma =
        cell.find(',') != std::string::npos && cell.find_first_not_of("+-0123456789., \t") == std::string::npos;
    const char* const kind = std::is_same_v<T, double> ? "a number" : "a whole number";
    throw DataError(
        {"column " + shown(header_[place]) + (empty ? " is empty" : " holds " + shown(cell)) + ", which is not " + kind, where(),
         empty       ? "fill the cell in, or remove the row"
         : has_comma ? "a comma may mark decimals or thousands: write a decimal point, and no marks between thousands"
                     : "correct the cell, or remove the row"});
  }

  const std::filesystem::path& path_;
  char separator_;
  format::CsvReader reader_;
  std::vector<std::string> header_, row_;
  bool has_one_line_ = false;  // true: the text has carriage returns, but no line feed
  std::string rounded_;
  std::string with_comma_, with_point_;  // the first number with a comma, and the first with a point
};

// Returns what is known of a table before its rows are read: everything except the number of rows and the kinds of columns.
// `text` still has its byte-order mark, if there is one.
TableSeen seen_of(const Table& table, std::string_view text) {
  return {.separator = table.separator(),
          .had_mark = format::without_mark(text).size() < text.size(),
          .rows = 0,
          .columns = table.header(),
          .holds = {}};
}

}  // namespace

CsvSource::CsvSource(std::filesystem::path path, const std::vector<CsvField>& fields) : path_(std::move(path)) {
  std::vector<std::byte> bytes;
  const std::string_view text = text_of(path_, bytes);
  Table table(path_, format::without_mark(text));
  table.read_header();
  std::vector<Columns> all;
  for (const CsvField& field : fields) {
    if (field.dtype != DType::f32 && field.dtype != DType::i64) {
      throw ConfigError(Message{
          "field " + quoted(field.name) + " is asked for as " + std::string(name_of(field.dtype)) + ", which a table can't give",
          path_.string(), "ask for f32 or i64"});
    }
    Columns& columns = all.emplace_back(Columns{.field = &field, .places = {}, .floats = {}, .integers = {}});
    for (const std::string& column : field.columns) columns.places.push_back(table.place_of(column));
    if (field.columns.empty()) columns.places.push_back(table.place_of(field.name));
  }
  while (table.next()) {
    for (Columns& columns : all) table.take(columns);
    lines_.push_back(table.line());
  }
  if (lines_.empty())
    throw DataError({"the table has no rows", path_.string(), "give a file with a row for each sample below the header"});
  TableSeen seen = seen_of(table, text);
  seen.rows = std::ssize(lines_);
  read_as_ = data::read_as(seen) + (table.rounded().empty() ? "" : "; " + table.rounded());
  fingerprint_ = "csv " + std::to_string(lines_.size()) + " rows";
  std::vector<MemoryArray> arrays;
  for (Columns& columns : all) {
    const CsvField& field = *columns.field;
    const Shape shape = field.columns.empty() ? Shape{} : Shape{static_cast<std::int64_t>(field.columns.size())};
    arrays.push_back(field.dtype == DType::f32 ? memory_array(field.name, shape, std::move(columns.floats))
                                               : memory_array(field.name, shape, std::move(columns.integers)));
    fingerprint_ +=
        ' ' + field.name + ' ' + std::string(name_of(field.dtype)) + to_text(shape) + " of " +
        (field.columns.empty() ? quoted(field.name) : joined(field.columns, ",", [](const auto& name) { return quoted(name); }));
  }
  rows_ = std::make_unique<MemorySource>(std::move(arrays));
}

TableSeen look_at_table(const std::filesystem::path& path) {
  std::vector<std::byte> bytes;
  const std::string_view text = text_of(path, bytes);
  Table table(path, format::without_mark(text));
  table.read_header();
  TableSeen seen = seen_of(table, text);
  std::vector<std::array<std::int64_t, 4>> cells(seen.columns.size());  // for each column, the numbers of cells of each kind
  for (; table.next(); ++seen.rows) {
    for (std::size_t i = 0; i < cells.size(); ++i) ++cells[i].at(static_cast<std::size_t>(table.cell_at(i)));
  }
  for (const auto& [numbers, commas, texts, empty] : cells) {
    std::string holds = texts > 0 ? "text" : commas > 0 ? "numbers with decimal commas" : numbers > 0 ? "numbers" : "";
    if (empty > 0) holds += (holds.empty() ? "" : ", ") + with_commas(empty) + " empty";
    seen.holds.push_back(std::move(holds));
  }
  return seen;
}

std::string read_as(const TableSeen& seen) {
  const bool has_numbers =
      std::ranges::all_of(seen.columns, [](const std::string& name) { return number<double>(name).has_value(); });
  return with_commas(seen.rows) + (seen.rows == 1 ? " row of " : " rows of ") +
         (seen.columns.size() == 1 ? "1 column"
                                   : std::to_string(seen.columns.size()) + " columns, separated by " + word_of(seen.separator)) +
         (seen.had_mark ? "; a byte-order mark is ignored" : "") +
         (has_numbers ? "; the first row, which names the columns, holds numbers" : "");
}

std::string CsvSource::describe(std::int64_t index) const {
  return path_.string() + " line " + std::to_string(lines_[static_cast<std::size_t>(index)]);
}

}  // namespace millrace::data
