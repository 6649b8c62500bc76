// The part of the trainer that saves and restores the state of a run, and that reports its results.
#include <torch/nn/module.h>

#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/core/saved_json.h"
#include "millrace/doctor/rules.h"
#include "millrace/snapshot/layout.h"
#include "millrace/train/assembly/convolution_choice.h"
#include "millrace/train/assembly/model_state.h"
#include "millrace/train/loop/trainer.h"
#include "millrace/train/step/stepper_report.h"
#include "millrace/train/step/stepper_state.h"
#include "millrace/train/watch/watchdog.h"

namespace millrace {
namespace {

void check_data(data::Loader& training, data::Loader* validation, const SavedJson& report) {
  const auto data = report.find("data");
  const auto saved = [&](const char* split) {
    const auto one = data ? data->find(split) : std::nullopt;
    return one ? one->json() : Json();
  };
  training.check_data(saved("train"));
  if (validation == nullptr) return;
  if (const Json held_out = saved("validation"); !held_out.is_null()) validation->check_data(held_out, "the validation data");
}

// True if the snapshot that the run begins from is in the folder of another run. Collective, because only rank 0 has the folder.
bool begins_elsewhere(const SaveDestination& place, Agreement& agreement) {
  const bool elsewhere = place.folder != nullptr && place.began_from.parent_path().parent_path() != place.folder->path();
  return agreement.from_root(elsewhere).get<bool>();
}

Json results_of(const data::Cache::Counters& cache) {
  return {{"hit_rate", cache.hit_rate()},
          {"hits", cache.hits},
          {"misses", cache.misses},
          {"bytes", cache.bytes},
          {"budget_bytes", cache.budget_bytes}};
}

}  // namespace

snapshot::Content Trainer::content() const {
  snapshot::Content content;
  content.step = step_;
  content.config = parts_.config_values;
  content.models = model_tensors(parts_.recipe->model(), *parts_.stepper, frozen_);
  if (!frozen_.is_null()) content.parts[snapshot::kFrozen].json = frozen_;
  content.parts[snapshot::kOptimizer] = state_of(*parts_.stepper);
  if (Tensors average = averaged_weights(*parts_.stepper); !average.empty())
    content.parts[snapshot::kAverage].tensors = std::move(average);
  content.parts[snapshot::kLoader].json = loader_state_;
  content.parts[snapshot::kRecipe] = parts_.recipe->state();
  Json& json = content.parts[snapshot::kTrainer].json;
  json = {{"step", step_},
          {"epoch", epoch_},
          {"validation_pending", validation_pending_},
          {"memory_split", recovery_.micro_batches()}};
  meter_.write_state(json, content.report);
  scores_.write_state(json, content.report);
  if (epoch_end_.row) json["epoch_row"] = {epoch_end_.row->epoch, number_or_null(epoch_end_.row->train_loss)};
  if (const auto names = frozen_names(parts_.recipe->model(), *parts_.stepper); !names.empty()) json["frozen"] = names;
  if (Json parts = identities_of_frozen_parts(parts_.recipe->model()); !parts.empty()) json["frozen_parts"] = std::move(parts);
  if (parts_.plan != nullptr) json["choices"] = parts_.plan->trial_choices();
  // Eval and predict read the convolutions' faults from the report; a resumed run reads `choices` instead. The faults are in the
  // report because their text must not be part of the state.
  if (parts_.convolutions != nullptr && !parts_.convolutions->faults.empty())
    content.report[kConvolutionsInReport] = parts_.convolutions->to_json();
  return content;
}

std::string Trainer::state_sha256() const {
  if (!state_sha256_.empty()) return state_sha256_;
  try {
    return snapshot::digest(content());
  } catch (const DistributedError&) {
    return "";
  }
}

void Trainer::restore(const snapshot::Content& content) {
  const State* frozen = snapshot::part_of(content, snapshot::kFrozen);
  const State* saved = snapshot::part_of(content, snapshot::kTrainer);
  check_frozen_parts(parts_.recipe->model(), saved == nullptr ? Json() : saved->json.value("frozen_parts", Json()),
                     frozen != nullptr);
  load_model_tensors(parts_.recipe->model(), content.models, frozen == nullptr ? Json() : frozen->json, frozen_);
  const auto part = [&](const char* name) -> const State& {
    const State* found = snapshot::part_of(content, name);
    if (found == nullptr) {
      throw SnapshotError({std::string("the snapshot has no part \"") + name + "\"", "step " + std::to_string(content.step),
                           "resume from another snapshot, or start over with --fresh"});
    }
    return *found;
  };
  const State* average = snapshot::part_of(content, snapshot::kAverage);
  load_state(*parts_.stepper, part(snapshot::kOptimizer), average == nullptr ? Tensors() : average->tensors);
  const SavedJson report(content.report, "report");
  check_data(*parts_.loader, parts_.validation, report);
  parts_.loader->load_state(part(snapshot::kLoader).json);
  loader_state_ = parts_.loader->state();
  parts_.recipe->load_state(part(snapshot::kRecipe));
  const SavedJson trainer(part(snapshot::kTrainer).json, snapshot::kTrainer);
  step_ = trainer["step"].integer(0);
  epoch_ = static_cast<std::uint64_t>(trainer["epoch"].integer(0));
  validation_pending_ = trainer["validation_pending"].boolean() && parts_.validation != nullptr;
  if (const auto micro_batches = trainer.find("memory_split")) recovery_.use_at_least(micro_batches->integer(1));
  if (begins_elsewhere(parts_.place, agreement())) {
    // The best snapshots of the other run are in another folder, so none of its validations can be the best of this run.
    if (!trainer["metrics"].members().empty())
      reporter_.text("validations up to step " + with_commas(step_) + " count only for the run in " +
                     parts_.place.began_from.parent_path().parent_path().string() +
                     ": this run's best snapshot and early stopping begin after that step");
  } else {
    scores_.load_state(trainer, report);
    if (!scores_.forgot().empty()) reporter_.warning(scores_.forgot());
  }
  meter_.load_state(trainer, report);
  if (agreement().ranks().rank != 0) meter_.forget_sums();
  if (const auto row = trainer.find("epoch_row")) {
    const auto cells = row->list(2);
    epoch_end_.row =
        Meter::EpochRow{.epoch = static_cast<std::uint64_t>(cells[0].integer(0)), .train_loss = cells[1].number_or_nan()};
  }
  saves_.restored(step_);
  sync_ = {.now = true, .before = step_ - 1};
}

void Trainer::save(bool last) {
  wait_for_steps();
  const std::string what = kSaveTask + std::to_string(step_);
  const Doing task(Doing::Level::task, what.c_str());
  const std::int64_t begin = steady_nanoseconds();
  recovery_.record_peak();
  {
    const telemetry::Span span(*parts_.timeline, telemetry::Phase::snapshot);
    if (!saves_.holds(step_)) require_finite();
    meter_.bring_to_root(agreement());
    const auto with_data = [this] {
      snapshot::Content now = content();
      // The report is not part of the state. So the hash of the state stays the same if the data moves, or if a file changes
      // that the run no longer uses.
      now.report["data"]["train"] = parts_.loader->data_state();
      if (parts_.validation != nullptr) now.report["data"]["validation"] = parts_.validation->data_state();
      return now;
    };
    if (saves_.save(step_, with_data, scores_.best_steps(), last)) {
      epoch_end_.save_due = false;
      scores_.saved();
      if (diagnosis_) diagnosis_->saw_snapshot();
    }
  }
  check_first_snapshot();
  recovery_.forget_peak();
  meter_.leave_out(steady_nanoseconds() - begin);
}

void Trainer::check_first_snapshot() {
  const auto check = std::exchange(parts_.check_snapshot, nullptr);
  if (!check) return;
  const telemetry::Span span(*parts_.timeline, telemetry::Phase::trials);
  const std::string notices = check(content());
  if (notices.empty()) return;
  reporter_.warning(notices);
  reporter_.record("warning", {{"step", step_}, {"text", notices}});
}

// What the user should change after a run has diverged. Settings that are already in force are left out.
std::string Trainer::remedy_of_divergence() const {
  const optim::OptimConfig& optim = parts_.config->optim;
  std::string next =
      "start in another folder from a good snapshot, with --run=NEW_FOLDER --train.resume=SNAPSHOT, or from the beginning "
      "with --fresh: lower optim.learning_rate (" +
      significant(optim.learning_rate, 4) + ")";
  next += optim.clip_norm > 0 ? " or optim.clip_norm (" + significant(optim.clip_norm, 4) + ")" : ", set optim.clip_norm=1";
  return next + (parts_.stepper->autocast() ? ", or try precision.dtype=fp32" : "") + ", and look at the input";
}

void Trainer::save_after_error() noexcept {
  end_profile();
  try {
    if (step_ > 0 && agreement().has_cut_sums()) {
      reporter_.warning(
          "the state after the last complete step is not saved, because this GPU may have computed with incomplete sums; " +
          saves_.last() + "the same command resumes from the last snapshot");
      return;
    }
    if (!is_whole_) {
      reporter_.warning("the state is not saved, because the update of the weights was interrupted; " + saves_.last() +
                        "the same command resumes from the last snapshot");
      return;
    }
    parts_.check_snapshot = nullptr;
    if (step_ > 0) save(true);
  } catch (const std::exception& error) {
    reporter_.warning(std::string("the state after the last complete step could not be saved: ") + error.what());
  }
}

Json Trainer::accounts_now() const { return accounts_of(total_times(), meter_.of_process().others); }

Json Trainer::times() const {
  const auto times = total_times();
  return {{"accounts", accounts_of(times, meter_.of_process().others)}, {"wall_s", times.wall}};
}

std::vector<BlockTime> Trainer::blocks_of(const Json& accounts) const {
  return share_out(accounts.at("forward"), accounts.at("backward"), parts_.stepper->blocks().times());
}

namespace {

Json results_of(const Scores& scores) {
  return {{"metrics", scores.results()}, {"metrics_order", scores.names()}, {"best", scores.judged_result()}};
}

}  // namespace

Json Trainer::results() const {
  const auto times = total_times();
  // Called only once, because each call returns later values, and values of two calls do not add up.
  const Meter::OfProcess here = meter_.of_process();
  const Json accounts = accounts_of(times, here.others);
  double spikes = 0;
  Json objectives = Json::array();
  for (const ObjectiveReport& objective : reports_of(*parts_.stepper)) {
    spikes += objective.spikes;
    objectives.push_back({{"name", objective.name},
                          {"learning_rate", objective.learning_rate},
                          {"gradient_norm", number_or_text(objective.gradient_norm)},
                          {"spikes", objective.spikes},
                          {"loss_scale", objective.loss_scale ? Json(*objective.loss_scale) : Json()}});
  }
  Json all = {{"steps", step_},
              {"epochs", epoch_},
              {"samples", meter_.samples()},
              {"loss", {{"first", number_or_text(meter_.first_loss())}, {"last", number_or_text(meter_.last_loss())}}},
              {"objectives", std::move(objectives)},
              {"step_ms", {{"p50", times.step_ms_p50}, {"p95", times.step_ms_p95}}},
              {"shares", shares_of(times)},
              {"accounts", accounts},
              {"wall_s", times.wall},
              {"skipped_steps", parts_.stepper->skips().in_all().item<double>()},
              {"spike_steps", spikes}};
  all.update(results_of(scores_));
  all["samples_per_s"] = times.step_seconds > 0 ? static_cast<double>(here.samples) / times.step_seconds : 0.0;
  if (parts_.names.rate_unit != "samples")
    all[parts_.names.rate_unit + "_per_s"] = all["samples_per_s"].get<double>() * parts_.names.units_per_sample;
  const data::Loader::Counters read = parts_.loader->counters();
  all["loader"] = {{"readers", parts_.loader->readers()},
                   {"reason", parts_.loader->readers_reason()},
                   {"buffer_bytes", parts_.loader->buffer_bytes()},
                   {"bad_samples", read.bad_samples},
                   {"wait_s", read.wait_seconds},
                   {"read_s", read.read_seconds}};
  if (parts_.cache != nullptr) all["cache"] = results_of(parts_.cache->counters());
  std::vector<doctor::Evidence::Target> measured;
  if (diagnosis_) {
    const doctor::Evidence seen = diagnosis_->of_the_run();
    all["findings"] = doctor::to_json(doctor::findings_of(seen));
    if (doctor::can_judge(seen)) measured = seen.targets;
    all["doctor"] = {{"looking_s", diagnosis_->seconds()},
                     {"sampler_share", parts_.sampler == nullptr ? 0.0 : parts_.sampler->cost()},
                     {"trials", diagnosis_->trials().to_json()}};
  }
  if (Json targets = to_json(parts_.config->targets, measured); !targets.empty()) all["targets"] = std::move(targets);
  if (!agreement().alone()) {
    const GradientSums::Traffic sent = traffic_of(*parts_.stepper);
    all["gradients_sent"] = {{"bytes", sent.bytes},
                             {"buckets", sent.buckets},
                             {"early_buckets", sent.early_buckets},
                             {"exchanges", agreement().exchanges()}};
    if (parts_.stepper->averages()) all["weights_sent"] = {{"bytes", averaged_bytes_}};
  }
  if (const auto blocks = blocks_of(accounts); !blocks.empty()) all["blocks"] = to_json(blocks);
  all["bound_by"] = largest_account(times);
  all["snapshots"] = saves_.results(times.step_seconds);
  all["memory"] = recovery_.results();
  if (here.others) all["others"] = *here.others;
  if (here.first_step_seconds) all["time_to_first_step_s"] = *here.first_step_seconds;
  return all;
}

}  // namespace millrace
