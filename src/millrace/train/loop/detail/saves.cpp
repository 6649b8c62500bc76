#include "millrace/train/loop/detail/saves.h"

#include <algorithm>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"

namespace millrace {
namespace {

// True if the metric `loss` was a finite number in the last validation before the snapshot. Also true if there was no
// validation, or if the result of the validation is unknown.
bool is_good(Fs& fs, const std::filesystem::path& snapshot, const std::string& loss) {
  try {
    const Json state = Json::parse(fs.read_file(snapshot / "state.json"), nullptr, /*allow_exceptions=*/false);
    const Json::json_pointer place("/parts/trainer/json/metrics");
    if (!state.is_object() || !state.contains(place) || !state.at(place).is_object()) return true;
    const auto metric = state.at(place).find(loss);
    return metric == state.at(place).end() || !metric->is_array() || metric->empty() || !metric->front().is_null();
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

Saves::Saves(const SnapshotConfig& config, const SaveDestination& place, Reporter& reporter, Agreement& agreement)
    : config_(config), place_(place), reporter_(reporter), agreement_(agreement) {
  if (place_.folder == nullptr) return;
  writer_ = std::make_unique<snapshot::Writer>(*place_.fs, place_.folder->path(), place_.in_background, place_.began_from);
}

bool Saves::is_due(std::int64_t step, std::int64_t asked_at, bool wanted) const {
  if (!place_.saves || saved_step_ == step || step == 0) return false;
  return wanted || (config_.every_steps > 0 && step / config_.every_steps != asked_at / config_.every_steps);
}

bool Saves::take_finished(std::int64_t step, Failure on_failure, bool asks_to_stop) {
  const std::optional<snapshot::Writer::Saved> saved = writer_ == nullptr ? std::nullopt : writer_->take();
  if (saved) log(*saved);
  const bool failed = saved && saved->error;
  if (!failed && agreement_.alone()) return asks_to_stop;
  const Json mine = {{"stop", asks_to_stop},
                     {"failed", failed ? Json{{"step", saved->step}, {"text", saved->error->what()}} : Json()}};
  const std::vector<Json> all = agreement_.gather(mine);
  const bool stop = std::ranges::any_of(all, [](const Json& one) { return one.at("stop").get<bool>(); });
  const Json& answer = all.front().at("failed");
  if (answer.is_null()) return stop;
  if (saved_step_ == answer.at("step").get<std::int64_t>()) saved_step_ = -1;
  const bool stops = on_failure == Failure::as_configured && config_.on_error == SnapshotConfig::OnSaveError::stop;
  if (stops || on_failure == Failure::end) {
    if (failed) throw *saved->error;
    throw SnapshotError({"the run ends, because rank 0 could not write a snapshot", answer.at("text").get<std::string>(),
                         "follow the message of rank 0"});
  }
  if (!failed) return stop;
  reporter_.warning(saved->error->what());
  reporter_.record("warning", {{"step", step}, {"text", saved->error->what()}});
  return stop;
}

void Saves::log(const snapshot::Writer::Saved& saved) {
  for (const std::string& text : saved.warnings) reporter_.warning(text);
  blocked_ms_ += saved.blocked_ms;
  write_ms_ += saved.write_ms;
  ++(saved.error ? failed_ : done_);
  if (saved.error) return;
  place_.folder->saved();
  reporter_.record(
      "snapshot",
      {{"step", saved.step}, {"path", saved.path.string()}, {"blocked_ms", saved.blocked_ms}, {"write_ms", saved.write_ms}});
}

std::int64_t Saves::bound_lag(std::int64_t step) {
  if (writer_ == nullptr || !writer_->busy() || step - saved_step_ < config_.max_lag) return 0;
  const std::int64_t begin = steady_nanoseconds();
  writer_->wait();
  const std::int64_t spent = steady_nanoseconds() - begin;
  lag_ms_ += static_cast<double>(spent) * 1e-6;
  return spent;
}

// Makes the run folder again if it is missing. Errors are ignored here, because the save then fails too and reports the error.
void Saves::hold_folder() {
  try {
    if (const std::string moved = place_.folder->hold(); !moved.empty()) reporter_.warning(moved);
  } catch (const FsError&) {
  }
}

void Saves::make_room(const std::function<snapshot::Content()>& content) {
  if (!place_.saves || !place_.in_background) return;
  const snapshot::Content now = content();
  if (writer_ != nullptr) writer_->make_room(now);
}

bool Saves::save(std::int64_t step, const std::function<snapshot::Content()>& content, std::vector<std::int64_t> best,
                 bool last) {
  if (!place_.saves) return false;
  if (writer_ != nullptr) writer_->wait();
  // The save that just ended may be of an earlier step, or an earlier try to save this step.
  take_finished(step, last ? Failure::warn : Failure::as_configured);
  if (saved_step_ == step) return false;
  saved_step_ = step;
  const snapshot::Content now = content();
  if (writer_ != nullptr) {
    hold_folder();
    writer_->begin(now, {.keep_last = config_.keep_last, .keep_every = config_.keep_every, .keep_steps = std::move(best)});
    if (last) writer_->wait();
  }
  if (last || !place_.in_background) take_finished(step, last ? Failure::end : Failure::as_configured);
  return true;
}

std::string Saves::last_good(const std::string& loss) {
  if (writer_ == nullptr) return "";
  writer_->wait();  // waits, because the message may have to name the snapshot that is being saved
  const auto kept = snapshot::list(*place_.fs, place_.folder->path());
  const auto good =
      std::find_if(kept.rbegin(), kept.rend(), [&](const auto& found) { return is_good(*place_.fs, found.path, loss); });
  if (kept.empty()) return "";
  if (good == kept.rend()) return "no snapshot is good, because the validation loss is not a number in any of them; ";
  return "the last good snapshot is " + good->path.string() +
         (good == kept.rbegin() ? "; " : " (the validation loss of later ones is not a number); ");
}

std::string Saves::last() {
  if (writer_ == nullptr) return "";
  writer_->wait();
  const auto kept = snapshot::list(*place_.fs, place_.folder->path());
  return kept.empty() ? std::string() : "the last snapshot is " + kept.back().path.string() + "; ";
}

Json Saves::results(double step_seconds) const {
  return {{"saved", done_},        {"failed", failed_}, {"blocked_ms", blocked_ms_},
          {"write_ms", write_ms_}, {"lag_ms", lag_ms_}, {"lag_share", step_seconds > 0 ? lag_ms_ * 1e-3 / step_seconds : 0.0}};
}

}  // namespace millrace
