#include "millrace/train/trainer.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/signals.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/train/feed.h"
#include "millrace/train/run_files.h"
#include "millrace/train/split.h"

namespace millrace {

using telemetry::Phase;
using telemetry::Span;

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

Trainer::Trainer(TrainerParts parts)
    : parts_(std::move(parts)), loader_state_(parts_.loader->state()), split_(parts_.config->memory.split) {
  validation_pending_ = parts_.config->train.validate_at_start && parts_.validation != nullptr;
  if (parts_.folder != nullptr) {
    writer_ =
        std::make_unique<snapshot::Writer>(*parts_.fs, parts_.folder->path(), parts_.saves_in_background, parts_.began_from);
  }
}

Ending Trainer::run() {
  parts_.recipe->model().train();
  window_begin_ns_ = epoch_begin_ns_ = steady_nanoseconds();
  forget_peak();
  while (true) {
    if (validation_pending_) validate();
    note_save(OnFailure::as_configured);
    if (snapshot_due()) save(false);
    bound_lag();
    if (const auto ending = reason_to_stop()) return finish(*ending);

    parts_.timeline->begin_step();
    parts_.stepper->begin_step(step_);
    if (accumulate()) {
      parts_.stepper->update();
      finish_step();
    }
    parts_.timeline->end_step();

    if (step_ == 1 || step_ % parts_.config->log.every == 0) {
      log();  // with validation and snapshots all that waits for the device
      fall_back_if_due();
    }
    validation_pending_ = validation_due(epoch_ended_);
    if (epoch_ended_) end_epoch();
    if (parts_.console->is_terminal()) parts_.console->progress(progress());
  }
}

// The saved state is that of a run that goes on: the last validation of a run that was long enough is for its report alone. A
// signal during that validation leaves a run that still has it to do.
Ending Trainer::finish(Ending ending) {
  note_peak();
  const bool goes_on = ending == Ending::signal;
  if (!window_.empty() && !goes_on) log();
  save(true);
  state_sha256_ = snapshot::digest(content());
  if (!window_.empty()) log();  // after the save: the run that goes on counts these steps in its next line
  const bool validates = !goes_on && parts_.validation != nullptr && validated_step_ != step_;
  if (validates) validate();
  parts_.console->end_progress();
  return validates && validated_step_ != step_ ? Ending::signal : ending;
}

std::optional<Ending> Trainer::natural_end() const {
  const TrainConfig& train = parts_.config->train;
  if (train.early_stop_patience > 0 && validations_without_gain_ >= train.early_stop_patience) return Ending::early_stop;
  if (train.max_steps > 0 && step_ >= train.max_steps) return Ending::max_steps;
  if (train.epochs > 0 && epoch_ >= static_cast<std::uint64_t>(train.epochs)) return Ending::epochs_done;
  return std::nullopt;
}

std::optional<Ending> Trainer::reason_to_stop() const {
  if (pending_signal() != 0) return Ending::signal;
  return natural_end();
}

std::optional<Batch> Trainer::next_batch() {
  const Span span(*parts_.timeline, Phase::data_wait);
  std::optional<data::HostBatch> host = parts_.loader->next();
  if (!host) {
    epoch_ended_ = true;
    return std::nullopt;
  }
  if (static_cast<std::int64_t>(host->index) + 1 >= parts_.loader->batches_per_epoch()) {
    epoch_ended_ = true;
    MR_CHECK(!parts_.loader->next(), "the loader went on after its epoch's last batch");
  }
  return to_batch(std::move(*host), parts_.device);
}

// Up to optim.accumulate micro-batches of one epoch; what is left of an epoch is a step of its own. False: there was none.
bool Trainer::gather() {
  pending_.clear();
  pending_rows_ = 0;
  for (std::int64_t i = 0; i < parts_.config->optim.accumulate && !epoch_ended_; ++i) {
    std::optional<Batch> batch = next_batch();
    if (!batch) break;
    if (batch->rows() == 0) continue;  // data.bad_samples=skip left nothing of it
    pending_rows_ += batch->rows();
    for (const Group& group : batch->groups()) widest_batch_ = std::max(widest_batch_, group.rows());
    const std::int64_t parts = parts_of(*batch, split_);
    for (std::int64_t part = 0; part < parts; ++part) {
      Batch micro = take_part(*batch, part, parts);
      {
        const Span span(*parts_.timeline, Phase::prepare);
        micro = parts_.recipe->prepare(std::move(micro));
      }
      pending_.push_back(parts_.stepper->accumulate(micro));
    }
  }
  return !pending_.empty();
}

void Trainer::finish_step() {
  ++step_;
  ++window_steps_;
  for (const StepResult& result : pending_) {
    for (std::size_t i = 0; i < result.losses.size(); ++i) {
      window_.add(parts_.stepper->objective_name(i), result.losses[i]);
      epoch_board_.add(parts_.stepper->objective_name(i), result.losses[i]);
    }
  }
  pending_.clear();
  samples_ += pending_rows_;
  window_samples_ += pending_rows_;
  epoch_samples_ += pending_rows_;
  session_samples_ += pending_rows_;
  loader_state_ = parts_.loader->state();
  if (!first_step_seconds_) first_step_seconds_ = seconds_since_process_start();
}

bool Trainer::validation_due(bool epoch_ended) const {
  if (parts_.validation == nullptr) return false;
  const std::int64_t every = parts_.config->train.validate_every;
  return every > 0 ? step_ % every == 0 : epoch_ended;
}

bool Trainer::snapshot_due() const {
  if (parts_.folder == nullptr || saved_step_ == step_ || step_ == 0) return false;
  const SnapshotConfig& config = parts_.config->snapshot;
  if (config.every_steps > 0 && step_ % config.every_steps == 0) return true;
  return epoch_save_due_ || (config.keep_best && improved_);
}

void Trainer::end_epoch() {
  epoch_ended_ = false;
  ++epoch_;
  const std::int64_t every = parts_.config->snapshot.every_epochs;
  epoch_save_due_ = every > 0 && epoch_ % static_cast<std::uint64_t>(every) == 0;
  const double seconds = static_cast<double>(steady_nanoseconds() - epoch_begin_ns_) * 1e-9;
  EpochRow row{epoch_, 0.0, seconds, static_cast<double>(epoch_samples_) * parts_.units_per_sample / std::max(seconds, 1e-9)};
  const auto means = epoch_board_.means();
  if (const auto it = means.find(parts_.stepper->objective_name(0)); it != means.end()) row.train_loss = it->second;
  epoch_row_ = row;
  epoch_board_.reset();
  epoch_samples_ = 0;
  epoch_begin_ns_ = steady_nanoseconds();
  if (!validation_pending_) write_history({});
}

void Trainer::validate() {
  const std::int64_t begin = steady_nanoseconds();
  note_peak();
  std::optional<std::map<std::string, double>> means;
  {
    const Span span(*parts_.timeline, Phase::validate);
    const auto average = parts_.stepper->use_average();
    means = validation_that_fits();
    parts_.recipe->model().train();
  }
  forget_peak();
  leave_out(steady_nanoseconds() - begin);
  if (!means) return;  // a signal came: the snapshot says that this validation is still due
  if (validation_pending_ && saved_step_ == step_) saved_step_ = -1;  // what was saved does not know of it
  validation_pending_ = false;
  validated_step_ = step_;
  note_validation(*means);
  draw();
}

std::optional<std::map<std::string, double>> validation_means(Recipe& recipe, Stepper& stepper, data::Loader& loader,
                                                              at::Device device, std::int64_t limit, std::int64_t split) {
  const at::NoGradGuard no_grad;
  metrics::Board board;
  recipe.model().eval();
  loader.restart(0);
  for (std::int64_t i = 0; (limit == 0 || i < limit) && pending_signal() == 0; ++i) {
    std::optional<data::HostBatch> host = loader.next();
    if (!host) break;
    Batch whole = to_batch(std::move(*host), device);
    const std::int64_t parts = parts_of(whole, split);
    for (std::int64_t part = 0; part < parts; ++part) {
      const Batch batch = recipe.prepare(take_part(whole, part, parts));
      const StepResult result = stepper.evaluate(batch);
      for (std::size_t k = 0; k < result.losses.size(); ++k) {
        board.add("val_" + stepper.objective_name(k), result.losses[k]);
      }
      recipe.measure(batch, result, board);
    }
  }
  if (pending_signal() != 0) return std::nullopt;
  return board.means();
}

telemetry::Progress Trainer::progress() const {
  telemetry::Progress now;
  now.step = step_;
  now.total_steps = parts_.total_steps;
  now.epoch = epoch_ + 1;
  now.loss = loss_last_.value_or(std::nan(""));
  now.rate = log_rate_;
  now.rate_unit = parts_.rate_unit + "/s";
  now.data_wait_share = wait_share_;
  if (parts_.total_steps > 0 && window_steps_ > 0) {
    const double elapsed = static_cast<double>(steady_nanoseconds() - window_begin_ns_) * 1e-9;
    now.eta_seconds = elapsed / static_cast<double>(window_steps_) * static_cast<double>(parts_.total_steps - step_);
  }
  return now;
}

void Trainer::check_divergence(double skipped_in_a_row) const {
  constexpr double limit = 10;
  if (skipped_in_a_row < limit) return;
  throw TrainingDiverged({"the loss or its gradients were not finite in " + fixed(skipped_in_a_row, 0) + " steps in a row",
                          "step " + std::to_string(step_) + "; none of these steps changed the weights",
                          last_good() + "lower optim.learning_rate, set optim.clip_norm, or try precision.dtype=fp32"});
}

std::string Trainer::last_good() const {
  if (writer_ != nullptr) writer_->wait();  // what it saves may be the one to name
  const auto kept = parts_.folder == nullptr ? std::vector<snapshot::Found>{} : snapshot::list(*parts_.fs, parts_.folder->path());
  return kept.empty() ? std::string() : "the last good snapshot is " + kept.back().path.string() + "; ";
}

// Gradients may be finite and what they lead to may not: such a state is never saved.
void Trainer::require_finite() const {
  if (parts_.stepper->is_finite()) return;
  throw TrainingDiverged({"a weight or a running statistic is not finite", "step " + std::to_string(step_) + ", before saving it",
                          last_good() + "lower optim.learning_rate, or set optim.clip_norm"});
}

// After the loop's own log lines and nowhere else: when a run falls back must not depend on where it was stopped and saved.
void Trainer::fall_back_if_due() {
  const std::optional<std::string> reason = parts_.stepper->overflow();
  if (!reason) return;
  const std::string from = precision::name_of(parts_.stepper->autocast());
  parts_.stepper->set_autocast(std::nullopt);
  parts_.stepper->forgive();
  const std::string step = std::to_string(step_);
  parts_.console->warning("the run goes on in fp32 from step " + step + ": in " + from + " " + *reason);
  record("precision", {{"step", step_}, {"from", from}, {"to", "fp32"}, {"reason", *reason}});
  if (parts_.plan == nullptr) return;
  parts_.plan->set({"precision.fallback", "fp32 from step " + step, from, *reason, /*by_trial=*/true});
  if (parts_.folder == nullptr) return;
  try {
    parts_.folder->write(run_files::kPlan, parts_.plan->to_json().dump(2) + "\n");
  } catch (const FsError& error) {
    parts_.console->warning(std::string("plan.json could not be written: ") + error.what());
  }
}

void Trainer::record(std::string_view kind, Json values) const {
  if (parts_.log != nullptr) parts_.log->write(kind, std::move(values));
}

}  // namespace millrace
