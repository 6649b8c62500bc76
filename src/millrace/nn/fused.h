// Which fused operations a run uses, and the one place that decides it for each call.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/telemetry/counter.h"

namespace millrace::nn {

// A row of the switchboard, by its name. On: its fused operation is used; off: the plain path in the comment next to it. Declared
// once, next to the functions that use it.
struct Switch {
  std::string_view name;  // lives as long as the process
};

// Counted by the functions that get a channels-last volume.
inline constexpr Switch kChannelsLast{"channels_last"};

// The switches that a run leaves on, made once (Context::fused()) and passed to every function of nn. Copies share one list.
class Fused {
 public:
  Fused() = default;  // all are on
  [[nodiscard]] static Fused without(std::vector<Switch> off) {
    Fused some;
    if (!off.empty()) some.off_ = std::make_shared<const std::vector<Switch>>(std::move(off));
    return some;
  }
  [[nodiscard]] static Fused plain() {  // all are off
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
  std::shared_ptr<const std::vector<Switch>> off_;  // null if all are on
};

// Counts a call that used the path of a switch, by the switch's name.
template <const Switch& kSwitch>
void count_taken() {
  static const telemetry::Counter taken(kSwitch.name);
  taken.add(1);
}

// Whether a call uses its fused operation: all switches that the operation needs are on, a kernel supports these tensors
// (`fits`), and `faster()`, called last, says that the run's trial found the operation faster (nn/detail/operation_trials.h). A
// call that uses it is counted for each of the switches.
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
