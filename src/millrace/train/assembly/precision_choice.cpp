// Chooses the number format of a run if the config leaves the format open: by one trial, on the run's own step.
#include <torch/nn/module.h>

#include "millrace/precision/tf32.h"
#include "millrace/telemetry/long_task.h"
#include "millrace/train/assembly/assembly.h"
#include "millrace/train/assembly/layout_trial.h"

namespace millrace {
namespace {

constexpr double kPrecisionSteps = 6;  // steps in a trial: three in each of the two formats

std::string absolute_text(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

// Where the values of a first step come from: the data and the first weights, as far as both are known without reading files. A
// kept result of a trial is valid only for the same origin.
Json origin_of_values(const data::Loader& loader, const RunConfig& config, const Plan& plan) {
  const Choice* const weights = plan.find("train.weights");
  return {{"data", loader.state().value("fingerprint", Json())},
          {"dir", absolute_text(config.data.dir)},
          {"weights", weights == nullptr ? Json() : Json::array({absolute_text(weights->value), weights->reason})}};
}

}  // namespace

// Chooses the number format by one trial per run. All ranks use rank 0's result.
void Assembly::decide_precision() {
  if (!setup_.config().precision.dtype.is_auto()) return;
  if (const Json* format = kept("precision.dtype")) {
    setup_.plan().set(
        {"precision.dtype", format->get<std::string>(), "snapshot", "as at the start of the run", /*by_trial=*/true});
    return;
  }
  precision::Decision decision{.autocast = std::nullopt, .reason = "--off=autocast"};
  if (setup_.switches().on("autocast")) decision = try_precisions();
  const Json agreed =
      setup_.agreement().from_root({{"format", precision::name_of(decision.autocast)}, {"reason", std::move(decision.reason)}});
  const auto name = agreed.at("format").get<std::string>();
  stepper_->set_autocast(precision::format_of(name));
  setup_.plan().set({"precision.dtype", name, "auto", agreed.at("reason").get<std::string>(), /*by_trial=*/true});
}

// Chooses whether a GPU uses TF32. A resumed run keeps its snapshot's choice, even after a fallback to fp32, because another
// choice would change bits.
void Assembly::decide_tf32() {
  const at::Device device = setup_.context().device;
  const std::optional<bool> wish = setup_.config().device.tf32_wish();
  Chosen<bool> choice = precision::choose_tf32(wish, device, stepper_->autocast());
  const Json* const before = !device.is_cpu() && !wish ? kept("device.tf32") : nullptr;
  if (before != nullptr) choice = {.value = *before == "on", .reason = "as at the start of the run"};
  precision::use_tf32(choice, device);
  if (!choice.reason.empty() || !device.is_cpu()) {
    setup_.choose("device.tf32", choice.value ? "on" : "off", choice.reason);
    Choice row = *setup_.plan().find("device.tf32");
    row.by_trial = !wish;
    if (before != nullptr) row.origin = "snapshot";
    setup_.plan().set(std::move(row));
  }
  const Choice* const planned = setup_.plan().find("precision.dtype");
  const std::string remark = precision::tf32_remark(choice, device, stepper_->autocast());
  if (planned == nullptr || remark.empty()) return;
  Choice remarked = *planned;
  remarked.reason += (remarked.reason.empty() ? "" : "; ") + remark;
  setup_.plan().set(std::move(remarked));
}

precision::Decision Assembly::try_precisions() {
  precision::Decision decision{.autocast = std::nullopt, .reason = "fp32: there was no batch to try a narrower format on"};
  StepTrials trials(*stepper_, &trial_time_);
  telemetry::LongTask told(setup_.console(), "comparing a step in fp32 with one in a narrower format");
  std::optional<std::string> how;
  const auto try_all = [&](const Batch& batch) {
    const std::string trial = trial_of("precision", batch);
    const Json values = origin_of_values(loaders_.training(), setup_.config(), setup_.plan());
    if (const auto known = find_format(kept_trials(), trial, values)) {
      decision = {.autocast = precision::format_of(known->at("value").get<std::string>()),
                  .reason = known->at("reason").get<std::string>() + kOfAnEarlierRun};
      return;
    }
    const bool layouts = setup_.config().device.layout.is_auto() && setup_.switches().on("channels_last") &&
                         recipe_->set_layout(Layout::contiguous);
    told.expect((layouts ? 2 : 1) * kPrecisionSteps * trial_time_.step_seconds());
    const auto in_format = [&](auto format) { return try_format(*recipe_, trials, batch, format, layouts); };
    decision = precision::choose(setup_.context().device, in_format);
    if (decision.by_time) keep_format(kept_trials(), trial, values, precision::name_of(decision.autocast), decision.reason);
  };
  if (!within_time([&] { how = try_on_batch(try_all); }))
    return {.autocast = std::nullopt, .reason = "fp32: " + trial_time_.reason()};
  kept_trials().save();
  decision.reason += how.value_or("");
  return decision;
}

}  // namespace millrace
