// Chooses the memory layout of a run's images or volumes by a trial, once per run like the number format.
#include "millrace/train/assembly/layout_trial.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "millrace/telemetry/long_task.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace {
namespace {

constexpr std::size_t kRounds = std::tuple_size_v<LayoutRounds>;
// channels-last must take less than this share of the contiguous step's time, because a smaller gain may be noise
constexpr double kWorthIt = 0.97;
constexpr double kTolerance = 0.02;
constexpr const char* kContiguous = "contiguous";
constexpr const char* kChannelsLast = "channels_last";

double median_loss(const LayoutRounds& rounds) {
  std::vector<double> losses;
  for (const precision::Trial& trial : rounds) losses.push_back(trial.loss);
  return median(std::move(losses));
}

// The step with the largest gradient error among all rounds and objectives.
precision::Trial worst_of(const LayoutRounds& rounds) {
  std::vector<precision::Trial> all;
  for (const precision::Trial& trial : rounds) {
    all.push_back(trial);
    all.insert(all.end(), trial.others.begin(), trial.others.end());
  }
  return precision::worst_of(all);
}

}  // namespace

LayoutVerdict judge_layouts(const LayoutRounds& plain, const LayoutRounds& last) {
  const bool plain_is_finite = std::ranges::all_of(plain, precision::is_finite);
  const bool last_is_finite = std::ranges::all_of(last, precision::is_finite);
  if (!plain_is_finite && !last_is_finite) return {false, "a trial step gives finite values in neither layout"};
  if (!last_is_finite) return {false, "a trial step gives finite values in contiguous but not in channels-last layout"};
  if (!plain_is_finite) return {true, "a trial step gives finite values in channels-last but not in contiguous layout"};
  const double loss = median_loss(plain);
  if (const double other = median_loss(last); !(std::abs(loss - other) <= kTolerance * std::abs(loss))) {
    return {false, "losses of a trial step differ: " + significant(other, 5) + " channels-last, " + significant(loss, 5) +
                       " contiguous"};
  }
  if (const precision::Trial worst = worst_of(last); !(worst.worst_gradient <= precision::kWorstGradient)) {
    return {false, "in a trial step, the gradient of " + worst.worst_parameter + " in channels-last layout differs by " +
                       percent(worst.worst_gradient) + " from that in contiguous layout"};
  }
  const Comparison found = precision::compare_times(last, plain);
  const std::string times = fixed(found.first_ms, 1) + " ms a step channels-last, " + fixed(found.second_ms, 1) + " contiguous";
  return {found.first_ms < kWorthIt * found.second_ms, "a trial measured " + times + (found.disturbed ? kDisturbed : ""),
          /*by_time=*/true, found.disturbed};
}

LayoutVerdict try_layouts(Recipe& recipe, Stepper& stepper, const Batch& batch, TrialTime* time) {
  LayoutRounds plain, last;
  StepTrials trials(stepper, time);
  for (std::size_t round = 0; round < kRounds; ++round) {
    recipe.set_layout(Layout::contiguous);
    plain[round] = trials.try_precision(batch, stepper.autocast(), StepTrials::Role::reference);
    recipe.set_layout(Layout::channels_last);
    last[round] = trials.try_precision(batch, stepper.autocast(), StepTrials::Role::compared);
  }
  return judge_layouts(plain, last);
}

const precision::Trial& better_of(const precision::Trial& contiguous, const precision::Trial& channels_last) {
  if (!precision::is_finite(channels_last)) return contiguous;
  if (!precision::is_finite(contiguous)) return channels_last;
  return channels_last.step_ms < contiguous.step_ms ? channels_last : contiguous;
}

precision::Trial try_format(Recipe& recipe, StepTrials& trials, const Batch& batch, std::optional<at::ScalarType> format,
                            bool tries_layouts) {
  if (!tries_layouts) return trials.try_precision(batch, format);
  recipe.set_layout(Layout::channels_last);
  const precision::Trial last = trials.try_precision(batch, format);
  recipe.set_layout(Layout::contiguous);
  return better_of(trials.try_precision(batch, format), last);
}

// Chooses the memory layout. A resumed run keeps its layout, because another layout adds in another order, which changes bits.
void Assembly::decide_layout() {
  if (!recipe_->set_layout(Layout::contiguous)) return;
  if (!setup_.config().device.layout.is_auto()) {
    const bool channels_last =
        setup_.config().device.layout.value() == Layout::channels_last && setup_.switches().on("channels_last");
    recipe_->set_layout(channels_last ? Layout::channels_last : Layout::contiguous);
    return setup_.choose("device.layout", channels_last ? kChannelsLast : kContiguous, "");
  }
  Choice choice{"device.layout", kContiguous, "auto", "--off=channels_last", /*by_trial=*/true};
  if (const Json* layout = kept("device.layout")) {
    choice = {"device.layout", layout->get<std::string>(), "snapshot", "as at the start of the run", /*by_trial=*/true};
  } else if (setup_.switches().on("channels_last")) {
    choice = try_layouts();
    const Json agreed = setup_.agreement().from_root({{"value", choice.value}, {"reason", choice.reason}});
    choice.value = agreed.at("value").get<std::string>();
    choice.reason = agreed.at("reason").get<std::string>();
  }
  recipe_->set_layout(choice.value == kChannelsLast ? Layout::channels_last : Layout::contiguous);
  setup_.plan().set(std::move(choice));
}

Choice Assembly::try_layouts() {
  const auto chosen = [](bool channels_last, std::string reason) {
    return Choice{"device.layout", channels_last ? kChannelsLast : kContiguous, "auto", std::move(reason), /*by_trial=*/true};
  };
  LayoutVerdict verdict;
  std::string trial;
  std::optional<Json> known;
  std::optional<std::string> how;
  telemetry::LongTask told(setup_.console(), "trying the step in both memory layouts");
  told.expect(2 * kRounds * trial_time_.step_seconds());
  const auto try_both = [&](const Batch& batch) {
    trial = trial_of("layout " + precision::name_of(stepper_->autocast()), batch);
    if (known = kept_trials().find(trial); is_verdict(known)) return;
    verdict = millrace::try_layouts(*recipe_, *stepper_, batch, &trial_time_);
  };
  if (!within_time([&] { how = try_on_batch(try_both); })) return chosen(false, trial_time_.reason());
  if (!how) return chosen(false, "no batch to try it on");
  if (is_verdict(known))
    return chosen(known->at("value") == kChannelsLast, known->at("reason").get<std::string>() + kOfAnEarlierRun);
  if (verdict.by_time && !verdict.disturbed) {
    kept_trials().keep(trial, {{"value", verdict.channels_last ? kChannelsLast : kContiguous}, {"reason", verdict.reason}});
    kept_trials().save();
  }
  return chosen(verdict.channels_last, verdict.reason + (verdict.by_time ? *how : ""));
}

}  // namespace millrace
