// A limit for the time that the trials before a run's first step may take.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "millrace/base/clock.h"

namespace millrace {

// Thrown out of a trial that has no time left. The type is not a std::exception, so that handlers of errors do not catch it.
struct TrialsGivenUp {};

// All trials together may take a tenth of the time that the run will take, or 30 s, whichever is longer. The run's time is
// predicted from the fastest trial step. There is no limit before the first such step, or for a run without an end. A step that
// has begun is completed. Belongs to one thread.
class TrialTime {
 public:
  static constexpr double kShare = 0.1, kAlways = 30;  // kShare: share of the run's time; kAlways: seconds that trials may take
                                                       // in any run

  TrialTime() = default;  // a TrialTime without a limit
  // Starts the clock. `steps`: the length of the run in steps like those of the trials; 0 = the run has no end.
  explicit TrialTime(double steps, std::function<double()> clock = steady_seconds);

  void begin_step() const;         // throws TrialsGivenUp if one more step is likely to end too late
  void made_step(double seconds);  // `seconds`: time of the forward and backward passes alone
  [[nodiscard]] double step_seconds() const { return step_s_; }  // time of the fastest trial step; 0 = no step was made
  [[nodiscard]] double left() const;  // seconds until the limit; below 0 = the time is over; infinite = no limit
  // A reason for the choices that keep their defaults: "trials were given up after 31 s, …".
  [[nodiscard]] std::string reason() const;

 private:
  [[nodiscard]] double limit() const;

  double steps_ = 0;
  std::function<double()> clock_ = steady_seconds;
  double began_ = clock_();
  double step_s_ = 0;
};

}  // namespace millrace
