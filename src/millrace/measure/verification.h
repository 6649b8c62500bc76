// Whether a run would work here: `millrace doctor RECIPE --verify`.
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
  std::string found;      // what was seen, with its figures
  std::string next = "";  // what to do about it; "" where it passes
};
[[nodiscard]] std::string_view name_of(Check::Level level);  // "pass", "warn", "FAIL"

// Sets the run up as training would and makes steps of it, on the run's own data: the number format, where parameters and batch
// are, a rehearsal of every callback, what the steps moved, memory, and how busy the device was. `tell` hears each check when it
// is known. A check that fails is the last: those after it need what it checked. Writes no run folder and nothing else.
std::vector<Check> verify_run(RunRequest request, const std::function<void(const Check&)>& tell);

}  // namespace millrace
