#include "millrace/measure/verification.h"

#include <ATen/Parallel.h>
#include <time.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/device.h"
#include "millrace/device/errors.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/doctor/sampler.h"
#include "millrace/measure/detail/trial_step.h"
#include "millrace/train/assembly/model_state.h"
#include "millrace/train/run/rehearsal.h"
#include "millrace/train/step/stepper_report.h"

namespace millrace {
namespace {

constexpr double kBusyShare = 0.8;       // the device should be busy for this share of the time, according to vendors' guides
constexpr double kMemoryShare = 0.9;     // share of the available memory above which the check warns
constexpr double kLookSeconds = 3;       // seconds for which steps are made while the device is observed
constexpr std::int64_t kMostSteps = 50;  // the most steps that are made in kLookSeconds

double process_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::string plural(std::int64_t count, const std::string& word) {
  return with_commas(count) + " " + word + (count == 1 ? "" : "s");
}

std::string first_of(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> named(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kNamed, names.size())));
  if (names.size() > kNamed) named.push_back(std::to_string(names.size() - kNamed) + " more");
  return joined(named, ", ");
}

class Verification {
 public:
  explicit Verification(const RunRequest& request) : request_(request) {}

  Check features();
  Check model();
  Check batch();
  Check rehearsal();
  Check first_step();
  Check second_step();
  Check memory();
  Check device();

 private:
  struct Tracked {
    std::string name;
    at::Tensor now, before;  // the parameter, and a copy of its values from before the first step
  };
  const RunRequest& request_;
  std::optional<RunSetup> setup_;
  std::optional<Assembly> run_;  // features() makes it
  std::vector<Tracked> tracked_;
  std::int64_t steps_ = 0;
};

// Makes the same choices as a run, by the same trials.
Check Verification::features() {
  setup_.emplace(request_);
  run_.emplace(*setup_, folders_to_look_in());
  run_->decide();
  run_->decide_memory();
  const Choice& format = *setup_->plan().find("precision.dtype");
  return {.name = "number format", .found = format.reason.empty() ? format.value : format.reason};
}

Check Verification::model() {
  torch::nn::Module& model = run_->recipe().model();
  const at::Device device = setup_->context().device;
  std::vector<std::string> elsewhere;
  std::int64_t numbers = 0;
  std::int64_t trained = 0;
  const std::vector<std::string> frozen = frozen_names(model, run_->stepper());
  const std::set<std::string> is_frozen(frozen.begin(), frozen.end());
  for (const auto& item : model.named_parameters()) {
    numbers += item.value().numel();
    if (item.value().device() != device) elsewhere.push_back(item.key() + " on " + item.value().device().str());
    if (is_frozen.contains(item.key())) continue;
    trained += item.value().numel();
    tracked_.push_back({item.key(), item.value(), item.value().detach().clone()});
  }
  for (const auto& item : model.named_buffers()) {
    if (item.value().device() != device) elsewhere.push_back(item.key() + " on " + item.value().device().str());
  }
  Check check{.name = "model", .found = plural(numbers, "parameter") + ", " + with_commas(trained) + " of them trained"};
  if (elsewhere.empty()) {
    check.found += "; all on " + device.str() + ", buffers too";
    return check;
  }
  check.level = Check::Level::fail;
  check.found += "; not on " + device.str() + ": " + first_of(elsewhere);
  check.next =
      "register them with register_parameter() or register_buffer(): the trainer moves only what the model has registered";
  return check;
}

Check Verification::batch() {
  const double begin = steady_seconds();
  const std::optional<Batch> batch = run_->trial_batch();
  if (!batch) throw no_trial_batch();
  const double seconds = steady_seconds() - begin;
  const at::Device device = setup_->context().device;
  std::vector<std::string> elsewhere;
  for (const Group& group : batch->groups()) {
    for (const auto& [name, tensor] : group.fields) {
      if (tensor.device() != device) elsewhere.push_back(name + " on " + tensor.device().str());
    }
  }
  Check check{.name = "data loading",
              .found = to_text(*batch) + "; read and prepared in " + human_duration(seconds) + " by one thread"};
  if (elsewhere.empty()) {
    check.found += "; all on " + device.str();
    return check;
  }
  check.level = Check::Level::warn;
  check.found += "; not on " + device.str() + ": " + first_of(elsewhere);
  check.next = "in Recipe::prepare() make new fields on the device of the existing fields";
  return check;
}

Check Verification::rehearsal() {
  const Rehearsal rehearsed = rehearse(*run_);
  std::vector<std::string> parts = {"prepare", "loss", "gradients"};
  if (rehearsed.validation_rows > 0) parts.emplace_back("measure");
  if (!rehearsed.pictures.empty()) parts.push_back(plural(static_cast<std::int64_t>(rehearsed.pictures.size()), "picture"));
  if (!rehearsed.prediction.empty()) parts.push_back("predict: " + rehearsed.prediction);
  Check check{.name = "training components", .found = "a batch of each split went through " + joined(parts, ", ")};
  if (rehearsed.warnings.empty()) return check;
  check.level = Check::Level::warn;
  check.found += "; " + joined(rehearsed.warnings, "; ");
  check.next = "see Recipe in recipe.h for the arguments and the result of each callback";
  return check;
}

Check Verification::first_step() {
  device::reset_peak_tensor_memory(setup_->context().device);
  run_->recipe().model().train();
  const TrialStep step = make_trial_step(*run_, steps_++);
  Check check{
      .name = "training step 1",
      .found = "loss " + significant(step.loss, 4) + " on " + plural(step.rows, "sample") + ", " + human_duration(step.seconds)};
  for (const ObjectiveReport& report : reports_of(run_->stepper()))
    check.found +=
        ", gradient norm " + significant(report.gradient_norm, 3) + (report.name == "loss" ? "" : " of " + report.name);
  const bool skipped = run_->stepper().skips().in_all().item<double>() > 0;
  if (std::isfinite(step.loss) && !skipped) return check;
  // With fp16 the first steps may overflow, because the loss scale begins large and shrinks at each overflow.
  const bool searching = run_->stepper().autocast() == at::kHalf && std::isfinite(step.loss);
  check.level = searching ? Check::Level::warn : Check::Level::fail;
  check.found += searching ? "; the loss scale of fp16 was too high, as it may be at first" : "; the step is not finite";
  check.next = searching ? "nothing to do: the loss scale adapts by itself"
                         : "try --precision.dtype=fp32 or a lower --optim.learning_rate, and look at the input";
  return check;
}

Check Verification::second_step() {
  const TrialStep step = make_trial_step(*run_, steps_++);
  std::vector<std::string> unmoved;
  for (const Tracked& tracked : tracked_) {
    if (at::equal(tracked.now.detach(), tracked.before)) unmoved.push_back(tracked.name);
  }
  const auto all = static_cast<std::int64_t>(tracked_.size());
  const std::int64_t moved = all - static_cast<std::int64_t>(unmoved.size());
  tracked_.clear();
  Check check{.name = "training step 2",
              .found = "loss " + significant(step.loss, 4) + ", " + human_duration(step.seconds) + "; the two steps changed " +
                       with_commas(moved) + " of " + plural(all, "trained tensor")};
  if (!std::isfinite(step.loss)) {
    check.level = Check::Level::fail;
    check.next = "the first update made the loss infinite: lower --optim.learning_rate, or set optim.warmup_steps";
    return check;
  }
  if (unmoved.empty()) return check;
  check.found += ", not " + first_of(unmoved);
  check.level = moved == 0 ? Check::Level::fail : Check::Level::warn;
  check.next = moved == 0 ? "nothing learns: see optim.learning_rate and optim.warmup_steps"
                          : "these tensors get no gradient, or an objective that begins later trains them";
  return check;
}

Check Verification::memory() {
  const at::Device device = setup_->context().device;
  const double peak = static_cast<double>(device::tensor_memory(device).peak_bytes);
  const double room =
      static_cast<double>(device.is_cpu() ? device::resident_memory_limit()
                                          : device::tensor_memory(device).live_bytes + device::free_tensor_memory(device));
  Check check{.name = "memory",
              .found = "tensors took " + human_bytes(peak) + " at most, " + percent(peak / std::max(room, 1.0)) + " of " +
                       human_bytes(room)};
  if (peak < kMemoryShare * room) return check;
  check.level = Check::Level::warn;
  check.next =
      "try memory.recompute=auto, memory.micro_batches=2 or a smaller data.batch_size; millrace estimate says what each saves";
  return check;
}

// Measures how busy the device is. The driver reports the use of a GPU in samples of a sixth of a second or more. Without the
// driver, the share of time in which the loop did not wait for data is used instead.
Check Verification::device() {
  const at::Device device = setup_->context().device;
  const double begin = steady_seconds();
  const double cpu = process_cpu_seconds();
  const double waited = run_->loaders().training().counters().wait_seconds;
  std::int64_t made = 0;
  std::string silent;
  doctor::Sampler sampler("/", device.is_cpu() ? nullptr : doctor::Nvml::open(silent), device.has_index() ? device.index() : 0);
  while (made < kMostSteps && steady_seconds() - begin < kLookSeconds) {
    (void)make_trial_step(*run_, steps_++);
    if (!device.is_cpu()) sampler.look();
    ++made;
  }
  const double seconds = steady_seconds() - begin;
  const double waiting = (run_->loaders().training().counters().wait_seconds - waited) / seconds;
  const double cores = (process_cpu_seconds() - cpu) / seconds;
  const auto threads = static_cast<double>(at::get_num_threads());
  const auto seen = device.is_cpu() ? std::nullopt : sampler.take();
  const bool is_known = seen && seen->gpu && seen->gpu->utilisation;
  const double of_gpu = is_known ? *seen->gpu->utilisation : 1 - waiting;
  const double busy = device.is_cpu() ? std::min(cores / threads, 1.0) : of_gpu;
  Check check{.name = "use of the device",
              .found = plural(made, "more step") + " in " + human_duration(seconds) + ", " + percent(waiting) +
                       " of it waiting for data"};
  if (device.is_cpu()) check.found += "; " + significant(cores, 2) + " of " + significant(threads, 3) + " cores busy";
  if (is_known) check.found += "; the GPU busy for " + percent(of_gpu);
  if (busy > kBusyShare && waiting < 1 - kBusyShare) return check;
  check.level = Check::Level::warn;
  check.found += "; the device should be more than " + percent(kBusyShare) + " busy";
  check.next = waiting > 1 - kBusyShare ? "train for a minute and ask millrace doctor RUN what makes the input slow"
                                        : "try a larger data.batch_size; millrace tune tries what helps; millrace doctor names "
                                          "other programs that use the cores";
  return check;
}

}  // namespace

std::string_view name_of(Check::Level level) {
  if (level == Check::Level::pass) return "pass";
  return level == Check::Level::warn ? "warn" : "FAIL";
}

std::vector<Check> verify_run(RunRequest request, const std::function<void(const Check&)>& report) {
  const SampleInput input(request, /*keeps=*/false);
  Verification all(request);
  using Part = Check (Verification::*)();
  struct Named {
    const char* name;
    Part part;
  };
  constexpr std::array<Named, 8> kParts = {{{"number format", &Verification::features},
                                            {"model", &Verification::model},
                                            {"data loading", &Verification::batch},
                                            {"training components", &Verification::rehearsal},
                                            {"training step 1", &Verification::first_step},
                                            {"training step 2", &Verification::second_step},
                                            {"memory", &Verification::memory},
                                            {"use of the device", &Verification::device}}};
  std::vector<Check> checks;
  for (const Named& named : kParts) {
    try {
      checks.push_back((all.*named.part)());
    } catch (const Error& error) {
      const Message& message = error.message();
      checks.push_back({.name = named.name,
                        .level = Check::Level::fail,
                        .found = message.what + (message.where.empty() ? "" : " (" + message.where + ")"),
                        .next = message.next});
    } catch (const std::exception& error) {
      if (!device::is_out_of_memory(error)) throw;
      checks.push_back({.name = named.name,
                        .level = Check::Level::fail,
                        .found = "memory ran out",
                        .next = "try a smaller data.batch_size; millrace max-batch finds the largest that runs"});
    }
    report(checks.back());
    if (checks.back().level == Check::Level::fail) break;
  }
  return checks;
}

}  // namespace millrace
