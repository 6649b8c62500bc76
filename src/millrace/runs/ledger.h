// The doctor's predictions and their outcomes, a line for each remedy that was tried, in this user's cache folder. They show how
// far the predictions can be trusted on this machine.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::runs {

struct LedgerLine {
  std::string finding;                // id of the finding; "" = a trial of tune without a finding
  std::string setting;                // "data.workers=2"
  double expected = 0, measured = 0;  // share of the loop's time that the setting saves
  std::string recipe, cpu, source;    // source: "tune", or the folders of the two runs
  double unix_time = 0;
};

[[nodiscard]] Json to_json(const LedgerLine& line);
[[nodiscard]] std::filesystem::path ledger_file();
// Writes a whole line or nothing. Errors are ignored: the ledger is not part of a run.
void write_down(const LedgerLine& line) noexcept;
// The valid lines of the file; among lines with the same finding, setting and source, the newest.
[[nodiscard]] std::vector<LedgerLine> read_ledger(const std::filesystem::path& file = ledger_file());

// Looks in the parent folder for a finished run that had a finding and from which this run differs only in the finding's remedy;
// returns a line with the measured gain. nullopt if there is no such run. Never throws.
[[nodiscard]] std::optional<LedgerLine> followed_remedy(const std::filesystem::path& run) noexcept;

// True if two texts of a config key's value, from a flag or a config file, are the same value.
[[nodiscard]] bool is_same_value(const std::string& a, const std::string& b);

}  // namespace millrace::runs
