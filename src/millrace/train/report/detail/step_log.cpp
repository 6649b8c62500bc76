#include "millrace/train/report/detail/step_log.h"

#include <cmath>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace {

double LoggedStep::mean(std::string_view name) const {
  const auto found = means.find(name);
  return found == means.end() ? std::nan("") : found->second;
}

StepLogWriter::StepLogWriter(StepLog log, Fs* fs, PathOfTable file, std::int64_t keep_through, format::Warn warn)
    : log_(std::move(log)), fs_(fs), file_(std::move(file)), keep_through_(keep_through), warn_(std::move(warn)) {}

void StepLogWriter::open() {
  const PathOfTable file = std::exchange(file_, nullptr);
  std::vector<std::string> columns = {"step"};
  columns.insert(columns.end(), log_.columns.begin(), log_.columns.end());
  try {
    table_ = std::make_unique<format::CsvWriter>(*fs_, file(), std::move(columns), warn_, keep_through_);
  } catch (const UsageError& error) {
    warn_("the table " + log_.name + ".csv could not be written: " + error.message().what);
  }
}

void StepLogWriter::row(const LoggedStep& step) {
  if (file_) open();
  if (table_ == nullptr) return;
  const std::vector<std::string> cells = log_.row(step);
  if (cells.size() != log_.columns.size()) {
    throw RecipeError({"a row of " + quoted(log_.name) + " has " + std::to_string(cells.size()) + " cells, but the table has " +
                           std::to_string(log_.columns.size()) + " columns",
                       "StepLog::row", "give each row a cell for each column"});
  }
  table_->row(step.step, cells);
}

std::optional<std::string> StepLogWriter::line(const LoggedStep& step) const {
  if (!log_.line) return std::nullopt;
  return log_.line(step);
}

}  // namespace millrace
