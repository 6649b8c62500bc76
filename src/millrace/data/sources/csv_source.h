// Tables in CSV files as samples: each row is a sample of numbers.
//
//   data::CsvSource("throws.csv", {{"x", {"speed", "angle"}},            // f32 [2]
//                                  {"y", {"distance"}},                  // f32 [1]
//                                  {.name = "label", .dtype = DType::i64}})  // i64 [], of the column "label"
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/data/loader/source.h"
#include "millrace/data/sources/memory_source.h"

namespace millrace::data {

// A field of the samples of a CsvSource.
struct CsvField {
  std::string name;
  // Names of columns in the header; the field then has shape [columns]. If empty, the field is the column called `name`, of
  // shape [].
  std::vector<std::string> columns = {};
  DType dtype = DType::f32;  // f32, or i64 for whole numbers
};

// What was found when a table was read.
struct TableSeen {
  char separator = ',';
  bool had_mark = false;             // true: the file begins with a byte-order mark
  std::int64_t rows = 0;             // number of rows after the header
  std::vector<std::string> columns;  // names of the columns
  // For each column: "numbers", "numbers with decimal commas" or "text", then the number of empty cells if there are any: "text,
  // 3 empty". "" if the table has no rows.
  std::vector<std::string> holds;
};
// Reads the whole table. Throws DataError as CsvSource does, except for the content of cells.
[[nodiscard]] TableSeen look_at_table(const std::filesystem::path& path);
// Returns a line such as "1,000 rows of 3 columns, separated by semicolons".
[[nodiscard]] std::string read_as(const TableSeen& seen);

// Sample i is row i of a table whose first row has the names of its columns. Columns that no field uses may hold anything. Cells
// may be quoted (RFC 4180), lines may end in CR LF, empty lines are skipped. Numbers are written as in C: 12, -0.5, 6.02e23,
// nan, inf. If the header has no comma, the separator is a semicolon or a tab, and decimal commas may be used throughout in
// place of points. The constructor reads the file once; the source keeps 4 or 8 bytes a number and 8 bytes a row. Throws
// DataError with file and line for a cell that is not a number of the field's type, and for a row with more or fewer cells than
// the header. Also throws DataError for a missing or repeated column and for a table without rows. Throws ConfigError for a
// dtype other than f32 and i64.
class CsvSource final : public Source {
 public:
  CsvSource(std::filesystem::path path, const std::vector<CsvField>& fields);

  [[nodiscard]] std::span<const Field> fields() const override { return rows_->fields(); }
  [[nodiscard]] std::int64_t size() const override { return rows_->size(); }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override {
    rows_->read(indices, rows, random);
  }
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return stamps_of({&path_, 1}); }
  [[nodiscard]] Keeps keeps() const override { return Keeps::memory; }
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return rows_->samples_per_ticket(); }
  [[nodiscard]] std::string read_as() const override { return read_as_; }
  // Returns a text such as "throws.csv line 12".
  [[nodiscard]] std::string describe(std::int64_t index) const override;

 private:
  std::filesystem::path path_;
  std::unique_ptr<MemorySource> rows_;
  std::vector<std::int64_t> lines_;  // line number of each row
  std::string fingerprint_, read_as_;
};

}  // namespace millrace::data
