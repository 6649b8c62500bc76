#include "millrace/format/csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "millrace/base/error.h"

namespace millrace::format {
namespace {

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + '"';
}

std::optional<std::int64_t> to_step(std::string_view text) {
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return step;
}

}  // namespace

std::string csv_number(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 40> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  MR_CHECK(error == std::errc(), "40 characters hold any double");
  return {buffer.data(), end};
}

std::string csv_line(std::span<const std::string> cells) {
  std::string line;
  for (const std::string& cell : cells) {
    if (&cell != cells.data()) line += ',';
    line += csv_cell(cell);
  }
  return line;
}

char csv_separator(std::string_view text) {
  const std::string_view names = text.substr(0, text.find('\n'));
  if (names.find(',') != std::string_view::npos) return ',';
  return names.find(';') != std::string_view::npos ? ';' : names.find('\t') != std::string_view::npos ? '\t' : ',';
}

std::optional<double> csv_value(std::string_view cell, bool decimal_comma) {
  std::string with_point(cell);
  if (const std::size_t comma = cell.find(','); decimal_comma && comma != std::string_view::npos) {
    const std::string_view whole = cell.substr(cell.find_first_not_of("+-"));
    const bool is_ambiguous = cell.size() - comma - 1 == 3 && !whole.starts_with("0,");
    if (is_ambiguous || cell.find('.') != std::string_view::npos) return std::nullopt;
    with_point[comma] = '.';
  }
  const char* const begin = with_point.data() + (with_point.size() > 1 && with_point[0] == '+' && with_point[1] != '-' ? 1 : 0);
  const char* const end = with_point.data() + with_point.size();
  double value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

std::string_view without_mark(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

bool CsvReader::next(std::vector<std::string>& row) {
  row.clear();
  if (at_ == text_.size()) return false;
  line_ = next_line_;
  std::string cell;
  bool is_quoted = false;
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '\n') ++next_line_;
    if (c == '"' && is_quoted && at_ < text_.size() && text_[at_] == '"') {
      cell += text_[at_++];
    } else if (c == '"' && (is_quoted || cell.empty())) {
      is_quoted = !is_quoted;
    } else if (c == separator_ && !is_quoted) {
      row.push_back(std::exchange(cell, {}));
    } else if (c == '\n' && !is_quoted) {
      if (!cell.empty() && cell.back() == '\r') cell.pop_back();
      row.push_back(std::move(cell));
      return true;
    } else {
      cell += c;
    }
  }
  complete_ = false;
  ends_in_quotes_ = is_quoted;
  row.push_back(std::move(cell));
  return true;
}

CsvTable parse_csv(std::string_view text) {
  CsvTable table;
  CsvReader reader(text);
  for (std::vector<std::string> row; reader.next(row);) table.rows.push_back(row);
  table.complete = reader.complete();
  return table;
}

CsvWriter::CsvWriter(Fs& fs, const std::filesystem::path& path, std::vector<std::string> columns, Warn warn,
                     std::optional<std::int64_t> keep_through)
    : columns_(std::move(columns)), file_(fs, path, std::move(warn)) {
  file_.guarded([&] { take_over(fs, keep_through); });
}

void CsvWriter::take_over(Fs& fs, std::optional<std::int64_t> keep_through) {
  if (!fs.exists(file_.path())) return;
  const std::string text = fs.read_file(file_.path());
  CsvTable table = parse_csv(text);
  if (!table.complete) table.rows.pop_back();
  if (table.rows.empty()) return fs.remove_all(file_.path());
  const std::vector<std::string> found = table.rows.front();
  const auto common = static_cast<std::ptrdiff_t>(std::min(found.size(), columns_.size()));
  if (!std::equal(found.begin(), found.begin() + common, columns_.begin())) {
    std::filesystem::path aside = file_.path();
    aside += ".old";
    const std::filesystem::path first = aside;
    for (int i = 2; fs.exists(aside); ++i) aside = first.string() + "." + std::to_string(i);  // never replaces an older file
    return fs.rename(file_.path(), aside);
  }
  if (found.size() > columns_.size()) columns_ = found;
  std::string kept = csv_line(columns_) + "\n";
  for (std::size_t i = 1; i < table.rows.size(); ++i) {
    std::vector<std::string>& row = table.rows[i];
    const std::optional<std::int64_t> step = to_step(row.front());
    if (row.size() != found.size() || !step || (keep_through && *step > *keep_through)) continue;
    row.resize(columns_.size());
    kept += csv_line(row) + "\n";
  }
  if (kept != text) write_atomically(fs, file_.path(), kept);
  has_head_ = true;
}

void CsvWriter::row(std::int64_t step, std::span<const std::string> cells) {
  MR_CHECK(cells.size() < columns_.size(), "a CSV row has no more cells than columns");
  if (!has_head_ && !file_.write_line(csv_line(columns_))) return;
  has_head_ = true;
  std::vector<std::string> row = {std::to_string(step)};
  row.insert(row.end(), cells.begin(), cells.end());
  row.resize(columns_.size());
  file_.write_line(csv_line(row));
}

}  // namespace millrace::format
