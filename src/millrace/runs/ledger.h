// The ledger is a file in the user's cache folder. It has a line for each remedy of the doctor that was tried, with the
// predicted and the measured gain. So it shows how reliable predictions are on this machine.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::runs {

struct LedgerLine {
  std::string finding;                // id of the finding; "" = `millrace tune` tried the setting without a finding
  std::string setting;                // the remedy: "data.workers=2"
  double expected = 0, measured = 0;  // share of the loop's time that the setting saves
  std::string recipe, cpu, source;    // source: "tune", or the folders of the two runs that were compared
  double unix_time = 0;
};

[[nodiscard]] Json to_json(const LedgerLine& line);
[[nodiscard]] std::filesystem::path ledger_file();
// Appends a whole line or nothing. Errors are ignored, because no run depends on the ledger.
void write_down(const LedgerLine& line) noexcept;
// The valid lines of the file. Of several lines with the same finding, setting and source, only the newest is returned; but
// lines with the source "tune" are all returned.
[[nodiscard]] std::vector<LedgerLine> read_ledger(const std::filesystem::path& file = ledger_file());

// Returns a ledger line with the measured gain if the run in the folder `run` tried a remedy that the doctor proposed for
// another run. The other run has finished, is in the same parent folder, and its config may differ only in this remedy. nullopt
// if there is no such run. Never throws.
[[nodiscard]] std::optional<LedgerLine> followed_remedy(const std::filesystem::path& run) noexcept;

// True if two texts, from a flag or a config file, are the same value of a config key.
[[nodiscard]] bool is_same_value(const std::string& a, const std::string& b);

}  // namespace millrace::runs
