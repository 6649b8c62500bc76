#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "millrace/doctor/detail/rule_list.h"

namespace millrace::doctor::detail {
namespace {

using LossLine = Evidence::LossLine;
using ObjectiveLines = Evidence::ObjectiveLines;

// share of skipped steps that is normal with a loss scale, which skips steps while it adapts
constexpr double kSkipsWithScale = 0.10;
constexpr double kSpikes = 0.05;  // share of the steps that were left out as spikes
constexpr std::size_t kSame = 6;  // number of consecutive log lines that must show the fault
constexpr std::int64_t kPinnedSteps = 200;
// largest distance between the loss and that of the blind answer (Evidence::Blind), relative to the latter; if the latter is the
// entropy of a text's characters, 0.007 is 0.02 nats
constexpr double kPinned = 0.007;
constexpr double kVanished = 1e-8;  // if the loss is below this, there is nothing left to learn
// A loss jumps if it exceeds the median of the preceding log lines by this many median absolute deviations, and by this share of
// the median.
constexpr double kJumpDeviations = 6, kJumpPart = 0.2;
constexpr std::ptrdiff_t kLinesBefore = 8, kMostLinesBefore = 12;
constexpr std::int64_t kStepsOfALine = 10;  // a line that averages fewer steps depends on single batches, so it is ignored
constexpr int kJumps = 3;
constexpr double kSaturated = 0.5;
constexpr double kVanishes = 1e-12, kExplodes = 300;
constexpr std::size_t kRises = 5;      // number of consecutive validations in which the loss rose
constexpr double kHigh = 0.9;          // memory in use, as a share of the memory that may be used
constexpr double kWorthSaving = 0.05;  // memory that recompute saves, as a share of the memory in use

bool is_high(const Evidence::Memory& memory) {
  return memory.room > 0 && static_cast<double>(memory.used) >= kHigh * static_cast<double>(memory.room);
}

std::string high_text(const Evidence& e) {
  return std::string(e.on_gpu ? "tensors and the memory reserved for them take " : "the process holds ") +
         human_bytes(static_cast<double>(e.memory.used)) + ", " +
         percent(static_cast<double>(e.memory.used) / static_cast<double>(e.memory.room)) + " of the " +
         human_bytes(static_cast<double>(e.memory.room)) + " that " + (e.on_gpu ? "the GPU has" : "it may have");
}

std::string loss_of(const Evidence& e, const ObjectiveLines& objective) {
  return e.numbers.objectives.size() > 1 ? "the loss of " + objective.name : "the loss";
}

// The first objective for which `is_so` is true; null if there is none.
template <class Test>
const ObjectiveLines* objective_with(const Evidence& e, Test is_so) {
  const auto found = std::ranges::find_if(e.numbers.objectives, is_so);
  return found == e.numbers.objectives.end() ? nullptr : &*found;
}

// True if there are at least kSame log lines and `is_so` is true for the last kSame lines.
template <class Test>
bool all_of_last(const std::vector<LossLine>& lines, Test is_so) {
  constexpr auto kCount = static_cast<std::ptrdiff_t>(kSame);
  return lines.size() >= kSame && std::all_of(lines.end() - kCount, lines.end(), is_so);
}

bool is_flat(const ObjectiveLines& objective) {
  if (objective.lines.empty()) return false;
  const double now = objective.lines.back().loss;
  if (!std::isfinite(now) || std::abs(now) < kVanished) return false;  // the rule loss_vanished reports this case
  return all_of_last(objective.lines, [&](const LossLine& line) { return std::abs(line.loss - now) <= 1e-7 * std::abs(now); });
}

// True if the loss of this line is far above the losses of the preceding lines.
bool jumps(std::vector<LossLine>::const_iterator first, std::vector<LossLine>::const_iterator line) {
  if (line - first < kLinesBefore || line->step - std::prev(line)->step < kStepsOfALine) return false;
  std::vector<double> before;
  for (auto each = line - std::min(kMostLinesBefore, line - first); each != line; ++each) before.push_back(each->loss);
  if (!std::ranges::all_of(before, [](double loss) { return std::isfinite(loss); })) return false;
  const double usual = median(before);
  for (double& loss : before) loss = std::abs(loss - usual);
  return line->loss > usual + std::max(kJumpDeviations * median(before), kJumpPart * std::abs(usual));
}

// Counts the jumps of the loss. A loss that stays high for several lines counts once.
int jumps_of(const ObjectiveLines& objective) {
  int count = 0;
  bool is_up = false;
  for (auto line = objective.lines.begin(); line != objective.lines.end(); ++line) {
    const bool was_up = std::exchange(is_up, jumps(objective.lines.begin(), line));
    if (is_up && !was_up) ++count;
  }
  return count;
}

}  // namespace

// Fires if steps were skipped because values were not finite. If the input of these steps is not finite, the input is the cause,
// and no other remedy is suggested.
Found not_finite(const Evidence& e) {
  const Evidence::SkippedInput& input = e.numbers.input;
  const std::int64_t steps = std::max(e.times.steps, e.numbers.skipped);
  const double share = static_cast<double>(e.numbers.skipped) / static_cast<double>(std::max<std::int64_t>(steps, 1));
  if (e.numbers.skipped <= 0 || (e.numbers.scaled && input.first.empty() && share < kSkipsWithScale)) return std::nullopt;
  const bool is_one = e.numbers.skipped == 1;
  std::string what = with_commas(e.numbers.skipped) + " of " + with_commas(steps) + (is_one ? " steps was" : " steps were") +
                     " skipped: " + (is_one ? "its" : "their") + " loss or gradients were not finite";
  if (e.script) what = "the loss of " + with_commas(e.numbers.skipped) + " of " + with_commas(steps) + " steps is not finite";
  const auto notices = [&](std::string remedy) {
    return Finding{.id = {}, .what = what, .remedy = std::move(remedy), .key = {}, .value = {}, .gain = gain_of(share)};
  };
  const std::string look = "look for zeros under a root, in a logarithm or in a divisor";
  if (!input.first.empty()) {
    what +=
        (input.prepared ? "; the input is finite, but prepare() makes values from it that are not: " : ", nor is the input: ") +
        input.first;
    if (input.samples > 1)
      what += ", and " + with_commas(input.samples - 1) + (input.samples == 2 ? " more sample" : " more samples");
    if (input.prepared) return notices("in Recipe::prepare(), " + look);
    return notices("repair or remove " + std::string(input.samples > 1 ? "these samples" : "the sample") +
                   "; if such values mark missing data, leave them out of the loss");
  }
  if (input.all) what += std::string("; ") + (is_one ? "its" : "their") + " input is finite";
  if (e.numbers.scaled && e.numbers.has_bf16) return set(what, "precision.dtype", "bf16", gain_of(share));
  const bool clips = objective_with(e, [](const Evidence::ObjectiveLines& objective) { return objective.clips; }) != nullptr;
  if (!input.all) return notices("look at the input of these steps, lower optim.learning_rate, or " + look);
  if (clips) return notices("lower optim.learning_rate, or " + look);
  Finding finding = set(what, "optim.clip_norm", "1", gain_of(share));
  finding.remedy += "; otherwise lower optim.learning_rate, or " + look;
  return finding;
}

// Fires if steps were left out as spikes, which happens only with optim.spike_zscore.
Found spikes(const Evidence& e) {
  const double share = static_cast<double>(e.numbers.spikes) / static_cast<double>(std::max<std::int64_t>(e.times.steps, 1));
  if (share < kSpikes) return std::nullopt;
  return Finding{
      .id = {},
      .what = with_commas(e.numbers.spikes) + " of " + with_commas(e.times.steps) +
              " steps were left out, because their loss or gradient jumped (optim.spike_zscore)",
      .remedy = "lower optim.learning_rate, warm up longer (optim.warmup_steps), or look at the batches of those steps",
      .key = {},
      .value = {},
      .gain = gain_of(share)};
}

Found loss_flat(const Evidence& e) {
  const ObjectiveLines* flat = objective_with(e, is_flat);
  if (flat == nullptr) return std::nullopt;
  return Finding{.id = {},
                 .what = loss_of(e, *flat) + " is " + significant(flat->lines.back().loss, 7) + " at each of the last " +
                         std::to_string(kSame) + " log lines",
                 .remedy = "no gradient reaches the weights: look for a clamp at its limit, a detach(), or a learning rate of 0",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

Found loss_vanished(const Evidence& e) {
  const ObjectiveLines* gone = objective_with(e, [](const ObjectiveLines& objective) {
    return all_of_last(objective.lines, [](const LossLine& line) { return std::abs(line.loss) < kVanished; });
  });
  if (gone == nullptr) return std::nullopt;
  return Finding{.id = {},
                 .what = loss_of(e, *gone) + " is nearly 0, " + significant(gone->lines.back().loss, 2) + ", and was below " +
                         significant(kVanished, 1) + " at the last " + std::to_string(kSame) + " log lines",
                 .remedy =
                     "labels leak into the input, or this loss is wrong: check its inputs and its weight, and whether a mask "
                     "leaves any values",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

// Fires if the loss jumps often. Judges by the means in log lines; optim.spike_zscore judges single steps.
Found loss_spiking(const Evidence& e) {
  const ObjectiveLines* jumping =
      objective_with(e, [](const ObjectiveLines& objective) { return jumps_of(objective) >= kJumps; });
  if (jumping == nullptr) return std::nullopt;
  const auto& lines = jumping->lines;
  return Finding{.id = {},
                 .what = loss_of(e, *jumping) + " jumped far above its previous level " + std::to_string(jumps_of(*jumping)) +
                         " times since step " + with_commas(lines.front().step) + ", to " +
                         significant(std::ranges::max_element(lines, {}, &LossLine::loss)->loss, 4) + " at most",
                 .remedy =
                     "lower optim.learning_rate, warm up longer (optim.warmup_steps), set optim.clip_norm, or set "
                     "optim.spike_zscore=6, which skips such steps",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

// Fires if the loss stays near the loss of the blind answer.
Found loss_pinned(const Evidence& e) {
  const auto& blind = e.numbers.blind;
  if (!blind || e.numbers.objectives.empty() || e.numbers.objectives.front().lines.size() < kSame) return std::nullopt;
  const auto& lines = e.numbers.objectives.front().lines;
  std::size_t pinned = 0;
  std::int64_t steps = 0;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line, ++pinned) {
    if (!(std::abs(line->loss - blind->loss) <= kPinned * std::abs(blind->loss))) break;
    steps = lines.back().step - line->step;
  }
  if (pinned < kSame || steps < kPinnedSteps) return std::nullopt;
  return Finding{.id = {},
                 .what = "for " + with_commas(steps) + " steps the loss has been about " + significant(blind->loss, 4) + ", " +
                         blind->what + ": the level of an answer that ignores the input",
                 .remedy =
                     "check that the input reaches the output: look at its scale relative to the values added to it, at masks, "
                     "and at the target of each sample; if all are right, try another optim.learning_rate",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

Found gradient_norm(const Evidence& e) {
  const auto vanishes = [](const ObjectiveLines& objective) {
    return all_of_last(objective.lines, [](const LossLine& line) { return line.gradient_norm < kVanishes; });
  };
  const auto explodes = [](const ObjectiveLines& objective) {
    return !objective.clips && all_of_last(objective.lines, [](const LossLine& line) { return line.gradient_norm > kExplodes; });
  };
  const ObjectiveLines* vanishing = objective_with(e, vanishes);
  const ObjectiveLines* sick = vanishing != nullptr ? vanishing : objective_with(e, explodes);
  if (sick == nullptr) return std::nullopt;
  const std::string of = e.numbers.objectives.size() > 1 ? " of " + sick->name : "";
  const std::string what = "the norm of the gradients" + of + " is " + significant(sick->lines.back().gradient_norm, 3) +
                           ", and was " + (vanishing != nullptr ? "below " : "above ") +
                           significant(vanishing != nullptr ? kVanishes : kExplodes, 1) + " at the last " +
                           std::to_string(kSame) + " log lines";
  if (vanishing == nullptr) return set(what, "optim.clip_norm", "1", std::nullopt);
  return Finding{.id = {},
                 .what = what,
                 .remedy = "nothing is learnt: look for a saturated activation, a clamp, or a loss that is divided by too much",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

Found saturated_clamp(const Evidence& e) {
  const auto share = [](const Evidence::Clamp& clamp) { return clamp.values > 0 ? clamp.at_border / clamp.values : 0.0; };
  const auto worst = std::ranges::max_element(e.numbers.clamps, {}, share);
  if (worst == e.numbers.clamps.end() || share(*worst) < kSaturated) return std::nullopt;
  return Finding{
      .id = {},
      .what = percent(share(*worst)) + " of the values of " + worst->name + " are at a border of its clamp, " +
              significant(worst->low, 4) + " or " + significant(worst->high, 4) + ": no gradient goes through there",
      .remedy = "widen the clamp or leave it out, and find what drives the values there, such as a weight of the loss or a scale",
      .key = {},
      .value = {},
      .gain = std::nullopt};
}

Found overfitting(const Evidence& e) {
  const std::vector<double>& losses = e.numbers.validation;
  if (losses.size() <= kRises || e.numbers.stops_early || e.numbers.objectives.empty()) return std::nullopt;
  const auto& lines = e.numbers.objectives.front().lines;
  if (lines.size() < 2 || lines.back().loss >= lines.front().loss) return std::nullopt;
  for (std::size_t i = losses.size() - kRises; i < losses.size(); ++i) {
    if (!(losses[i] > losses[i - 1])) return std::nullopt;
  }
  return set("the validation loss rose " + std::to_string(kRises) + " times in a row, from " +
                 significant(losses[losses.size() - 1 - kRises], 4) + " to " + significant(losses.back(), 4) +
                 ", while the training loss falls",
             "train.early_stop_patience", std::to_string(kRises), std::nullopt);
}

// Fires if memory is short and recompute would save enough. States the cost of this remedy instead of a gain, because recompute
// saves memory but no time.
Found recompute_needed(const Evidence& e) {
  const auto& recompute = e.experiments.recompute;
  if (!is_high(e.memory) || !recompute) return std::nullopt;
  if (static_cast<double>(recompute->saved_bytes) < kWorthSaving * static_cast<double>(e.memory.used)) return std::nullopt;
  const double step = e.times.loop() / static_cast<double>(std::max<std::int64_t>(e.times.steps, 1));
  return set(high_text(e) + "; recomputing blocks in the backward pass would save " +
                 human_bytes(static_cast<double>(recompute->saved_bytes)) + " and take about " +
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
  if (e.memory.rising.empty() || list_growing(e)) return std::nullopt;
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
