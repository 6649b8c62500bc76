// Which number format a run computes in, where the config leaves it open: tried once, on the run's own step.
#include <torch/nn/module.h>

#include "millrace/precision/tf32.h"
#include "millrace/train/assembly/assembly.h"
#include "millrace/train/assembly/layout_trial.h"

namespace millrace {
namespace {

std::string absolute_text(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

// What the values of a first step come from, as far as it is known without reading files: kept verdicts rest on it.
Json origin_of_values(const data::Loader& loader, const RunConfig& config, const Plan& plan) {
  const Choice* const weights = plan.find("train.weights");
  return {{"data", loader.state().value("fingerprint", Json())},
          {"dir", absolute_text(config.data.dir)},
          {"weights", weights == nullptr ? Json() : Json::array({absolute_text(weights->value), weights->reason})}};
}

}  // namespace

precision::GpuSettings gpu_settings_of(const RunConfig& config, const at::Device& device) {
  return precision::choose_gpu_settings(config.train.deterministic, config.device.timed_convolutions(), device);
}

void Assembly::choose_gpu_settings() {
  const at::Device device = context_.device;
  const precision::GpuSettings ways = gpu_settings_of(config_, device);
  precision::use_gpu_settings(ways, device);
  if (!ways.deterministic_reason.empty())
    choose("train.deterministic", config_.train.deterministic ? "on" : "off", ways.deterministic_reason);
  if (!device.is_cpu() || !ways.convolutions_reason.empty()) {
    const bool timed = device.is_cpu() ? *config_.device.timed_convolutions() : ways.timed_convolutions;
    choose("device.cudnn", timed ? "timed" : "rules", ways.convolutions_reason);
  }
}

// A trial decides once per run, and rank 0 for all.
void Assembly::decide_precision() {
  if (!config_.precision.dtype.is_auto()) return;
  if (const Json* format = kept("precision.dtype")) {
    plan_.set({"precision.dtype", format->get<std::string>(), "snapshot", "as the run began", /*by_trial=*/true});
    return;
  }
  precision::Decision decision{.autocast = std::nullopt, .reason = "--off=autocast"};
  if (switches_.on("autocast")) decision = try_precisions();
  const Json agreed =
      agreement().from_root({{"format", precision::name_of(decision.autocast)}, {"reason", std::move(decision.reason)}});
  const auto name = agreed.at("format").get<std::string>();
  stepper_->set_autocast(precision::format_of(name));
  plan_.set({"precision.dtype", name, "auto", agreed.at("reason").get<std::string>(), /*by_trial=*/true});
}

// A run that goes on keeps what its snapshot says, also where it has fallen back to fp32 since: another choice would change bits.
void Assembly::decide_tf32() {
  const at::Device device = context_.device;
  const std::optional<bool> wish = config_.device.tf32_wish();
  Chosen<bool> choice = precision::choose_tf32(wish, device, stepper_->autocast());
  const Json* const before = !device.is_cpu() && !wish ? kept("device.tf32") : nullptr;
  if (before != nullptr) choice = {.value = *before == "on", .reason = "as the run began"};
  precision::use_tf32(choice, device);
  if (!choice.reason.empty() || !device.is_cpu()) {
    choose("device.tf32", choice.value ? "on" : "off", choice.reason);
    Choice row = *plan_.find("device.tf32");
    row.by_trial = !wish;
    if (before != nullptr) row.origin = "snapshot";
    plan_.set(std::move(row));
  }
  const Choice* const planned = plan_.find("precision.dtype");
  const std::string remark = precision::tf32_remark(choice, device, stepper_->autocast());
  if (planned == nullptr || remark.empty()) return;
  Choice told = *planned;
  told.reason += (told.reason.empty() ? "" : "; ") + remark;
  plan_.set(std::move(told));
}

precision::Decision Assembly::try_precisions() {
  precision::Decision decision{.autocast = std::nullopt, .reason = "fp32: no batch to try it on"};
  const auto how = try_on_batch([&](const Batch& batch) {
    const std::string trial = step_trial("precision", request_.recipe, request_.config.values, recipe_->model(), batch);
    const Json values = origin_of_values(*input_.loader, config_, plan_);
    if (const auto known = find_format(kept_trials(), trial, values)) {
      decision = {.autocast = precision::format_of(known->at("value").get<std::string>()),
                  .reason = known->at("reason").get<std::string>() + kOfAnEarlierRun};
      return;
    }
    const bool layouts =
        config_.device.layout.is_auto() && switches_.on("channels_last") && recipe_->set_layout(Layout::contiguous);
    const auto in_format = [&](auto format) { return try_format(*recipe_, *stepper_, batch, format, layouts); };
    decision = precision::choose(context_.device, in_format);
    if (decision.by_time) keep_format(kept_trials(), trial, values, precision::name_of(decision.autocast), decision.reason);
  });
  stepper_->end_trials();
  kept_trials().save();
  decision.reason += how.value_or("");
  return decision;
}

}  // namespace millrace
