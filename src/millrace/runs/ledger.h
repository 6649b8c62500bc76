// What the doctor predicted and what then came: a line for each remedy that was tried, in the cache folder of this user. It tells
// how far its predictions can be trusted on this machine.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::runs {

struct LedgerLine {
  std::string finding;                // its id; "" = a trial of tune that no finding asked for
  std::string setting;                // "data.workers=2"
  double expected = 0, measured = 0;  // part of the loop's time that goes with it
  std::string recipe, cpu, source;    // source: "tune", or the folders of the two runs
  double unix_time = 0;
};

[[nodiscard]] Json to_json(const LedgerLine& line);
[[nodiscard]] std::filesystem::path ledger_file();
// Nothing of a line is written, or all. What can't be written is lost without a word: the ledger is no part of a run.
void write_down(const LedgerLine& line) noexcept;
// Whatever of the file is a line; the newest that are named alike by finding, setting and source count.
[[nodiscard]] std::vector<LedgerLine> read_ledger(const std::filesystem::path& file = ledger_file());

// A finished run beside this one in its parent folder that had a finding, and from which this one differs in the remedy alone:
// what it gained. nullopt when there is none. Never throws.
[[nodiscard]] std::optional<LedgerLine> followed_remedy(const std::filesystem::path& run) noexcept;

// Whether two texts of a config key's value, a flag's or a config file's, are the same value.
[[nodiscard]] bool is_same_value(const std::string& a, const std::string& b);

}  // namespace millrace::runs
