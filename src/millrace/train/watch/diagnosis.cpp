#include "millrace/train/watch/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/device/device.h"
#include "millrace/doctor/rules.h"
#include "millrace/precision/precision.h"
#include "millrace/train/step/stepper_report.h"

namespace millrace {
namespace {

constexpr double kSecondsBetweenLooks = 1;
constexpr std::size_t kMarks = 12;  // number of marks that are kept; the rules judge the time from the first mark to the last
constexpr std::size_t kLines = 24;  // number of latest log lines whose losses the rules see
constexpr std::size_t kStepTimes = 300;  // if there are more step times than this, every second one is dropped

const telemetry::Counter& recompute_time() {
  static const telemetry::Counter counter("recompute_ns");
  return counter;
}

std::optional<doctor::Evidence::Launches> launches(const DeviceTimes::Sums& from, const DeviceTimes::Sums& to) {
  const auto steps = static_cast<double>(to.steps - from.steps), waits = static_cast<double>(to.waits - from.waits);
  if (steps <= 0 || waits <= 0) return std::nullopt;
  return doctor::Evidence::Launches{.host_ms = (to.host_seconds - from.host_seconds) / steps * 1e3,
                                    .device_ms = (to.device_seconds - from.device_seconds) / steps * 1e3,
                                    .behind_ms = (to.waited_seconds - from.waited_seconds) / waits * 1e3};
}

telemetry::Timeline::Summary difference(const telemetry::Timeline::Summary& to, const telemetry::Timeline::Summary& from) {
  telemetry::Timeline::Summary between = to;
  between.steps -= from.steps;
  between.step_seconds -= from.step_seconds;
  between.wall -= from.wall;
  for (std::size_t i = 0; i < telemetry::kPhases; ++i) between.seconds[i] -= from.seconds[i];
  return between;
}

}  // namespace

Diagnosis::Diagnosis(Diagnosis::Parts parts) : parts_(std::move(parts)) {
  nn::count_clamps(true);
  if (parts_.blind) numbers_.blind = doctor::Evidence::Blind{.loss = parts_.blind->loss, .what = parts_.blind->what};
  numbers_.has_bf16 = precision::hardware_has_fast_bf16(parts_.stepper->device(), nullptr);
  for (const ObjectiveStep& objective : parts_.stepper->objectives()) {
    const optim::OptimConfig& wish = objective.spec().optim;
    numbers_.objectives.push_back(
        {.name = objective.spec().name, .lines = {}, .clips = wish.clip_norm > 0 || wish.clip_value > 0});
  }
}

Diagnosis::~Diagnosis() { nn::count_clamps(false); }

telemetry::Timeline::Summary Diagnosis::total_times() const {
  telemetry::Timeline::Summary times = parts_.timeline->total();
  if (parts_.device != nullptr) parts_.device->correct(times);
  return times;
}

Diagnosis::Mark Diagnosis::mark() const {
  Mark mark{.at = steady_seconds(),
            .times = total_times(),
            .lines = lines_,
            .saves = saves_,
            .validations = validations_,
            .recompute_ns = recompute_time().total(),
            .step = step_,
            .samples = samples_,
            .validation_batches = validation_batches_,
            .validation_seconds = validation_seconds_,
            .cpu_seconds = static_cast<double>(std::clock()) / CLOCKS_PER_SEC,
            .skipped = skipped_,
            .spikes = spikes_,
            .others = others_,
            .others_of = others_of_,
            .read = parts_.loader->counters(),
            .slow = {},
            .clamps = nn::clamp_counts(),
            .batches = shapes_.batches(),
            .shapes = shapes_.shapes(),
            .ranks = ranks_,
            .gpu = gpu_,
            .device = parts_.device == nullptr ? DeviceTimes::Sums{} : parts_.device->sums()};
  for (const data::Loader::SlowFile& file : parts_.loader->slow_files()) mark.slow[file.name] = file.excess_seconds;
  return mark;
}

// Keeps the loss and the gradient norm of each objective that had a loss since the last log line. The gradient norm of any other
// objective belongs to an older step, so it is left out.
void Diagnosis::note_losses(const StepRecord& record) {
  for (std::size_t i = 0; i < std::min(record.objectives.size(), numbers_.objectives.size()); ++i) {
    const auto loss = record.window.means.find(record.objectives[i].name);
    if (loss == record.window.means.end()) continue;
    std::vector<doctor::Evidence::LossLine>& lines = numbers_.objectives[i].lines;
    lines.push_back({.step = record.step, .loss = loss->second, .gradient_norm = record.objectives[i].gradient_norm});
    if (lines.size() > kLines) lines.erase(lines.begin());
  }
}

std::optional<doctor::Watch::Change> Diagnosis::look(const StepRecord& record, MemorySeen memory) {
  ++lines_;
  step_ = record.step;
  samples_ = record.samples;
  skipped_ = record.skipped;
  spikes_ = 0;
  for (const ObjectiveReport& objective : record.objectives) spikes_ += objective.spikes;
  memory_ = std::move(memory);
  if (record.window.others) {
    others_ += *record.window.others * record.window.seconds;
    others_of_ += record.window.seconds;
  }
  note_losses(record);
  if (first_ && record.times.steps > 0) {  // the first line is left out, because it contains the warm-up
    step_ms_.push_back(record.times.step_ms_p50 * (1 - record.window.others.value_or(0)));
    if (step_ms_.size() > kStepTimes) {
      std::size_t kept = 0;
      for (std::size_t i = 0; i < step_ms_.size(); i += 2) step_ms_[kept++] = step_ms_[i];
      step_ms_.resize(kept);
    }
  }
  const double now = steady_seconds();
  if (first_ && now - looked_ < kSecondsBetweenLooks) return std::nullopt;
  looked_ = now;
  marks_.push_back(mark());
  if (!first_) {
    marks_.back().skipped = skipped_before_;  // steps that were skipped before the first log line count too
    first_ = marks_.back();
  }
  if (marks_.size() > kMarks) marks_.pop_front();
  if (marks_.size() < 2) return std::nullopt;
  doctor::Watch::Change change = watch_.look(doctor::findings_of(evidence(marks_.front(), marks_.back())));
  seconds_ += steady_seconds() - now;
  return change;
}

void Diagnosis::saw_validation(double loss, double seconds, const doctor::Evidence::Judged& judged) {
  ++validations_;
  validation_batches_ += judged.batches;
  numbers_.judged = judged;
  validation_seconds_ += seconds;
  if (std::isfinite(loss)) numbers_.validation.push_back(loss);
}

// Measures the share of fp32 and fp64 bytes in the first batch only, because all batches of a run have the same fields.
void Diagnosis::saw_copied(const Batch& batch) {
  if (copied_floats_) return;
  double all = 0, floats = 0;
  for (const Group& group : batch.groups()) {
    for (const auto& [name, tensor] : group.fields) {
      const auto bytes = static_cast<double>(tensor.nbytes());
      all += bytes;
      if (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble) floats += bytes;
    }
  }
  if (all > 0) copied_floats_ = floats / all;
}

void Diagnosis::saw_batch(const Batch& batch) { shapes_.see(batch); }

void Diagnosis::saw_peak(std::uint64_t bytes) noexcept { most_held_ = std::max(most_held_, bytes); }

void Diagnosis::saw_ranks(const std::vector<doctor::Evidence::RankTimes>& times) {
  ranks_.resize(times.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    ranks_[i].reduction += times[i].reduction;
    ranks_[i].data_wait += times[i].data_wait;
  }
}

void Diagnosis::saw_machine(const doctor::Sampler::MachineReading& reading) {
  gpu_.add(reading);
  clock_.add(reading);
}

// Estimates the seconds from the times of the run's passes and batches so far.
double Diagnosis::seconds_of_next_trial(const telemetry::Timeline::Summary& so_far) const {
  using telemetry::Phase;
  const RunConfig& config = *parts_.config;
  const auto micro_batches = static_cast<double>(so_far.steps * config.optim.accumulate * config.memory.micro_batches);
  const double passes = so_far.of(Phase::prepare) + so_far.of(Phase::forward) + so_far.of(Phase::backward);
  const data::Loader::Counters read = parts_.loader->counters();
  const double batch = read.read_seconds / std::max(1.0, static_cast<double>(read.batches));
  return batch + remedies_->next_passes() * passes / std::max(1.0, micro_batches);
}

bool Diagnosis::try_when_due() {
  if (!parts_.trials || !first_ || marks_.size() < 2 || asked_for_trials_ == looked_) return false;
  asked_for_trials_ = looked_;
  if (remedies_ == nullptr) remedies_ = parts_.trials();
  bool made = false;
  while (remedies_->has_next()) {
    const telemetry::Timeline::Summary so_far = total_times();
    if (trial_seconds_ + seconds_of_next_trial(so_far) > parts_.config->log.doctor_trials * so_far.loop()) break;
    const telemetry::Span span(*parts_.timeline, telemetry::Phase::trials);
    const double began = steady_seconds();
    remedies_->make_next();
    trial_seconds_ += steady_seconds() - began;
    trials_ = remedies_->made();
    made = true;
  }
  return made;
}

doctor::Evidence Diagnosis::of_the_run() const {
  if (!first_) return {};
  doctor::Evidence all = evidence(*first_, mark());
  all.clock = clock_.of_the_run();
  return all;
}

Reached Diagnosis::reached(const Mark& from, const Mark& to, const doctor::Evidence& seen) const {
  using telemetry::Phase;
  Reached reached;
  const double training = seen.times.loop() - seen.times.of(Phase::validate) - seen.times.of(Phase::snapshot);
  if (training > 0 && seen.times.steps > 0) {
    reached.train_it_per_s = static_cast<double>(seen.times.steps) / training;
    reached.data_wait = seen.share(Phase::data_wait);
    if (to.step > from.step)
      reached.samples_per_s =
          *reached.train_it_per_s * static_cast<double>(to.samples - from.samples) / static_cast<double>(to.step - from.step);
  }
  if (const double seconds = to.validation_seconds - from.validation_seconds; seconds > 0)
    reached.validation_it_per_s = static_cast<double>(to.validation_batches - from.validation_batches) / seconds;
  if (seen.gpu) reached.gpu_busy = seen.gpu->utilisation;
  return reached;
}

doctor::Evidence::Input Diagnosis::input(const Mark& from, const Mark& to) const {
  const DataConfig& wish = parts_.config->data;
  doctor::Evidence::Input input{.readers = parts_.loader->readers(),
                                .readers_by_user = !wish.workers.is_auto(),
                                .read_seconds = to.read.read_seconds - from.read.read_seconds,
                                .read_cpu_seconds = to.read.read_cpu_seconds - from.read.read_cpu_seconds,
                                .cache_by_user = !wish.cache.is_auto(),
                                .cached = parts_.cached,
                                .cacheable_bytes = parts_.cacheable_bytes,
                                .free_bytes = device::available_memory_bytes(),
                                .epochs = parts_.epochs,
                                .bad_samples = static_cast<std::int64_t>(to.read.bad_samples),
                                .good_samples = static_cast<std::int64_t>(to.read.samples),
                                .slow = {}};
  const double usual =
      std::max(input.read_seconds / std::max(1.0, static_cast<double>(to.read.samples - from.read.samples)), 1e-9);
  for (const data::Loader::SlowFile& file : parts_.loader->slow_files()) {
    const auto before = from.slow.find(file.name);
    const double excess = file.excess_seconds - (before == from.slow.end() ? 0 : before->second);
    if (excess <= 0) continue;
    const double each = file.excess_seconds / static_cast<double>(std::max<std::uint64_t>(file.reads, 1));
    const double normal = std::max(file.usual_seconds, std::min(usual, 1e-6));
    input.slow.push_back({.file = file.name,
                          .excess_seconds = excess,
                          .times = 1 + each / normal,
                          .quick = static_cast<double>(file.quick) / static_cast<double>(file.quick + file.reads),
                          .sample = file.worst,
                          .sample_times = file.worst_seconds / normal});
  }
  std::ranges::sort(input.slow, std::ranges::greater(), &doctor::Evidence::Input::Slow::excess_seconds);
  return input;
}

doctor::Evidence Diagnosis::evidence(const Mark& from, const Mark& to) const {
  const RunConfig& config = *parts_.config;
  doctor::Evidence e;
  e.step = step_;
  e.times = difference(to.times, from.times);
  e.run_seconds = to.times.loop();
  if (const double of = to.others_of - from.others_of; of > 0) e.others = (to.others - from.others) / of;
  e.cores = device::cpu_info().physical_cores;
  e.on_gpu = !parts_.stepper->device().is_cpu();
  e.gpu = doctor::gpu_between(from.gpu, to.gpu);
  e.launches = launches(from.device, to.device);
  e.clock = clock_.latest();
  e.input = input(from, to);
  e.work_cpu_seconds = std::max(0.0, to.cpu_seconds - from.cpu_seconds - e.input.read_cpu_seconds);
  e.copied_floats = copied_floats_;
  e.log = {.count = to.lines - from.lines, .every_steps = config.log.every};
  e.snapshot = {
      .count = to.saves - from.saves, .every_steps = config.snapshot.every_steps, .every_epochs = config.snapshot.every_epochs};
  e.validation = {.count = to.validations - from.validations,
                  .every_steps = config.train.validate_every,
                  .every_epochs = config.train.validate_epochs};
  const auto& recompute = config.memory.recompute;
  const bool by_user = !recompute.empty() && std::ranges::find(recompute, "auto") == recompute.end() &&
                       std::ranges::find(recompute, "none") == recompute.end();
  e.memory = {.used = memory_.used,
              .room = memory_.room,
              .rising = memory_.rising,
              .recompute_seconds = static_cast<double>(to.recompute_ns - from.recompute_ns) * 1e-9,
              .recompute_by_user = by_user,
              .step_peak = memory_.step_peak,
              .most_held = most_held_};
  e.shapes = {
      .batches = to.batches - from.batches, .fresh = to.shapes - from.shapes, .all = to.shapes, .latest = shapes_.latest()};
  e.ranks = to.ranks;
  for (std::size_t i = 0; i < std::min(from.ranks.size(), e.ranks.size()); ++i) {
    e.ranks[i].reduction -= from.ranks[i].reduction;
    e.ranks[i].data_wait -= from.ranks[i].data_wait;
  }
  e.numbers = numbers_;
  e.numbers.skipped = static_cast<std::int64_t>(to.skipped - from.skipped);
  e.numbers.spikes = static_cast<std::int64_t>(to.spikes - from.spikes);
  e.numbers.scaled = parts_.stepper->autocast() == at::kHalf;
  for (const nn::ClampCount& now : to.clamps) {
    doctor::Evidence::Clamp clamp{
        .name = now.name, .low = now.low, .high = now.high, .values = now.values, .at_border = now.at_border};
    for (const nn::ClampCount& before : from.clamps) {
      if (before.name != now.name) continue;
      clamp.values -= before.values;
      clamp.at_border -= before.at_border;
    }
    e.numbers.clamps.push_back(std::move(clamp));
  }
  e.numbers.stops_early = config.train.early_stop_patience > 0;
  e.experiments = trials_.experiments;
  e.census = trials_.census;
  e.step_ms = step_ms_;
  e.earlier = parts_.earlier;
  e.run = parts_.run;
  e.targets = targets_of(config.targets, reached(from, to, e));
  return e;
}

}  // namespace millrace
