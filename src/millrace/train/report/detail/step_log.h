// Writes the log that a recipe defines in its own format: see StepLog in recipe.h.
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

// Returns the path of the log's file. May throw UsageError if a file with this name exists and is not the run's.
using PathOfTable = std::function<std::filesystem::path()>;

// Belongs to the loop's thread. A failed write never stops a run: see format/csv.h.
class StepLogWriter {
 public:
  // `file` returns the path of the table and is called once, when the first row is written; null: there is no table. Rows of
  // steps after `keep_through` are then removed from an existing file, because the run is resumed from that step.
  StepLogWriter(StepLog log, Fs* fs, PathOfTable file, std::int64_t keep_through, format::Warn warn);
  void row(const LoggedStep& step);
  // The recipe's line for the console; nullopt if the recipe defines no such line.
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
