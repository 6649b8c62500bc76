#include "millrace/train/step/trial_time.h"

#include <algorithm>
#include <utility>

#include "millrace/base/format.h"

namespace millrace {

TrialTime::TrialTime(double steps, std::function<double()> clock) : steps_(steps), clock_(std::move(clock)), began_(clock_()) {}

double TrialTime::limit() const {
  if (steps_ <= 0 || step_s_ <= 0) return std::numeric_limits<double>::infinity();
  return std::max(kAlways, kShare * steps_ * step_s_);
}

double TrialTime::left() const { return limit() - (clock_() - began_); }

void TrialTime::begin_step() const {
  if (left() < step_s_) throw TrialsGivenUp{};
}

void TrialTime::made_step(double seconds) { step_s_ = step_s_ > 0 ? std::min(step_s_, seconds) : seconds; }

std::string TrialTime::reason() const {
  return "trials were given up after " + human_duration(clock_() - began_) + ", because they may take at most " +
         percent(kShare) + " of the run's " + human_duration(steps_ * step_s_) + ", or " + human_duration(kAlways) +
         " if that is more";
}

}  // namespace millrace
