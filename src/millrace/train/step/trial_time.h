// How long the trials before a run's first step may take.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "millrace/base/clock.h"

namespace millrace {

// Leaves a trial that TrialTime ends. No std::exception: handlers of errors let it pass.
struct TrialsGivenUp {};

// All trials together may take a tenth of the time that the run will take, and 30 s in any case. How long the run takes is known
// from the fastest trial step; before it there is no limit, and neither is there for a run without an end. A step that has begun
// is not broken off. Belongs to one thread.
class TrialTime {
 public:
  static constexpr double kShare = 0.1, kAlways = 30;  // s

  TrialTime() = default;  // no limit
  // The time begins to run. `steps`: those of the run, as many as trial steps would be, 0 = no end.
  explicit TrialTime(double steps, std::function<double()> clock = steady_seconds);

  void begin_step() const;                                       // TrialsGivenUp if one more step is likely to end too late
  void made_step(double seconds);                                // of the passes alone
  [[nodiscard]] double step_seconds() const { return step_s_; }  // of the fastest; 0 = none was made
  [[nodiscard]] double left() const;                             // seconds; below 0 = the time is over; infinite = no limit
  // "trials were given up after 31 s, …": the reason of what then holds.
  [[nodiscard]] std::string reason() const;

 private:
  [[nodiscard]] double limit() const;

  double steps_ = 0;
  std::function<double()> clock_ = steady_seconds;
  double began_ = clock_();
  double step_s_ = 0;
};

}  // namespace millrace
