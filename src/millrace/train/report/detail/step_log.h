// A recipe's own log: see StepLog in recipe.h.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "millrace/base/fs.h"
#include "millrace/format/csv.h"
#include "millrace/train/recipe/recipe.h"

namespace millrace {

// May throw UsageError: the file is not the run's.
using PathOfTable = std::function<std::filesystem::path()>;

// Belongs to the loop's thread. A failed write never stops a run: see format/csv.h.
class StepLogWriter {
 public:
  // `file` is called once for the table's path, at the first row; null = no table. Existing rows of steps after `keep_through`
  // are removed: the run is resumed from there.
  StepLogWriter(StepLog log, Fs* fs, PathOfTable file, std::int64_t keep_through, format::Warn warn);
  void row(const LoggedStep& step);
  // The line for the console; nullopt if the recipe has no such line.
  [[nodiscard]] std::optional<std::string> line(const LoggedStep& step) const;

 private:
  void open();
  StepLog log_;
  Fs* fs_;
  PathOfTable file_;
  std::int64_t keep_through_;
  format::Warn warn_;
  std::unique_ptr<format::CsvWriter> table_;
};

}  // namespace millrace
