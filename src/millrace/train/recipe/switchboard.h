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

// A row says what the optimisation replaces and in which sense results with it equal those without.
struct SwitchRow {
  // Where a row matters. A test turns it off and on there, and `bench ablate` measures it there.
  struct Occasion {
    struct Value {
      std::string_view key, value;  // as in --key=value
    };
    bool named = false;                // true: the row matters only to recipes whose Entry::switches names it; false: to all
    std::array<Value, 2> config = {};  // keys that the run's config must set; unused entries are empty
  };

  std::string_view name;        // as in --off=name
  std::string_view help;        // what it does, one line
  std::string_view plain_path;  // what runs if it is off
  Equality equality;            // in which sense results with it equal those without
  double tolerance;             // relative, for Equality::tolerance
  bool per_process;             // can be set only before the first tensor is made: checked in child processes
  Occasion occasion = {};
};

// All rows. A claimed optimisation must be in this table. If nothing else shows that a row's path is taken, a telemetry::Counter
// of the row's name counts it; tests/switches reads the counter.
[[nodiscard]] std::span<const SwitchRow> switch_rows();

// Which rows are on in a run, with a reason for each.
class Switches {
 public:
  struct Setting {
    const SwitchRow* row;
    bool on;
    std::string reason;  // "default", "--off", or why the precondition does not hold on this machine
  };
  // `off` names rows to turn off, or "all"; an unknown name is a ConfigError with the nearest one.
  explicit Switches(std::span<const std::string> off = {});
  [[nodiscard]] bool on(std::string_view name) const;      // InternalError for a name that is not in the table
  void refuse(std::string_view name, std::string reason);  // precondition does not hold
  void explain(std::string_view name, std::string reason);
  [[nodiscard]] const std::vector<Setting>& settings() const noexcept { return settings_; }

 private:
  std::vector<Setting> settings_;
};

}  // namespace millrace
