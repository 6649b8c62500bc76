// Checks whether a run would work on this machine: `millrace doctor RECIPE --verify`.
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
  std::string name;  // a few words
  Level level = Level::pass;
  std::string found;      // the observation, with its figures
  std::string next = "";  // the remedy; "" if it passes
};
[[nodiscard]] std::string_view name_of(Check::Level level);  // "pass", "warn", "FAIL"

// Sets the run up like training and does steps of it, on the run's own data. Checks the number format, the place of parameters
// and batch, a rehearsal of every callback, which parameters the steps changed, memory, and the use of the device. `tell`
// receives each check as it completes. A failed check is the last, since later ones depend on it. Writes no files.
std::vector<Check> verify_run(RunRequest request, const std::function<void(const Check&)>& report);

}  // namespace millrace
