#include "millrace/train/assembly/kernel_trial.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <array>

#include "millrace/base/format.h"
#include "millrace/kernels/kernels.h"
#include "millrace/system/work_clock.h"
#include "millrace/telemetry/long_task.h"
#include "millrace/train/assembly/assembly.h"
#include "millrace/train/step/draws.h"

namespace millrace {
namespace {

// A trial is worthwhile if an operation has at least this number of multiplications in a step. Fewer multiplications take one or
// two milliseconds, and a better choice would gain less than its trial costs.
constexpr double kWorthATrial = 1e9;
// steps in a trial: one counts the calls, and in the others each call runs at least three times in both implementations
constexpr double kKernelSteps = 8;
// the default implementation is kept unless the other one takes less than this share of the default's time
constexpr double kNoise = 0.97;

bool is_worth_a_trial(const std::vector<kernels::OperationTrial::Times>& all) {
  return std::ranges::any_of(all, [](const kernels::OperationTrial::Times& times) { return times.work >= kWorthATrial; });
}

kernels::KnownTimes times_in(const KeptTrials& kept) {
  kernels::KnownTimes known;
  for (const auto& [name, times] : kept.all().items()) {
    if (times.is_array() && times.size() == 2 && times[0].is_number() && times[1].is_number())
      known[name] = {times[0].get<double>(), times[1].get<double>(), false};
  }
  return known;
}

KernelChoice choice_of(const kernels::OperationTrial::Times& times, const TrialTime& time) {
  using kernels::Implementation;
  if (times.given_up)
    return {times.operation, times.type, kernels::implementation_of(times.operation, times.type), time.reason()};
  const bool ours_untried = kernels::implementation_of(times.operation, times.type) == Implementation::ours;
  const bool ours = ours_untried ? kNoise * times.ours_ms <= times.library_ms : times.ours_ms < kNoise * times.library_ms;
  std::string reason = "a trial measured " + fixed(times.ours_ms, 1) + " ms a step by our kernel, " + fixed(times.library_ms, 1) +
                       " by LibTorch's, in " + with_commas(times.calls) + (times.calls == 1 ? " call" : " calls");
  if (times.disturbed) reason += kDisturbed;
  return {times.operation, times.type, ours ? Implementation::ours : Implementation::library, std::move(reason)};
}

kernels::Implementation implementation_named(std::string_view name) noexcept {
  return name == "ours" ? kernels::Implementation::ours : kernels::Implementation::library;
}

// Reads a kernel choice from an option of a plan or a snapshot; nullopt if the option is not about a kernel.
std::optional<KernelChoice> choice_of(const std::string& option, const std::string& way, const std::string& reason) {
  for (std::size_t i = 0; i < kernels::kOperations; ++i) {
    for (const c10::ScalarType type : {c10::kFloat, c10::kBFloat16}) {
      KernelChoice choice{static_cast<kernels::Operation>(i), type, implementation_named(way), reason};
      if (choice.option() == option) return choice;
    }
  }
  return std::nullopt;
}

Json json_of(const std::map<std::string, std::vector<KernelChoice>>& all) {
  Json json = Json::object();
  for (const auto& [format, choices] : all) {
    for (const KernelChoice& choice : choices) json[format][choice.option()] = {name_of(choice.implementation), choice.reason};
  }
  return json;
}

std::map<std::string, std::vector<KernelChoice>> choices_in(const Json& json) {
  std::map<std::string, std::vector<KernelChoice>> all;
  for (const auto& [format, choices] : json.items()) {
    for (const auto& [option, found] : choices.items()) {
      if (auto choice = choice_of(option, found.at(0).get<std::string>(), found.at(1).get<std::string>()))
        all[format].push_back(std::move(*choice));
    }
  }
  return all;
}

}  // namespace

std::string_view name_of(kernels::Implementation implementation) noexcept {
  return implementation == kernels::Implementation::ours ? "ours" : "library";
}

std::string KernelChoice::option() const {
  return "kernels." + std::string(kernels::name_of(operation)) + (type == c10::kBFloat16 ? ".bf16" : ".fp32");
}

std::vector<KernelChoice> try_kernels(const std::function<void()>& step, KeptTrials& kept, const TrialTime& time) {
  {
    const kernels::OperationTrial count(kernels::OperationTrial::Counts::only);
    step();
    if (!is_worth_a_trial(count.times())) return {};
  }
  const kernels::OperationTrial trial(times_in(kept), time.left());
  step();
  for (const auto& [call, measured] : trial.measured()) {
    if (!measured.disturbed) kept.keep(call, {measured.ours_ms, measured.library_ms});
  }
  kept.save();
  std::vector<KernelChoice> choices;
  for (const kernels::OperationTrial::Times& times : trial.times()) {
    if (times.work >= kWorthATrial) choices.push_back(choice_of(times, time));
  }
  return choices;
}

KeptKernels kept_kernels(const Json& choices) {
  KeptKernels kept;
  for (const auto& [option, value] : choices.items()) {
    if (!value.is_string()) continue;
    if (option == kTriedOn) kept.tried_on = value.get<std::string>();
    if (auto choice = choice_of(option, value.get<std::string>(), "as at the start of the run"))
      kept.choices.push_back(std::move(*choice));
  }
  return kept;
}

void choose(const std::vector<KernelChoice>& choices) noexcept {
  for (const KernelChoice& choice : choices) kernels::choose_implementation(choice.operation, choice.type, choice.implementation);
}

void choose_all(kernels::Implementation implementation) noexcept {
  for (std::size_t i = 0; i < kernels::kOperations; ++i) {
    for (const c10::ScalarType type : {c10::kFloat, c10::kBFloat16})
      kernels::choose_implementation(static_cast<kernels::Operation>(i), type, implementation);
  }
}

KeptTrials& Assembly::kept_trials() {
  const bool keeps = setup_.switches().on("kept_trials");
  const std::filesystem::path& folder = setup_.context().places.cache_folder;
  if (!kept_trials_)
    kept_trials_.emplace(Fs::real(), keeps ? folder : std::filesystem::path(), keeps && setup_.context().places.writes,
                         setup_.context().device);
  return *kept_trials_;
}

// Tries the kernels in every format that the run may compute in. The trial of number formats needs this, because it runs each
// format with its best kernels.
void Assembly::try_kernels() {
  kernels::forget_implementations();
  kernel_choices_.clear();
  kernels_given_up_.clear();
  if (!setup_.context().device.is_cpu()) return;
  if (!setup_.config().device.kernels.is_auto()) {
    choose_all(setup_.config().device.kernels.value());
    return setup_.choose("device.kernels", std::string(name_of(setup_.config().device.kernels.value())), "");
  }
  const std::string here(kernels::instruction_set());
  const KeptKernels before = kept_kernels(kept_);
  const bool goes_on = before.hold_on(here);
  if (!kept_.empty() && goes_on) {  // the resumed run's choices are kept, because another implementation would change bits
    kernel_choices_[""] = before.choices;
    return millrace::choose(before.choices);
  }
  std::vector<std::optional<at::ScalarType>> formats{stepper_->autocast()};
  const bool tries_format = setup_.config().precision.dtype.is_auto() && setup_.switches().on("autocast") && kept_.empty();
  if (tries_format && precision::hardware_has_fast_bf16(setup_.context().device, nullptr)) formats.emplace_back(at::kBFloat16);
  StepTrials trials(*stepper_, &trial_time_);
  for (const auto& format : formats) {
    const std::string name = precision::name_of(format);
    telemetry::LongTask told(setup_.console(), "timing our kernels and LibTorch's in a step in " + name);
    told.expect(kKernelSteps * trial_time_.step_seconds());
    const bool in_time = within_time([&] {
      (void)try_on_batch([&](const Batch& batch) {
        kernel_choices_[name] =
            millrace::try_kernels([&] { (void)trials.try_precision(batch, format); }, kept_trials(), trial_time_);
      });
    });
    if (!in_time) kernels_given_up_.insert(name);
  }
  for (auto& [format, choices] : kernel_choices_) {
    for (KernelChoice& choice : choices) {
      if (!goes_on)
        choice.reason += "; tried again, because the run began on " + before.tried_on + " and this machine has " + here;
    }
  }
  kernel_choices_ = choices_in(setup_.agreement().from_root(json_of(kernel_choices_)));
  for (const auto& [format, choices] : kernel_choices_) millrace::choose(choices);
}

void Assembly::plan_kernels() {
  if (!setup_.context().device.is_cpu()) setup_.plan().set(dropout_choice(setup_.context().device));
  if (kernels_given_up_.contains(precision::name_of(stepper_->autocast())))
    setup_.choose("device.kernels", "default", trial_time_.reason());
  if (kernel_choices_.empty()) return;
  const bool resumed = kernel_choices_.contains("");
  const auto found = kernel_choices_.find(resumed ? "" : precision::name_of(stepper_->autocast()));
  kernels::forget_implementations();
  if (found == kernel_choices_.end()) return;
  millrace::choose(found->second);
  const char* const origin = resumed ? "snapshot" : "auto";
  for (const KernelChoice& choice : found->second)
    setup_.plan().set({choice.option(), std::string(name_of(choice.implementation)), origin, choice.reason, /*by_trial=*/true});
  std::string tried_on = resumed ? kept_kernels(kept_).tried_on : std::string(kernels::instruction_set());
  if (found->second.empty() || tried_on.empty()) return;
  setup_.plan().set(
      {kTriedOn, std::move(tried_on), origin, "the CPU's instruction set on which the kernels were tried", /*by_trial=*/true});
}

}  // namespace millrace
