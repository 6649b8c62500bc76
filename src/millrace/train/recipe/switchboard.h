// The switchboard: every optimisation is one row of one table, with a name, an off switch and a check against the plain path.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

enum class Equality : std::uint8_t { bits, tolerance, statistical };

// A row of the switchboard: what the optimisation replaces, and how exactly results with the optimisation equal results without
// it.
struct SwitchRow {
  // The circumstances in which a row matters. In these circumstances a test turns the row off and on, and `millrace bench
  // ablate` measures the difference.
  struct Occasion {
    struct Value {
      std::string_view key, value;  // as in --key=value
    };
    bool named = false;                // true: the row matters only to recipes whose Entry::switches names it; false: to all
    std::array<Value, 2> config = {};  // keys that the run's config must have for the row to matter; unused entries are empty
  };

  std::string_view name;        // the name in --off=name
  std::string_view help;        // one line that says what the optimisation does
  std::string_view plain_path;  // what runs instead if the row is off
  Equality equality;            // how exactly results with the row on equal those with the row off
  double tolerance;             // relative difference that Equality::tolerance allows
  bool per_process;  // true: can be set only before a process makes its first tensor, so tests check it in child processes
  Occasion occasion = {};
};

// All rows. Every optimisation that Millrace claims must be in this table. If nothing else shows that a row's path was taken,
// the row has a telemetry::Counter with the row's name, which tests/switches reads.
[[nodiscard]] std::span<const SwitchRow> switch_rows();

// Which rows are on in a run, each with a reason.
class Switches {
 public:
  struct Setting {
    const SwitchRow* row;
    bool on;
    std::string reason;  // "default", "--off", or why the precondition does not hold on this machine
  };
  // `off` names rows to turn off, or "all"; an unknown name is a ConfigError with the nearest name.
  explicit Switches(std::span<const std::string> off = {});
  [[nodiscard]] bool on(std::string_view name) const;      // InternalError for a name that is not in the table
  void refuse(std::string_view name, std::string reason);  // turns a row off because its precondition does not hold
  void explain(std::string_view name, std::string reason);
  [[nodiscard]] const std::vector<Setting>& settings() const noexcept { return settings_; }

 private:
  std::vector<Setting> settings_;
};

}  // namespace millrace
