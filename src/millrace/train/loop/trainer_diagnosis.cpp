// The part of the trainer that passes readings to the doctor and reports its findings.
#include <algorithm>

#include "millrace/base/clock.h"
#include "millrace/base/format.h"
#include "millrace/device/device.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/train/loop/trainer.h"
#include "millrace/train/step/stepper_report.h"

namespace millrace {

using telemetry::Phase;

Diagnosis::Parts Trainer::diagnosis_parts() const {
  return {.config = parts_.config,
          .stepper = parts_.stepper,
          .timeline = parts_.timeline,
          .device = phases_ ? &phases_->times() : nullptr,
          .loader = parts_.loader,
          .cached = parts_.cache != nullptr,
          .cacheable_bytes = parts_.cacheable_bytes,
          .epochs = epochs_in_all(),
          .blind = parts_.names.blind,
          .earlier = parts_.earlier,
          .run = parts_.place.folder == nullptr ? std::string() : parts_.place.folder->path().string(),
          .trials = parts_.doctor_trials};
}

// Waits until the GPU has finished the launched steps, and returns the seconds. Without this wait, the first read of a value
// would wait, and the time of the steps would be counted for that read. Called only where such a read follows at once, so this
// wait costs no time.
double Trainer::wait_for_steps() {
  const at::Device device = parts_.stepper->device();
  if (device.is_cpu()) return 0;
  const telemetry::Span span(*parts_.timeline, Phase::backward);
  const double begin = steady_seconds();
  device::backend_of(device).synchronize(device.has_index() ? device.index() : 0);
  return steady_seconds() - begin;
}

// Reads the phase times that the device recorded since the last log line. Returns the host's milliseconds for launching one step.
std::optional<double> Trainer::read_phases(double waited) {
  if (!phases_) return std::nullopt;
  const DeviceTimes::Sums before = phases_->times().sums();
  phases_->read(waited);
  const DeviceTimes::Sums& now = phases_->times().sums();
  if (now.steps == before.steps) return std::nullopt;
  return (now.host_seconds - before.host_seconds) / static_cast<double>(now.steps - before.steps) * 1e3;
}

telemetry::Timeline::Summary Trainer::window_times() {
  telemetry::Timeline::Summary times = parts_.timeline->window();
  if (phases_) phases_->times().book(times);
  return times;
}

telemetry::Timeline::Summary Trainer::total_times() const {
  telemetry::Timeline::Summary times = parts_.timeline->total();
  if (phases_) phases_->times().correct(times);
  return times;
}

StepRecord::Memory Trainer::memory_now() const {
  const at::Device device = parts_.stepper->device();
  const auto gpu = parts_.sampler == nullptr ? std::nullopt : parts_.sampler->gpu();
  return {.on_gpu = !device.is_cpu(),
          .counters = device::backend_of(device).memory(device.has_index() ? device.index() : 0),
          .gpu_use = gpu ? gpu->utilisation : std::nullopt};
}

MemoryWatch::Reading Trainer::watch_memory() {
  const at::Device device = parts_.stepper->device();
  MemoryWatch::Reading now{.step = step_, .tensors = device::tensor_memory(device).live_bytes};
  const std::int64_t accumulate = parts_.config->optim.accumulate;
  const std::int64_t of_an_epoch = (parts_.loader->batches_per_epoch() + accumulate - 1) / accumulate;
  now.passed = step_ - began_step_;
  const std::int64_t of_pass = of_an_epoch - now.passed;
  const std::int64_t of_run = parts_.total_steps > 0 ? parts_.total_steps - step_ : of_pass + 1;
  now.left = of_run <= of_pass ? std::max<std::int64_t>(of_run, 1) : std::max<std::int64_t>(of_pass, 0);
  if (device.is_cpu()) {
    now.used = device::private_resident_bytes();
    now.room = now.used + device::available_memory_bytes();
  } else {
    const device::Backend::MemoryCounters counters = memory_now().counters;
    now.used = counters.reserved_bytes;
    now.room = counters.allocated_bytes + device::free_tensor_memory(device);
    now.on_gpu = true;
  }
  for (const std::string& warning : memory_watch_.look(now, [this] { return state_bytes_of(*parts_.stepper); })) {
    reporter_.warning(warning);
    reporter_.record("warning", {{"step", step_}, {"text", warning}});
  }
  return now;
}

void Trainer::diagnose(const StepRecord& record, const MemoryWatch::Reading& memory) {
  constexpr double kBetweenMachineLines = 10;  // the least seconds between two lines about the machine
  if (!diagnosis_) return;
  const auto change = diagnosis_->look(
      record,
      {.used = memory.used, .room = memory.room, .step_peak = recovery_.step_peak_bytes(), .rising = memory_watch_.rising()});
  if (change) reporter_.findings(step_, change->fresh, diagnosis_->holding(), change->changed);
  const std::int64_t begin = steady_nanoseconds();
  if (diagnosis_->try_when_due()) {
    recovery_.forget_peak();
    meter_.leave_out(steady_nanoseconds() - begin);
  }
  if (parts_.sampler == nullptr || steady_seconds() - machine_told_ < kBetweenMachineLines) return;
  if (const auto reading = parts_.sampler->take()) {
    if (machine_told_ > 0) diagnosis_->saw_machine(*reading);  // the first reading is not used, because it also covers the start
    machine_told_ = steady_seconds();
    Json line = reading->to_json();
    line["step"] = step_;
    reporter_.record("machine", std::move(line));
    if (const auto blocks = blocks_of(accounts_now()); !blocks.empty())
      reporter_.record("blocks", {{"step", step_}, {"blocks", to_json(blocks)}});
  }
}

// Each rank reads again the input of the steps that it skipped since the last log line. Collective.
void Trainer::look_at_skipped(double skipped) {
  constexpr std::size_t kNamed = 3;
  const bool rose = skipped_inputs_.rose(skipped);
  const std::int64_t begin = steady_nanoseconds();
  BatchContext context = batch_context();
  context.timeline = nullptr;
  const Json lines = skipped_inputs_.look(skipped, loader_state_, context);
  // Asks all ranks, because ranks that step separately also skip separately.
  if (!(parts_.stepper->averages() ? agreement().any(rose) : rose)) return;
  const doctor::Evidence::SkippedInput& own = skipped_inputs_.seen();
  std::vector<std::string> fresh;
  skipped_input_ = {.all = true, .samples = 0, .first = skipped_input_.first, .prepared = skipped_input_.prepared};
  for (const Json& rank : agreement().gather(
           {{"lines", lines}, {"all", own.all}, {"samples", own.samples}, {"first", own.first}, {"prepared", own.prepared}})) {
    const auto first = rank.at("first").get<std::string>();
    const bool prepared = rank.at("prepared").get<bool>();
    if (!first.empty() && (skipped_input_.first.empty() || (skipped_input_.prepared && !prepared))) {
      skipped_input_.first = first;
      skipped_input_.prepared = prepared;
    }
    skipped_input_.all = skipped_input_.all && rank.at("all").get<bool>();
    skipped_input_.samples += rank.at("samples").get<std::int64_t>();
    for (const Json& line : rank.at("lines")) fresh.push_back(line.get<std::string>());
  }
  meter_.leave_out(steady_nanoseconds() - begin);
  if (diagnosis_) diagnosis_->saw_skipped_input(skipped_input_);
  if (fresh.empty() || agreement().ranks().rank != 0) return;
  const std::size_t more = fresh.size() > kNamed ? fresh.size() - kNamed : 0;
  fresh.resize(fresh.size() - more);
  const std::string text =
      "steps up to " + with_commas(step_) +
      (skipped_input_.prepared ? " were skipped because prepare() makes values that are not finite from their input: "
                               : " were skipped because their input is not finite: ") +
      joined(fresh, "; ") + (more > 0 ? "; and " + std::to_string(more) + " more" : "");
  reporter_.warning(text);
  reporter_.record("warning", {{"step", step_}, {"text", text}});
}

// Gathers how long each rank waited for data and for other ranks since the last log line. Collective.
void Trainer::gather_waits() {
  if (agreement().alone() || !parts_.config->log.doctor) return;
  const telemetry::Timeline::Summary times = parts_.timeline->window();
  const std::vector<Json> all = agreement().gather({times.of(Phase::reduction), times.of(Phase::data_wait)});
  if (!diagnosis_) return;
  std::vector<doctor::Evidence::RankTimes> ranks;
  ranks.reserve(all.size());
  for (const Json& rank : all) ranks.push_back({.reduction = rank.at(0), .data_wait = rank.at(1)});
  diagnosis_->saw_ranks(ranks);
}

}  // namespace millrace
