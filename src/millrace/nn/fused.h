// Decides for each call whether it uses a fused operation. No other code decides it.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/telemetry/counter.h"

namespace millrace::nn {

// A switch for a fused operation, with its name in the switchboard. If the switch is on, the fused operation is used. If it is
// off, the plain path is used, which the comment beside the switch names. A switch is declared once, next to the functions that
// use it.
struct Switch {
  std::string_view name;  // must live as long as the process
};

// Functions count a call under this switch if they get a channels-last volume.
inline constexpr Switch kChannelsLast{"channels_last"};

// The switches that a run leaves on. Made once (Context::fused()) and passed to every function of nn. Copies share one list.
class Fused {
 public:
  Fused() = default;  // all switches are on
  [[nodiscard]] static Fused without(std::vector<Switch> off) {
    Fused some;
    if (!off.empty()) some.off_ = std::make_shared<const std::vector<Switch>>(std::move(off));
    return some;
  }
  [[nodiscard]] static Fused plain() {  // all switches are off
    Fused none;
    none.all_off_ = true;
    return none;
  }
  [[nodiscard]] bool on(const Switch& one) const noexcept {
    if (all_off_ || off_ == nullptr) return !all_off_;
    return std::ranges::none_of(*off_, [&](const Switch& off) { return off.name == one.name; });
  }

 private:
  bool all_off_ = false;
  std::shared_ptr<const std::vector<Switch>> off_;  // null if all switches are on
};

// Counts a call that used the fused operation of a switch, under the switch's name.
template <const Switch& kSwitch>
void count_taken() {
  static const telemetry::Counter taken(kSwitch.name);
  taken.add(1);
}

// True if a call uses its fused operation: all switches that it needs are on, a kernel supports these tensors (`fits`), and
// `faster()`, called last, says that the run's trial found it faster (nn/detail/operation_trials.h). Such a call is counted for
// each of the switches.
template <const Switch&... kNeeded, class Faster>
[[nodiscard]] bool choose(const Fused& fused, bool fits, const Faster& faster) {
  if (!(fused.on(kNeeded) && ...) || !fits || !faster()) return false;
  (count_taken<kNeeded>(), ...);
  return true;
}
template <const Switch&... kNeeded>
[[nodiscard]] bool choose(const Fused& fused, bool fits = true) {
  return choose<kNeeded...>(fused, fits, [] { return true; });
}

}  // namespace millrace::nn
