// What of a run is saved, and how it is put back.
#include <torch/nn/module.h>

#include <cmath>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/train/generator_state.h"
#include "millrace/train/model_state.h"
#include "millrace/train/trainer.h"

namespace millrace {
namespace {

// JSON has no NaN: what is not finite is saved as null and comes back as NaN.
Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
double number_or_nan(const Json& value) { return value.is_null() ? std::nan("") : value.get<double>(); }

// Beside the state rather than in it: where the data lies, or a file that is none of the run's business any more, changes no bit.
Json data_of(const data::Loader& training, const data::Loader* validation) {
  Json data = {{"train", training.data_state()}};
  if (validation != nullptr) data["validation"] = validation->data_state();
  return data;
}

void check_data(data::Loader& training, data::Loader* validation, const Json& report) {
  const auto data = SavedJson(report, "report").find("data");
  const auto saved = [&](const char* split) {
    const auto one = data ? data->find(split) : std::nullopt;
    return one ? one->json() : Json();
  };
  training.check_data(saved("train"));
  if (validation == nullptr) return;
  if (const Json held_out = saved("validation"); !held_out.is_null()) validation->check_data(held_out, "the validation data");
}

}  // namespace

snapshot::Content Trainer::content() const {
  snapshot::Content content;
  content.step = step_;
  content.config = parts_.config_values;
  content.models = model_tensors(parts_.recipe->model(), *parts_.stepper);
  content.parts["optimizer"] = parts_.stepper->state();
  if (Tensors average = parts_.stepper->averaged_weights(); !average.empty())
    content.parts["average"].tensors = std::move(average);
  content.parts["loader"].json = loader_state_;
  content.parts["recipe"] = parts_.recipe->state();
  content.parts["rng"] = generator_state();
  Json& json = content.parts["trainer"].json;
  json = {{"step", step_},
          {"samples", samples_},
          {"epoch", epoch_},
          {"validation_pending", validation_pending_},
          {"validations_without_gain", validations_without_gain_},
          {"early_stop_best", number_or_null(early_stop_best_)},
          {"epoch_sums", epoch_board_.state()},
          {"epoch_samples", epoch_samples_},
          {"memory_split", split_}};
  json["metrics"] = Json::object();
  for (const auto& [name, metric] : metrics_)
    json["metrics"][name] = {number_or_null(metric.last), number_or_null(metric.best), metric.best_step};
  if (loss_first_) json["loss_first"] = number_or_null(*loss_first_);
  if (epoch_row_) json["epoch_row"] = {epoch_row_->epoch, number_or_null(epoch_row_->train_loss)};
  if (parts_.plan != nullptr) json["choices"] = parts_.plan->trial_choices();
  content.report = {{"window", window_.state()}, {"loss_last", loss_last_ ? number_or_null(*loss_last_) : Json()}};
  return content;
}

void Trainer::restore(const snapshot::Content& content) {
  load_model_tensors(parts_.recipe->model(), content.models);
  const auto part = [&](const char* name) -> const State& {
    const auto it = content.parts.find(name);
    if (it == content.parts.end()) {
      throw SnapshotError({std::string("the snapshot has no part \"") + name + "\"", "step " + std::to_string(content.step),
                           "resume from another snapshot, or start over with --fresh"});
    }
    return it->second;
  };
  const auto average = content.parts.find("average");
  parts_.stepper->load_state(part("optimizer"), average == content.parts.end() ? Tensors() : average->second.tensors);
  check_data(*parts_.loader, parts_.validation, content.report);
  parts_.loader->load_state(part("loader").json);
  loader_state_ = parts_.loader->state();
  parts_.recipe->load_state(part("recipe"));
  set_generator_state(part("rng"));
  const Json& json = part("trainer").json;
  try {
    step_ = json.at("step").get<std::int64_t>();
    samples_ = json.at("samples").get<std::int64_t>();
    epoch_ = json.at("epoch").get<std::uint64_t>();
    validation_pending_ = json.at("validation_pending").get<bool>() && parts_.validation != nullptr;
    validations_without_gain_ = json.at("validations_without_gain").get<std::int64_t>();
    epoch_board_.load_state(SavedJson(json, "trainer")["epoch_sums"]);
    epoch_samples_ = json.at("epoch_samples").get<std::int64_t>();
    split_ = std::max(split_, json.value("memory_split", std::int64_t{1}));
    for (const auto& [name, m] : json.at("metrics").items()) {
      metrics_[name] = {number_or_nan(m.at(0)), number_or_nan(m.at(1)), m.at(2).get<std::int64_t>()};
    }
    if (json.contains("early_stop_best")) early_stop_best_ = number_or_nan(json["early_stop_best"]);
    if (json.contains("loss_first")) loss_first_ = number_or_nan(json["loss_first"]);
    if (json.contains("epoch_row"))
      epoch_row_ = EpochRow{json["epoch_row"].at(0).get<std::uint64_t>(), number_or_nan(json["epoch_row"].at(1)), 0, 0};
    const SavedJson report(content.report, "report");
    if (const auto window = report.find("window")) window_.load_state(*window);
    if (const auto last = report.find("loss_last"); last && !last->json().is_null()) loss_last_ = last->number_or_nan();
  } catch (const Json::exception& error) {
    throw SnapshotError(
        {"the snapshot's trainer part can't be read", error.what(), "resume from another snapshot, or start over with --fresh"});
  }
  saved_step_ = step_;
}

// A snapshot that could not be written: training goes on, since the previous one is still there and the next save may find
// room again, unless snapshot.on_error says otherwise.
void Trainer::note_save(OnFailure on_failure) {
  const std::optional<snapshot::Saved> saved = writer_ == nullptr ? std::nullopt : writer_->take();
  if (!saved) return;
  for (const std::string& text : saved->warnings) parts_.console->warning(text);
  saves_.blocked_ms += saved->blocked_ms;
  saves_.write_ms += saved->write_ms;
  ++(saved->error ? saves_.failed : saves_.done);
  if (!saved->error) {
    parts_.folder->saved();
    record("snapshot", {{"step", saved->step},
                        {"path", saved->path.string()},
                        {"blocked_ms", saved->blocked_ms},
                        {"write_ms", saved->write_ms}});
    return;
  }
  if (saved_step_ == saved->step) saved_step_ = -1;
  const bool stops = on_failure == OnFailure::as_configured && parts_.config->snapshot.on_error == OnSaveError::stop;
  if (stops || on_failure == OnFailure::end) throw *saved->error;
  parts_.console->warning(saved->error->what());
  record("warning", {{"step", step_}, {"text", saved->error->what()}});
}

// What a crash may cost is bounded: a save that takes longer than snapshot.max_lag steps is waited for.
void Trainer::bound_lag() {
  if (writer_ == nullptr || !writer_->busy() || step_ - saved_step_ < parts_.config->snapshot.max_lag) return;
  const std::int64_t begin = steady_nanoseconds();
  {
    const telemetry::Span span(*parts_.timeline, telemetry::Phase::snapshot);
    writer_->wait();
  }
  const std::int64_t spent = steady_nanoseconds() - begin;
  saves_.lag_ms += static_cast<double>(spent) * 1e-6;
  leave_out(spent);
}

// Of the rates: time that was not spent on steps.
void Trainer::leave_out(std::int64_t nanoseconds) noexcept {
  window_begin_ns_ += nanoseconds;
  epoch_begin_ns_ += nanoseconds;
}

// A folder that can't be made anew is told by the save that fails there.
void Trainer::hold_folder() {
  try {
    if (const std::string moved = parts_.folder->hold(); !moved.empty()) parts_.console->warning(moved);
  } catch (const FsError&) {
  }
}

void Trainer::save(bool required) {
  if (writer_ == nullptr) return;
  const std::int64_t begin = steady_nanoseconds();
  note_peak();
  {
    const telemetry::Span span(*parts_.timeline, telemetry::Phase::snapshot);
    writer_->wait();
    note_save(required ? OnFailure::warn : OnFailure::as_configured);  // of an earlier step, or a first try of this one
    if (saved_step_ != step_) {
      require_finite();
      snapshot::Retention retention{
          .keep_last = parts_.config->snapshot.keep_last, .keep_every = parts_.config->snapshot.keep_every, .keep_steps = {}};
      const auto best = metrics_.find(judged_metric());
      if (parts_.config->snapshot.keep_best && best != metrics_.end() && best->second.best_step >= 0)
        retention.keep_steps.push_back(best->second.best_step);
      saved_step_ = step_;
      epoch_save_due_ = false;
      improved_ = false;
      hold_folder();
      snapshot::Content state = content();
      state.report["data"] = data_of(*parts_.loader, parts_.validation);
      writer_->begin(std::move(state), std::move(retention));
      if (required) writer_->wait();
      if (required || !parts_.saves_in_background) note_save(required ? OnFailure::end : OnFailure::as_configured);
    }
  }
  forget_peak();
  leave_out(steady_nanoseconds() - begin);
}

void Trainer::save_after_error() noexcept {
  try {
    if (step_ > 0) save(true);
  } catch (const std::exception& error) {
    parts_.console->warning(std::string("the state at the last whole step could not be saved: ") + error.what());
  }
}

}  // namespace millrace
