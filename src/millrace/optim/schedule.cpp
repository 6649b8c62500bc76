#include "millrace/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/config/reflect.h"

namespace millrace::optim {

namespace {

// The one-cycle schedule as its author published it and torch implements it: the rate rises over 30 % of the steps, from 1/25 of
// the peak.
constexpr double kOneCycleRise = 0.3;
constexpr double kOneCycleStart = 1.0 / 25.0;

// Interpolates along half a cosine: `from` at share 0, `to` at share 1.
double cosine_between(double from, double to, double share) {
  return to + (from - to) * (1.0 + std::cos(std::numbers::pi * share)) / 2.0;
}

double one_cycle(const OptimConfig& config, std::int64_t step, std::int64_t total_steps) {
  const double peak = config.learning_rate;
  const auto total = static_cast<double>(total_steps);
  const double rise = config.warmup_steps > 0 ? static_cast<double>(config.warmup_steps) : kOneCycleRise * total;
  const double top = std::clamp(rise - 1.0, 0.0, total - 1.0);  // the step of the peak
  const auto now = static_cast<double>(step);
  if (now < top) return cosine_between(peak * kOneCycleStart, peak, now / top);
  const double fall = total - 1.0 - top;
  return fall <= 0.0 ? peak : cosine_between(peak, config.min_learning_rate, std::min(1.0, (now - top) / fall));
}

template <class E>
std::string word_of(E value) {
  return std::string(config::detail::kEnumNames<E>[static_cast<std::size_t>(value)]);
}

double after_warmup(const OptimConfig& config, std::int64_t step, std::int64_t steps) {
  const double base = config.learning_rate;
  const double share = steps > 0 ? std::min(1.0, static_cast<double>(step) / static_cast<double>(steps)) : 1.0;
  switch (config.schedule) {
    case ScheduleKind::linear:
      return base + (config.min_learning_rate - base) * share;
    case ScheduleKind::cosine:
    case ScheduleKind::warmup_cosine:
      return cosine_between(base, config.min_learning_rate, share);
    case ScheduleKind::cosine_floor:
      return std::max(config.min_learning_rate, cosine_between(base, 0, share));
    case ScheduleKind::step: {
      const std::int64_t decays = step / config.decay_every;
      return std::max(std::min(base, config.min_learning_rate),
                      base * std::pow(config.decay_factor, static_cast<double>(decays)));
    }
    default:
      return base;
  }
}

// A recipe may give an objective settings that no check of a config has seen. For example, a beta of 1 makes every weight NaN in
// the first step, although the gradients are finite.
void check_ranges(const OptimConfig& config) {
  const auto require = [](bool holds, const char* key, double value, const char* range) {
    if (holds) return;
    throw ConfigError({.what = std::string(key) + " is " + significant(value, 6) + ", out of range",
                       .where = key,
                       .next = std::string("choose a value ") + range});
  };
  if (config.betas.size() != 2) {
    throw ConfigError({.what = "optim.betas has " + std::to_string(config.betas.size()) + " values, expected 2",
                       .where = "optim.betas",
                       .next = "give both, such as optim.betas=[0.9,0.999]"});
  }
  for (const double beta : config.betas) require(beta >= 0 && beta < 1, "optim.betas", beta, ">= 0 and < 1");
  require(config.learning_rate > 0 && std::isfinite(config.learning_rate), "optim.learning_rate", config.learning_rate, "> 0");
  require(config.eps > 0, "optim.eps", config.eps, "> 0");
  require(config.weight_decay >= 0, "optim.weight_decay", config.weight_decay, ">= 0");
  require(config.momentum >= 0 && config.momentum < 1, "optim.momentum", config.momentum, ">= 0 and < 1");
  require(config.ema_decay >= 0 && config.ema_decay < 1, "optim.ema_decay", config.ema_decay, ">= 0 and < 1");
}

}  // namespace

bool needs_length(ScheduleKind kind) noexcept {
  return kind == ScheduleKind::linear || kind == ScheduleKind::cosine || kind == ScheduleKind::warmup_cosine ||
         kind == ScheduleKind::cosine_floor || kind == ScheduleKind::one_cycle;
}

OptimConfig settled(OptimConfig config, std::int64_t total_steps, std::int64_t global_batch) {
  check_ranges(config);
  if (config.warmup_steps == 0 && needs_length(config.schedule)) {
    constexpr double kRounding = 1e-9;  // allows for rounding: .05 of 140 is a little more than 7
    const double steps = config.warmup_frac * static_cast<double>(total_steps);
    config.warmup_steps = config.schedule == ScheduleKind::cosine_floor ? static_cast<std::int64_t>(std::ceil(steps - kRounding))
                                                                        : std::llround(steps);
  }
  if (config.lr_scaling == RateScaling::none) return config;
  if (config.lr_scaling_batch == 0) {
    throw ConfigError({.what = "the learning rate can't be scaled, because the global batch for which it was chosen is not set",
                       .where = "optim.lr_scaling = " + word_of(config.lr_scaling) + ", optim.lr_scaling_batch = 0",
                       .next = "set optim.lr_scaling_batch to that global batch, or optim.lr_scaling to none"});
  }
  if (global_batch == 0) return config;
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(config.lr_scaling_batch);
  config.learning_rate *= config.lr_scaling == RateScaling::sqrt ? std::sqrt(ratio) : ratio;
  return config;
}

void check_schedule(const OptimConfig& config, std::int64_t total_steps) {
  const std::string where = "optim.schedule = " + word_of(config.schedule);
  if (needs_length(config.schedule) && total_steps <= 0) {
    throw ConfigError({.what = "the schedule must know how many steps the run has",
                       .where = where + ", train.max_steps = " + std::to_string(total_steps),
                       .next = "set train.max_steps or train.epochs, or use schedule constant, step or plateau"});
  }
  if (config.schedule == ScheduleKind::step && config.decay_every <= 0) {
    throw ConfigError({.what = "the schedule must know after how many steps to decay",
                       .where = where + ", optim.decay_every = " + std::to_string(config.decay_every),
                       .next = "set optim.decay_every to a number of steps above 0"});
  }
}

double learning_rate_at(const OptimConfig& config, std::int64_t step, std::int64_t total_steps) {
  check_schedule(config, total_steps);
  if (config.schedule == ScheduleKind::one_cycle) return one_cycle(config, step, total_steps);
  if (step < config.warmup_steps) {
    const auto warmup = static_cast<double>(config.warmup_steps);
    if (config.warmup_start == 0) return config.learning_rate * (static_cast<double>(step + 1) / warmup);
    return config.learning_rate * std::lerp(config.warmup_start, 1.0, static_cast<double>(step) / warmup);
  }
  return after_warmup(config, step - config.warmup_steps, total_steps - config.warmup_steps);
}

Plateau::Plateau(const OptimConfig& config)
    : decay_(config.decay_factor),
      threshold_(config.plateau_threshold),
      patience_(config.plateau_patience),
      min_factor_(std::min(1.0, config.min_learning_rate / config.learning_rate)),
      best_(std::numeric_limits<double>::infinity()) {}

void Plateau::observe(double metric) {
  const double least = best_ > 0 ? best_ * (1.0 - threshold_) : best_ * (1.0 + threshold_);
  if (std::isfinite(metric) && metric < least) {
    best_ = metric;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (bad_ <= patience_) return;
  factor_ = std::max(factor_ * decay_, min_factor_);
  bad_ = 0;
}

Json Plateau::state() const {
  Json state = {{"factor", factor_}, {"bad", bad_}};
  if (std::isfinite(best_)) state["best"] = best_;  // left out because JSON has no infinity
  return state;
}

void Plateau::load_state(const SavedJson& state) {
  const double factor = state["factor"].number();
  if (!(factor >= 0.0 && factor <= 1.0)) state["factor"].refuse("a number >= 0 and <= 1");
  const auto best = state.find("best");
  const double lowest = best ? best->number() : std::numeric_limits<double>::infinity();
  if (best && !std::isfinite(lowest)) best->refuse("a number");
  bad_ = state["bad"].integer(0);
  factor_ = factor;
  best_ = lowest;
}

}  // namespace millrace::optim
