#include "millrace/cli/doctor_forms.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "millrace/cli/shared/text.h"
#include "millrace/runs/ledger.h"

namespace millrace::cli {
namespace {

constexpr double kGoal = 0.25;  // the largest acceptable error of a prediction, as a share of the measured gain

struct Row {
  std::vector<double> expected, measured, errors;
  int near = 0;
};

// The error of a prediction as a share of the measured gain. A gain below a twentieth of the time counts as a twentieth.
double error_of(const runs::LedgerLine& line) {
  constexpr double kLeast = 0.05;
  return (line.expected - line.measured) / std::max(std::abs(line.measured), kLeast);
}

}  // namespace

int doctor_self(bool json) {
  std::map<std::string, Row> rows;
  const std::vector<runs::LedgerLine> lines = runs::read_ledger();
  for (const runs::LedgerLine& line : lines) {
    Row& row = rows[line.finding.empty() ? "(no finding)" : line.finding];
    row.expected.push_back(line.expected);
    row.measured.push_back(line.measured);
    row.errors.push_back(error_of(line));
    row.near += std::abs(row.errors.back()) <= kGoal ? 1 : 0;
  }
  if (json) {
    Json all = Json::array();
    for (const runs::LedgerLine& line : lines) all.push_back(runs::to_json(line));
    print_json({{"file", runs::ledger_file().string()}, {"lines", std::move(all)}});
    return 0;
  }
  if (rows.empty()) {
    print(
        "no remedy of the doctor has been tried here yet: millrace tune tries them, and so does a run that follows the findings "
        "of an\nearlier run\n");
    return 0;
  }
  std::vector<std::vector<std::string>> table_rows = {{"finding", "tried", "expected", "measured", "off by", "within 25 %"}};
  for (const auto& [name, row] : rows) {
    table_rows.push_back({name, std::to_string(row.errors.size()), percent(median(row.expected)), percent(median(row.measured)),
                          percent(median(row.errors)), std::to_string(row.near)});
  }
  print("time saved here by remedies, next to the prediction (medians)\n" + table(table_rows));
  return 0;
}

}  // namespace millrace::cli
