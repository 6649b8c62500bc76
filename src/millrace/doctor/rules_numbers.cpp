#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/doctor/detail/rule_list.h"

namespace millrace::doctor::detail {
namespace {

constexpr double kSkips = 0.01;           // of the steps
constexpr double kSkipsWithScale = 0.10;  // a loss scale that finds its place skips some
constexpr double kSpikes = 0.05;          // of the steps
constexpr std::size_t kSame = 6;          // log lines in a row
constexpr std::int64_t kPinnedSteps = 200;
constexpr double kPinned = 0.007;  // of the loss: 0.02 nats at the entropy of a text's characters
constexpr double kSaturated = 0.5;
constexpr double kVanishes = 1e-12, kExplodes = 300;
constexpr std::size_t kRises = 5;      // validations in a row
constexpr double kHigh = 0.9;          // of the memory there is
constexpr double kWorthSaving = 0.05;  // of what is taken

bool is_high(const Memory& memory) {
  return memory.room > 0 && static_cast<double>(memory.used) >= kHigh * static_cast<double>(memory.room);
}

std::string high_text(const Evidence& e) {
  return std::string(e.on_gpu ? "tensors and what is kept for them take " : "the process holds ") +
         human_bytes(static_cast<double>(e.memory.used)) + ", " +
         percent(static_cast<double>(e.memory.used) / static_cast<double>(e.memory.room)) + " of the " +
         human_bytes(static_cast<double>(e.memory.room)) + " that it may have";
}

}  // namespace

Found not_finite(const Evidence& e) {
  const double share = static_cast<double>(e.numbers.skipped) / static_cast<double>(std::max<std::int64_t>(e.times.steps, 1));
  if (share < (e.numbers.scaled ? kSkipsWithScale : kSkips)) return std::nullopt;
  const std::string what = with_commas(e.numbers.skipped) + " of " + with_commas(e.times.steps) +
                           " steps were skipped: their loss or gradients were not finite";
  Finding finding =
      e.numbers.scaled ? set(what, "precision.dtype", "bf16", gain_of(share)) : set(what, "optim.clip_norm", "1", gain_of(share));
  if (e.numbers.clips || !e.numbers.scaled)
    finding.remedy = "lower optim.learning_rate, look for zeros under a root or a logarithm, or divisions by them";
  if (!e.numbers.scaled) finding.key = finding.value = "";
  return finding;
}

// With optim.spike_zscore alone: else no step is left out.
Found spikes(const Evidence& e) {
  const double share = static_cast<double>(e.numbers.spikes) / static_cast<double>(std::max<std::int64_t>(e.times.steps, 1));
  if (share < kSpikes) return std::nullopt;
  return Finding{.id = {},
                 .what = with_commas(e.numbers.spikes) + " of " + with_commas(e.times.steps) +
                         " steps were left out: their loss or gradient jumped (optim.spike_zscore)",
                 .remedy = "lower optim.learning_rate, warm up longer (optim.warmup_steps), look at the batches of those steps",
                 .key = {},
                 .value = {},
                 .gain = gain_of(share)};
}

Found loss_flat(const Evidence& e) {
  const auto& lines = e.numbers.lines;
  if (lines.size() < kSame) return std::nullopt;
  const double now = lines.back().loss;
  const bool same = std::all_of(lines.end() - kSame, lines.end(),
                                [&](const LossLine& line) { return std::abs(line.loss - now) <= 1e-7 * std::abs(now); });
  if (!same || !std::isfinite(now)) return std::nullopt;
  return Finding{.id = {},
                 .what = "the loss is " + significant(now, 7) + " at each of the last " + std::to_string(kSame) + " log lines",
                 .remedy = "no gradient reaches the weights: a clamp at its limit, a detach(), or a learning rate of 0",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

// All log lines that there are but for those longer ago than need be.
Found loss_pinned(const Evidence& e) {
  const auto& lines = e.numbers.lines;
  const auto& blind = e.numbers.blind;
  if (!blind || lines.size() < kSame) return std::nullopt;
  std::size_t pinned = 0;
  std::int64_t steps = 0;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line, ++pinned) {
    if (!(std::abs(line->loss - blind->loss) <= kPinned * std::abs(blind->loss))) break;
    steps = lines.back().step - line->step;
  }
  if (pinned < kSame || steps < kPinnedSteps) return std::nullopt;
  return Finding{.id = {},
                 .what = "for " + with_commas(steps) + " steps the loss has been about " + significant(blind->loss, 4) + ", " +
                         blind->what + ": what an answer gets that does not look at the input",
                 .remedy =
                     "see that the input reaches the output: its scale beside what is added to it, a mask, what a sample is "
                     "paired with; else another optim.learning_rate",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

Found gradient_norm(const Evidence& e) {
  const auto& lines = e.numbers.lines;
  if (lines.size() < kSame) return std::nullopt;
  const auto all = [&](auto is) {
    return std::all_of(lines.end() - kSame, lines.end(), [&](const LossLine& line) { return is(line.gradient_norm); });
  };
  const bool vanish = all([](double norm) { return norm < kVanishes; });
  const bool explode = !e.numbers.clips && all([](double norm) { return norm > kExplodes; });
  if (!vanish && !explode) return std::nullopt;
  const std::string what = "the norm of the gradients is " + significant(lines.back().gradient_norm, 3) + ", and was beyond " +
                           significant(vanish ? kVanishes : kExplodes, 1) + " at the last " + std::to_string(kSame) +
                           " log lines";
  if (explode) return set(what, "optim.clip_norm", "1", std::nullopt);
  return Finding{.id = {},
                 .what = what,
                 .remedy = "nothing is learnt: look for a saturated activation, a clamp, or a loss that is divided by too much",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

Found saturated_clamp(const Evidence& e) {
  const auto share = [](const Clamp& clamp) { return clamp.values > 0 ? clamp.at_border / clamp.values : 0.0; };
  const auto worst = std::ranges::max_element(e.numbers.clamps, {}, share);
  if (worst == e.numbers.clamps.end() || share(*worst) < kSaturated) return std::nullopt;
  return Finding{.id = {},
                 .what = percent(share(*worst)) + " of the values of " + worst->name + " are at a border of its clamp, " +
                         significant(worst->low, 4) + " or " + significant(worst->high, 4) + ": no gradient goes through there",
                 .remedy = "widen the clamp or leave it out, and see what drives the values there: a weight of the loss, a scale",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

Found overfitting(const Evidence& e) {
  const std::vector<double>& losses = e.numbers.validation;
  if (losses.size() <= kRises || e.numbers.stops_early || e.numbers.lines.size() < 2) return std::nullopt;
  for (std::size_t i = losses.size() - kRises; i < losses.size(); ++i) {
    if (!(losses[i] > losses[i - 1])) return std::nullopt;
  }
  if (e.numbers.lines.back().loss >= e.numbers.lines.front().loss) return std::nullopt;
  return set("the loss of the validation rose " + std::to_string(kRises) + " times in a row, from " +
                 significant(losses[losses.size() - 1 - kRises], 4) + " to " + significant(losses.back(), 4) +
                 ", while that of the training falls",
             "train.early_stop_patience", std::to_string(kRises), std::nullopt);
}

// What it costs is said, for there is no time to gain.
Found recompute_needed(const Evidence& e) {
  const auto& recompute = e.experiments.recompute;
  if (!is_high(e.memory) || !recompute) return std::nullopt;
  if (static_cast<double>(recompute->saved_bytes) < kWorthSaving * static_cast<double>(e.memory.used)) return std::nullopt;
  const double step = e.times.loop() / static_cast<double>(std::max<std::int64_t>(e.times.steps, 1));
  return set(high_text(e) + "; blocks that are computed again in the backward pass would hold " +
                 human_bytes(static_cast<double>(recompute->saved_bytes)) + " less, for about " +
                 percent(recompute->seconds / std::max(step, 1e-9)) + " more time",
             "memory.recompute", "all", std::nullopt);
}

Found memory_high(const Evidence& e) {
  if (!is_high(e.memory) || recompute_needed(e)) return std::nullopt;
  return Finding{.id = {},
                 .what = high_text(e),
                 .remedy = "lower data.batch_size, or set memory.recompute=all or memory.micro_batches=2",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

Found memory_growing(const Evidence& e) {
  if (e.memory.rising.empty()) return std::nullopt;
  return Finding{.id = {},
                 .what = e.memory.rising,
                 .remedy =
                     "something keeps tensors from step to step, such as a loss that is summed with its graph: detach() "
                     "what the recipe keeps",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

}  // namespace millrace::doctor::detail
