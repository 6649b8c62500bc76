// Checks whether a run would work on this machine: for `millrace doctor RECIPE --verify`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/train/run/run.h"

namespace millrace {

struct Check {
  enum class Level : std::uint8_t { pass, warn, fail };
  std::string name;  // a name of a few words
  Level level = Level::pass;
  std::string found;      // what was found, with figures
  std::string next = "";  // what to do; "" if the check passes
};
[[nodiscard]] std::string_view name_of(Check::Level level);  // "pass", "warn", "FAIL"

// Sets the run up as training does, and makes steps on the run's own data. Checks the number format, the device of parameters
// and batch, all callbacks by a rehearsal, which parameters the steps changed, memory, and the use of the device. `report` gets
// each check when it is done. The checks end at the first failure, because later checks depend on earlier ones. Writes no files.
std::vector<Check> verify_run(RunRequest request, const std::function<void(const Check&)>& report);

}  // namespace millrace
