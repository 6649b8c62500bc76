#include "millrace/train/loop/trainer.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/device.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/system/signals.h"
#include "millrace/train/assembly/model_state.h"
#include "millrace/train/run_folder/run_files.h"
#include "millrace/train/step/micro_batches.h"
#include "millrace/train/step/rank_check.h"
#include "millrace/train/step/step_graph.h"
#include "millrace/train/step/stepper_report.h"

namespace millrace {

using telemetry::Phase;
using telemetry::Span;

namespace {

// After this many steps of a run on a GPU, steps usually are all launched in the same way. Earlier steps are mixed: four are
// launched piece by piece, one is recorded, two are launched twice to compare replay and launch, and three are timed
// (train/step/step_graph.cpp).
constexpr std::int64_t kMixedSteps = 10;

// The value of each metric at the latest validation.
metrics::Means latest_of(const Scores& scores) {
  metrics::Means means;
  for (const auto& [name, metric] : scores.metrics()) {
    means[name] = metric.last;
    if (metric.quiet) means.add_quiet(name);
  }
  return means;
}

// The number of steps in an epoch. All batches of a step are from one epoch, so the last step of an epoch may have fewer batches
// than the others.
std::int64_t steps_of_an_epoch(const data::Loader& loader, std::int64_t accumulate) {
  return std::max<std::int64_t>((loader.batches_per_epoch() + accumulate - 1) / accumulate, 1);
}

}  // namespace

std::string_view name_of(Ending ending) noexcept {
  switch (ending) {
    case Ending::max_steps:
      return "max_steps";
    case Ending::epochs_done:
      return "epochs";
    case Ending::early_stop:
      return "early_stop";
    case Ending::signal:
      return "signal";
  }
  return "";
}

Trainer::Trainer(Trainer::Parts parts)
    : parts_(std::move(parts)),
      feed_(*parts_.loader, Split::train, parts_.stepper->device(), parts_.batch_ahead, parts_.timeline),
      reporter_(parts_.sinks, parts_.names),
      meter_(parts_.names.loss, parts_.stepper->device().is_cpu()),
      scores_(parts_.config->snapshot, parts_.config->train, "val_" + parts_.names.loss),
      saves_(parts_.config->snapshot, parts_.place, reporter_, agreement()),
      recovery_(parts_.recovers, parts_.may_recompute, parts_.config->memory.micro_batches, *parts_.recipe, *parts_.stepper,
                reporter_, agreement()),
      thaw_watch_(parts_.recipe->model()),
      skipped_inputs_(*parts_.loader, parts_.config->optim.accumulate),
      loader_state_(parts_.loader->state()),
      validation_pending_(parts_.config->train.validate_at_start && parts_.validation != nullptr) {
  if (parts_.config->snapshot.frozen == FrozenWeights::leave_out)
    frozen_ = record_of_frozen(parts_.recipe->model(), *parts_.stepper, parts_.frozen_source);
  if (parts_.config->profile.steps > 0 && agreement().ranks().rank == 0)
    profiler_ = std::make_unique<StepProfiler>(parts_.config->profile, parts_.stepper->device(), parts_.place, reporter_);
  if (!parts_.stepper->device().is_cpu())
    phases_ = std::make_unique<PhaseClock>(parts_.stepper->device(), parts_.config->log.every);
  if (parts_.config->log.doctor) parts_.stepper->blocks().time();
  if (parts_.config->log.doctor && agreement().ranks().rank == 0) diagnosis_ = std::make_unique<Diagnosis>(diagnosis_parts());
}

Agreement& Trainer::agreement() const { return parts_.agreement == nullptr ? Agreement::of_one() : *parts_.agreement; }

BatchContext Trainer::batch_context() const {
  return {.recipe = *parts_.recipe,
          .timeline = parts_.timeline,
          .device = parts_.stepper->device(),
          .micro_batches = recovery_.micro_batches(),
          .ahead = parts_.batch_ahead,
          .seed = parts_.stepper->seed()};
}

Ending Trainer::run() {
  begin();
  std::optional<Ending> ending = between_steps();  // a resumed run first does the work that was still due after its snapshot's
                                                   // step
  while (!ending) {
    begin_profiled_step();
    const bool stepped = take_step();
    if (stepped) first_step_is_made();
    if (stepped) log_if_due();
    end_profiled_step(stepped);
    if (sync_.now && (stepped || epoch_end_.reached)) validation_pending_ = validation_due(epoch_end_.reached);
    if (epoch_end_.reached) end_epoch();
    show_progress();
    if (sync_.now) ending = between_steps();
  }
  return finish(*ending);
}

void Trainer::begin() {
  parts_.recipe->model().train();
  if (!parts_.stepper->device().is_cpu()) saves_.make_room([this] { return content(); });
  if (parts_.step_graph) use_graph();
  meter_.start();
  const double skipped = parts_.stepper->skips().in_all().item<double>();
  skipped_inputs_.begin(skipped, loader_state_);
  if (diagnosis_) diagnosis_->began(skipped);
  recovery_.forget_peak();
  began_step_ = step_;
}

// Does what all ranks do together at a sync, while their states are equal: validation, save, stop. A snapshot records whether
// the validation of its step is done.
std::optional<Ending> Trainer::between_steps() {
  if (validation_pending_) validate();
  const bool is_told_to_stop = take_finished_save();
  if (saves_.is_due(step_, sync_.before, epoch_end_.save_due || scores_.wants_save())) save(false);
  wait_for_late_save();
  if (is_told_to_stop || (agreement().alone() && pending_signal() != 0)) return Ending::signal;
  const std::optional<Ending> ending = natural_end();
  if (!ending) sync_.before = step_;
  return ending;
}

bool Trainer::take_finished_save() {
  const Span span(*parts_.timeline, Phase::snapshot);
  return saves_.take_finished(step_, Saves::Failure::as_configured, pending_signal() != 0);
}

void Trainer::wait_for_late_save() {
  const Span span(*parts_.timeline, Phase::snapshot);
  meter_.leave_out(saves_.bound_lag(step_));
}

void Trainer::log_if_due() {
  if (step_ == 1 || step_ % parts_.config->log.every == 0) {
    log();  // the loop waits for the device only in log(), in a validation and for a snapshot
    fall_back_if_due();
    report_graph();
  }
  const std::int64_t every = parts_.config->log.gpu_every;
  if (every > 0 && step_ % every == 0) reporter_.memory(memory_now(), step_);
}

void Trainer::show_progress() {
  if (reporter_.shows_progress())
    reporter_.progress(step_, parts_.total_steps, epoch_end_.of_step, meter_.last_loss(), meter_.seconds_per_step());
}

namespace {

// While an object of this class exists, the time counts as the phase `profile`, so that the profile does not contain the
// recorder's own time.
class Unseen {
 public:
  Unseen(telemetry::Timeline& timeline, Phase phase) noexcept : timeline_(timeline), before_(timeline.enter(phase)) {}
  ~Unseen() { timeline_.leave(before_); }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;

 private:
  telemetry::Timeline& timeline_;
  Phase before_;
};

}  // namespace

void Trainer::begin_profiled_step() {
  if (!profiler_) return;
  const Unseen span(*parts_.timeline, Phase::profile);
  profiler_->begin_step(step_ + 1);
}

void Trainer::end_profiled_step(bool stepped) {
  if (!profiler_) return;
  const Unseen span(*parts_.timeline, Phase::profile);
  const std::int64_t begin = steady_nanoseconds();
  profiler_->end_step(stepped);
  meter_.leave_out(steady_nanoseconds() - begin);
  if (profiler_->is_done()) profiler_.reset();
}

void Trainer::end_profile() noexcept {
  if (!profiler_) return;
  const Unseen span(*parts_.timeline, Phase::profile);
  profiler_->end();
  profiler_.reset();
}

// Makes one step. Returns false without a step if all batches up to the end of the epoch are empty.
bool Trainer::take_step() {
  parts_.timeline->begin_step();
  // The phases are not timed during a profile, because the profile uses the same hook on spans.
  if (phases_ && !profiler_) phases_->begin_step(step_ + 1);
  doing_step(step_ + 1);
  parts_.stepper->begin_step(step_);
  std::vector<StepResult> results;
  metrics::Board measured;
  const std::int64_t rows = recovery_.attempt(
      {.step = step_, .where = "step " + std::to_string(step_ + 1), .may_recompute = true, .alone = parts_.stepper->averages()},
      [&] { return run_micro_batches(results, measured); },
      [&] {
        results.clear();
        measured.reset();
        parts_.stepper->abandon_step();
        feed_.drop();
        parts_.loader->load_state(loader_state_);
        epoch_end_.reached = false;
      });
  sync_.rows += rows;
  sync_.now = !parts_.stepper->averages() || step_ + 1 - sync_.before >= parts_.config->distributed.average_every ||
              epoch_end_.reached || step_ + 1 == parts_.config->train.max_steps;
  if (rows == 0 && !parts_.stepper->averages()) {
    if (phases_) phases_->end_step();
    parts_.timeline->drop_step();
    loader_state_ = parts_.loader->state();
    return false;
  }
  is_whole_ = false;
  parts_.stepper->update();
  if (sync_.now) averaged_bytes_ += parts_.stepper->average_over_ranks();
  is_whole_ = true;
  finish_step(results, measured);
  epoch_end_.of_step = epoch_ + 1;
  results.clear();  // the outputs in the results may keep the batch's memory
  // Starts the copy of the next batch, but not at an epoch's end, where other work comes first, nor after the run's last step.
  if (!epoch_end_.reached && step_ != parts_.config->train.max_steps) feed_.look_ahead();
  if (const std::int64_t every = parts_.config->memory.cleanup_every; every > 0 && step_ % every == 0)
    device::release_cached_memory(parts_.stepper->device());
  if (phases_) phases_->end_step();
  parts_.timeline->end_step();
  return true;
}

// Runs the batches of a step: up to optim.accumulate batches, all from one epoch.
std::int64_t Trainer::run_micro_batches(std::vector<StepResult>& results, metrics::Board& measured) {
  const std::int64_t accumulate = parts_.config->optim.accumulate;
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < accumulate && !epoch_end_.reached; ++i) {
    std::optional<Batch> batch = next_batch();
    if (!batch) break;
    recovery_.saw(*batch);
    if (diagnosis_) diagnosis_->saw_copied(*batch);
    rows += for_each_micro_batch(batch_context(), std::move(*batch), [&](const Batch& micro, MicroPosition in_batch) {
      if (diagnosis_) diagnosis_->saw_batch(micro);
      const bool last_batch = i + 1 == accumulate || epoch_end_.reached;
      results.push_back(
          parts_.stepper->accumulate(micro, {.only = in_batch.only && accumulate == 1, .last = in_batch.last && last_batch}));
      if (parts_.config->log.train_metrics) {
        const Span span(*parts_.timeline, Phase::metrics);
        parts_.recipe->measure(micro, results.back(), measured);
      }
    });
    batch.reset();
    if (i + 1 < accumulate && !epoch_end_.reached) feed_.look_ahead();
  }
  return rows;
}

std::optional<Batch> Trainer::next_batch() {
  std::optional<Batch> batch = feed_.next();
  if (batch && static_cast<std::int64_t>(batch->origin().index) + 1 < parts_.loader->batches_per_epoch()) return batch;
  epoch_end_.reached = true;
  if (batch) MR_CHECK(!parts_.loader->next(), "the loader returned a batch after its epoch's last batch");
  return batch;
}

// The rows of all ranks since the last sync. Collective only if ranks average their weights. Otherwise sync_.rows already is the
// sum over the ranks.
std::int64_t Trainer::rows_of_all() {
  const std::int64_t rows = std::exchange(sync_.rows, 0);
  return parts_.stepper->averages() ? agreement().sum(rows) : rows;
}

void Trainer::finish_step(const std::vector<StepResult>& results, const metrics::Board& measured) {
  const Span span(*parts_.timeline, Phase::metrics);
  ++step_;
  check_weights();
  for (const StepResult& result : results) meter_.add(*parts_.stepper, result);
  if (!measured.empty()) meter_.add(measured);
  meter_.end_step(sync_.now ? rows_of_all() : 0);
  loader_state_ = parts_.loader->state();
}

// Saves before the last validation, so that the snapshot is the one that a longer run has at this step. The last validation only
// completes the report. If a signal interrupts the validation, the resumed run makes it again.
Ending Trainer::finish(Ending ending) {
  end_profile();
  recovery_.record_peak();
  const bool goes_on = ending == Ending::signal;
  if (agreement().any(!meter_.is_empty()) && !goes_on) log();
  save(true);
  {
    const Span span(*parts_.timeline, Phase::snapshot);
    state_sha256_ = snapshot::digest(content());
  }
  // Called after the save, because a resumed run counts the steps since the last log line in its own next line.
  if (agreement().any(!meter_.is_empty())) log();
  report_graph();  // called here too, because a short run may have no log line after the choice is made
  const bool validates = !goes_on && parts_.validation != nullptr && validated_step_ != step_;
  if (validates) validate();
  reporter_.end_progress();
  return validates && validated_step_ != step_ ? Ending::signal : ending;
}

std::optional<Ending> Trainer::natural_end() const {
  const TrainConfig& train = parts_.config->train;
  if (scores_.stopped_improving()) return Ending::early_stop;
  if (train.max_steps > 0 && step_ >= train.max_steps) return Ending::max_steps;
  if (train.epochs > 0 && epoch_ >= static_cast<std::uint64_t>(train.epochs)) return Ending::epochs_done;
  return std::nullopt;
}

bool Trainer::is_due(std::int64_t every) const { return every > 0 && step_ / every != sync_.before / every; }

double Trainer::epochs_in_all() const {
  return static_cast<double>(parts_.total_steps) /
         static_cast<double>(steps_of_an_epoch(*parts_.loader, parts_.config->optim.accumulate));
}

void Trainer::end_epoch() {
  wait_for_steps();
  const Span span(*parts_.timeline, Phase::log);
  epoch_end_.reached = false;
  ++epoch_;
  const std::int64_t every = parts_.config->snapshot.every_epochs;
  epoch_end_.save_due = every > 0 && epoch_ % static_cast<std::uint64_t>(every) == 0;
  meter_.sum_epoch(agreement());
  epoch_end_.row = meter_.take_epoch(epoch_);
  epoch_end_.row->peak_bytes = recovery_.take_epoch_peak();
  if (validation_pending_) return;
  // With train.validate_every, the newest validation of an epoch may come before the epoch's end. Whether the epoch had a
  // validation is computed from the step alone. So a run that was resumed in the middle of the epoch writes the same row.
  const std::int64_t spacing = parts_.config->train.validate_every;
  const std::int64_t latest = spacing > 0 && parts_.validation != nullptr ? step_ / spacing * spacing : 0;
  const std::int64_t before =
      static_cast<std::int64_t>(epoch_ - 1) * steps_of_an_epoch(*parts_.loader, parts_.config->optim.accumulate);
  write_history(latest > before ? latest_of(scores_) : metrics::Means());
}

LoggedStep Trainer::logged_step(const StepRecord& record) const {
  const at::Device device = parts_.stepper->device();
  const std::int64_t accumulate = parts_.config->optim.accumulate, steps = steps_of_an_epoch(*parts_.loader, accumulate);
  const std::int64_t batches = std::max<std::int64_t>(parts_.loader->batches_per_epoch(), 1), whole = step_ / steps;
  LoggedStep logged{
      .step = step_,
      .epoch = static_cast<double>(whole) + static_cast<double>(step_ % steps * accumulate) / static_cast<double>(batches),
      .rows = record.window.samples,
      .seconds_per_step = record.window.seconds / static_cast<double>(std::max<std::int64_t>(record.window.steps, 1)),
      .memory_bytes = device::backend_of(device).memory(device.has_index() ? device.index() : 0).allocated_bytes,
      .gradient_norm = record.objectives.front().gradient_norm};
  for (const optim::ParameterGroup& group : parts_.stepper->objectives()[0].optimizer().groups())
    logged.learning_rates.push_back(record.objectives.front().learning_rate * group.learning_rate_scale);
  return logged;
}

void Trainer::log() {
  thaw_watch_.look(step_);
  const std::optional<double> host_ms = read_phases(wait_for_steps());
  const Span span(*parts_.timeline, Phase::log);
  meter_.sum_window(agreement());
  gather_waits();
  StepRecord record{.step = step_,
                    .total_steps = parts_.total_steps,
                    .epoch = epoch_end_.of_step,
                    .window = meter_.take_window(),
                    .objectives = reports_of(*parts_.stepper),
                    .skipped = parts_.stepper->skips().in_all().item<double>(),
                    .samples = meter_.samples(),
                    .times = window_times(),
                    .host_ms = host_ms,
                    .cache = {}};
  // Called only if needed, because logged_step() asks the allocator.
  if (parts_.names.step_log) record.logged = logged_step(record);
  const double in_a_row = parts_.stepper->skips().in_a_row().item<double>();
  if (parts_.cache != nullptr) {
    const data::Cache::Counters now = parts_.cache->counters();
    record.cache = now;
    record.cache->hits -= cache_logged_.hits;
    record.cache->misses -= cache_logged_.misses;
    cache_logged_ = now;
  }
  if (parts_.config->log.gpu_memory) record.memory = memory_now();
  if (parts_.sampler != nullptr) record.gpu = parts_.sampler->gpu();
  reporter_.step(record);
  recovery_.record_peak();
  look_at_skipped(record.skipped);
  diagnose(record, watch_memory());
  parts_.timeline->reset_window();
  // Checked for fp32 only. In half precision many steps in a row may overflow while the loss scale adapts;
  // precision::OverflowRule judges those.
  if (!parts_.stepper->autocast()) check_divergence(in_a_row);
}

void Trainer::check_divergence(double skipped_in_a_row) {
  constexpr double limit = 10;
  if (skipped_in_a_row < limit) return;
  const std::string& input = skipped_input_.first;
  const bool made = skipped_input_.prepared;
  throw TrainingDiverged({"the loss or its gradients were not finite in " + fixed(skipped_in_a_row, 0) + " steps in a row" +
                              (input.empty() ? ""
                                             : (made ? ", and prepare() made values that are not finite from a finite input: "
                                                     : ", and the input was not finite either: ") +
                                                   input),
                          "step " + std::to_string(step_) + "; none of these steps changed the weights",
                          saves_.last_good("val_" + parts_.names.loss) +
                              (input.empty() ? ""
                               : made        ? "repair Recipe::prepare(), then "
                                             : "repair the data, then ") +
                              remedy_of_divergence()});
}

void Trainer::check_weights() {
  if (sync_.now && is_due(parts_.config->distributed.check_every)) check_same_weights(agreement(), parts_.recipe->model(), step_);
}

// Throws TrainingDiverged if the state is not finite, so that such a state is never saved. The updated state may not be finite
// although the gradients were.
void Trainer::require_finite() {
  if (!agreement().any(!parts_.stepper->is_finite())) return;
  throw TrainingDiverged({"a weight or a running statistic is not finite", "step " + std::to_string(step_) + ", before saving it",
                          saves_.last_good("val_" + parts_.names.loss) + remedy_of_divergence()});
}

// Falls back to fp32 if half precision overflows too often. Called only after the log lines of log.every, because the step of a
// fallback must not depend on where the run was stopped and saved.
void Trainer::fall_back_if_due() {
  std::optional<std::string> reason = parts_.stepper->skips().overflow();
  if (parts_.stepper->averages()) {  // asks all ranks, because ranks that step separately may decide differently
    const Json of_root = agreement().from_root(reason ? Json(*reason) : Json());
    reason = of_root.is_null() ? std::nullopt : std::optional(of_root.get<std::string>());
  }
  if (!reason) return;
  const std::string from = precision::name_of(parts_.stepper->autocast());
  parts_.stepper->set_autocast(std::nullopt);
  parts_.stepper->skips().forgive();
  const std::string step = std::to_string(step_);
  reporter_.warning("the run continues in fp32 from step " + step + ": in " + from + " " + *reason);
  reporter_.record("precision", {{"step", step_}, {"from", from}, {"to", "fp32"}, {"reason", *reason}});
  parts_.plan->set({"precision.fallback", "fp32 from step " + step, from, *reason, /*by_trial=*/true});
  write_plan();
}

void Trainer::use_graph() {
  const std::string why_not = StepGraph::use(*parts_.stepper);
  if (why_not.empty() && profiler_ && parts_.config->profile.skip < kMixedSteps)
    reporter_.warning(
        "the profile covers steps that are recorded as graphs or launched twice to check the recording: --profile.skip=" +
        std::to_string(kMixedSteps) + " leaves them out, and --off step_graph launches all steps alike");
  if (why_not.empty() || parts_.stepper->device().is_cpu()) return;
  parts_.plan->set({"device.step_graph", "off", "auto", why_not});
  write_plan();
}

void Trainer::report_graph() {
  const StepGraph* const graph = StepGraph::of(*parts_.stepper);
  if (graph == nullptr || !graph->choice() || reported_graph_ == graph->choice()->reason) return;
  const auto& [taken, reason] = *graph->choice();
  reported_graph_ = reason;
  reporter_.record("step_graph", {{"step", step_}, {"taken", taken}, {"reason", reason}});
  parts_.plan->set({"device.step_graph", taken ? "graphs" : "off", "auto", reason});
  write_plan();
}

void Trainer::write_plan() {
  if (parts_.place.folder == nullptr) return;
  try {
    parts_.place.folder->write(run_files::kPlan,
                               parts_.plan->to_json().dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } catch (const FsError& error) {
    reporter_.warning(std::string("plan.json could not be written: ") + error.what());
  }
}

}  // namespace millrace
