#include "millrace/train/assembly/convolution_choice.h"

#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "millrace/base/clock.h"
#include "millrace/base/doing.h"
#include "millrace/base/format.h"
#include "millrace/device/convolution_guard.h"
#include "millrace/kernels/convolution_weights.h"
#include "millrace/telemetry/long_task.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace {
namespace {

constexpr const char* kOption = "device.convolutions";
constexpr const char* kConvolutionTrial = "convolutions";
constexpr const char* kAllRight = "bf16";

const telemetry::Counter& occasions() {
  static const telemetry::Counter counter("tried_convolutions");
  return counter;
}

std::string place_of(const device::FoundFault& fault) {
  return std::string(device::name_of(fault.pass)) + " of " + device::to_text(fault.shape);
}

std::string reason_of(const device::ConvolutionTrial& trial, std::size_t shapes) {
  std::string reason = "a separate process tried " + with_commas(trial.tried) + " of " +
                       with_commas(static_cast<std::int64_t>(shapes)) + (shapes == 1 ? " convolution" : " convolutions") +
                       " in bf16: ";
  if (trial.faults.empty()) reason += "all right";
  for (std::size_t i = 0; i < trial.faults.size(); ++i)
    reason += (i == 0 ? "" : "; ") + std::string(device::name_of(trial.faults[i].pass)) + " " + trial.faults[i].what;
  if (!trial.untried.empty()) reason += "; not all tried: " + trial.untried;
  return reason;
}

// Adds the convolutions that the resumed run has computed in fp32 so far, so that these stay in fp32.
void add_those_before(std::vector<device::FoundFault>& faults, const std::vector<device::ConvolutionShape>& shapes,
                      const std::string& before) {
  for (const device::ConvolutionShape& shape : shapes) {
    for (const device::Pass pass : {device::Pass::forward, device::Pass::input_gradient, device::Pass::weight_gradient}) {
      const device::FoundFault fault{shape, pass, "wrong when the run began"};
      const auto is_known = [&](const device::FoundFault& known) { return known.shape == shape && known.pass == pass; };
      if ((before + ";").find(place_of(fault) + ";") != std::string::npos && std::ranges::none_of(faults, is_known))
        faults.push_back(fault);
    }
  }
}

// The convolutions that a bf16 step would compute. They are recorded during a step in fp32.
std::vector<device::ConvolutionShape> asked_in_bf16(const std::function<void()>& step) {
  return device::convolutions_of([&] {
    const kernels::CutAsInBf16 census;
    step();
  });
}

// While an object of this class exists, all operations use LibTorch's implementation, so that a count of the convolutions sees
// every convolution that LibTorch may have to compute.
class LibraryOnly {
 public:
  LibraryOnly() {
    for (std::size_t i = 0; i < kernels::kOperations; ++i) {
      for (const c10::ScalarType type : {c10::kFloat, c10::kBFloat16}) {
        const auto operation = static_cast<kernels::Operation>(i);
        before_.push_back({operation, type, kernels::implementation_of(operation, type), ""});
      }
    }
    choose_all(kernels::Implementation::library);
  }
  ~LibraryOnly() { choose(before_); }
  LibraryOnly(const LibraryOnly&) = delete;
  LibraryOnly& operator=(const LibraryOnly&) = delete;

 private:
  std::vector<KernelChoice> before_;
};

}  // namespace

std::string ConvolutionChoice::value() const {
  if (faults.empty()) return kAllRight;
  std::string text;
  for (const device::FoundFault& fault : faults) text += (text.empty() ? "fp32 for " : "; ") + place_of(fault);
  return text;
}

Json ConvolutionChoice::to_json() const {
  Json list = Json::array();
  for (const device::FoundFault& fault : faults) list.push_back(device::to_json(fault));
  return {{"faults", std::move(list)}, {"shapes", shapes}, {"reason", reason}};
}

std::optional<ConvolutionChoice> convolution_choice_in(const Json& json) {
  try {
    ConvolutionChoice choice{{}, json.at("shapes").get<std::int64_t>(), json.at("reason").get<std::string>()};
    for (const Json& fault : json.at("faults")) choice.faults.push_back(device::found_fault_in(fault));
    return choice;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

ConvolutionChoice choose_convolutions(const std::function<void()>& step, KeptTrials& kept, const std::string& trial,
                                      const std::string& before, const device::TrialGoesOn& goes_on) {
  occasions().add(1);
  const bool had_faults = !before.empty() && before != kAllRight;
  if (const auto known = kept.find(trial); known && !had_faults) {
    if (auto choice = convolution_choice_in(*known)) {
      choice->reason += kOfAnEarlierRun;
      return std::move(*choice);
    }
  }
  const std::vector<device::ConvolutionShape> shapes = asked_in_bf16(step);
  ConvolutionChoice choice{{}, static_cast<std::int64_t>(shapes.size()), ""};
  device::ConvolutionTrial found;
  if (!shapes.empty()) {
    const Doing task(Doing::Level::task, "a trial of convolutions in a separate process");
    constexpr double kStartMs = 60'000;
    found = device::try_convolutions(shapes, at::get_num_threads(), kStartMs, goes_on);
    choice.reason = reason_of(found, shapes.size());
  }
  choice.faults = found.faults;
  if (found.untried.empty()) {
    kept.keep(trial, choice.to_json());
    kept.save();
  }
  if (had_faults) add_those_before(choice.faults, shapes, before);
  return choice;
}

// Tests the convolutions before the first bf16 step, however the format was chosen. Rank 0 tests for all ranks, because the
// ranks' machines are assumed to be alike.
void Assembly::try_convolutions() {
  if (!setup_.context().device.is_cpu() || !may_compute_in(at::kBFloat16) || !setup_.switches().on("tried_convolutions")) return;
  const Json* before = kept(kOption);
  ConvolutionChoice choice;
  if (setup_.agreement().ranks().rank == 0) {
    std::optional<telemetry::LongTask> told;
    double began = 0;
    bool is_over = false;
    const auto step = [&](StepTrials& trials, const Batch& batch) {
      const telemetry::LongTask first(setup_.console(), "making a first step to learn how long trials take");
      (void)trials.try_precision(batch, std::nullopt);
    };
    const auto goes_on = [&](std::size_t done, std::size_t all) {
      if (!told) {
        told.emplace(setup_.console(), "trying the step's convolutions in bf16 in a separate process");
        began = steady_seconds();
      }
      if (done > 0) told->expect((steady_seconds() - began) * static_cast<double>(all) / static_cast<double>(done));
      is_over = trial_time_.left() <= 0;
      return !is_over;
    };
    (void)try_on_batch([&](const Batch& batch) {
      const LibraryOnly library_only;
      const std::string trial = trial_of(kConvolutionTrial, batch);
      StepTrials trials(*stepper_, &trial_time_);
      choice = choose_convolutions([&] { step(trials, batch); }, kept_trials(), trial,
                                   before == nullptr ? "" : before->get<std::string>(), goes_on);
    });
    if (is_over) choice.reason += "; " + trial_time_.reason();
  }
  const Json agreed = setup_.agreement().from_root(choice.to_json());
  if (auto taken = convolution_choice_in(agreed)) choice = std::move(*taken);
  device::guard_also(choice.faults);
  if (choice.shapes > 0) setup_.plan().set({kOption, choice.value(), "auto", choice.reason, /*by_trial=*/true});
  convolutions_ = std::move(choice);
}

// Starts no test of convolutions itself, because the test's separate process would take longer than the trial that the caller
// wants to make.
bool Assembly::may_try_bf16(const Batch& batch) {
  if (!setup_.context().device.is_cpu()) return true;
  const std::string trial = trial_of(kConvolutionTrial, batch);
  if (const auto known = kept_trials().find(trial)) {
    if (const auto choice = convolution_choice_in(*known)) {
      device::guard_also(choice->faults);
      return true;
    }
  }
  const LibraryOnly library_only;
  StepTrials trials(*stepper_);
  return asked_in_bf16([&] { (void)trials.try_precision(batch, std::nullopt); }).empty();
}

}  // namespace millrace
