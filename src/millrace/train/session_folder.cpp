// The run folder of a session: what it goes on from, and when it begins to write there.
#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/train/resume_rules.h"
#include "millrace/train/run_files.h"
#include "millrace/train/session.h"

namespace millrace {
namespace {

Json read_summary(Fs& fs, const std::filesystem::path& run_folder) {
  const std::filesystem::path file = run_folder / run_files::kSummary;
  return fs.exists(file) ? Json::parse(fs.read_file(file), nullptr, /*allow_exceptions=*/false) : Json();
}

std::string resume_of(const Json& config) {
  const auto place = Json::json_pointer("/train/resume");
  return config.is_object() && config.contains(place) && config[place].is_string() ? config[place].get<std::string>() : "";
}

}  // namespace

void Session::open_folder() {
  if (request_.run_place.folder.empty()) return;
  Fs& fs = *request_.fs;
  folder_ = std::make_unique<RunFolder>(fs, request_.run_place, request_.recipe, request_.fresh);
  find_snapshot();
  const bool own = resumed_from_.empty() || resumed_from_.parent_path().parent_path() == folder_->path();
  if (resumed_ && own) {
    auto problems = forbidden_changes(resumed_->config, request_.config, request_.free_on_resume);
    if (!problems.empty()) throw ConfigError(std::move(problems));
  }
  const auto warn = [this](const std::string& text) { request_.console->warning(text); };
  log_ = std::make_unique<telemetry::RunLog>(fs, folder_->path() / run_files::kLog, warn);
  if (config_.log.tensorboard) events_ = std::make_unique<telemetry::EventWriter>(fs, folder_->path(), warn);
}

// train.resume: a path is where the run begins; once the run has saved, it goes on from what it saved, so that the same command
// again always goes on.
void Session::find_snapshot() {
  Fs& fs = *request_.fs;
  const std::filesystem::path& folder = folder_->path();
  const auto passed_over = [&](const std::filesystem::path& path, const std::string& reason) {
    request_.console->warning("snapshot " + path.string() + " is damaged and passed over: " + reason);
  };
  const std::string& resume = config_.train.resume;
  if (resume == "never") {
    if (request_.fresh || snapshot::list(fs, folder).empty()) return;
    throw UsageError({"the run folder " + folder.string() + " holds a run already", "train.resume=never",
                      "start over with --fresh, or choose another folder with --run"});
  }
  const bool names_a_path = !resume.empty() && resume != "auto";
  if (!request_.fresh) {
    resumed_ = snapshot::load_newest(fs, folder, passed_over, &resumed_from_);
    if (!names_a_path || (resumed_ && resume_of(resumed_->config) == resume)) return;
    resumed_.reset();
  }
  if (!names_a_path) return;
  const std::filesystem::path from = resume;
  if (fs.exists(from / "manifest.json")) {
    resumed_ = snapshot::load(fs, from);
    resumed_from_ = from;
  } else {
    resumed_ = snapshot::load_newest(fs, from, passed_over, &resumed_from_);
  }
  if (!resumed_) {
    throw SnapshotError(
        {"there is no valid snapshot in " + from.string(), "train.resume", "give the folder of a run or of a snapshot"});
  }
  std::error_code code;
  const bool is_here = std::filesystem::equivalent(resumed_from_.parent_path().parent_path(), folder, code);
  branches_after_ = is_here ? resumed_->step : -1;
  if (is_here) resumed_from_ = folder / run_files::kSnapshots / resumed_from_.filename();
  if (is_here && request_.fresh) {
    throw UsageError({"--fresh would remove " + resumed_from_.string() + ", which the run is to begin from", "train.resume",
                      "leave --fresh out: later snapshots are then set aside; or choose another folder with --run"});
  }
}

// The first step can be taken: from here on the folder is written to.
void Session::begin_folder() {
  if (folder_ == nullptr) return;
  for (const std::string& text : folder_->begin(branches_after_)) notices_.push_back(text);
  if (events_) static_cast<void>(folder_->own(events_->file_name()));
}

// From a snapshot alone when max_steps says so, else once the length of an epoch is known.
bool Session::already_complete() const {
  if (!resumed_ || folder_ == nullptr) return false;
  const bool by_steps = config_.train.max_steps > 0 && resumed_->step >= config_.train.max_steps;
  const bool by_epochs = total_steps_ > 0 && config_.train.epochs > 0 && resumed_->step >= total_steps_;
  const bool by_validations = trainer_ != nullptr && trainer_->has_ended();  // an early stop is known last
  if (!by_steps && !by_epochs && !by_validations) return false;
  // A run that was killed, stopped or failed after its last step still has its last validation and its summary to make.
  return state_of_run(read_summary(*request_.fs, folder_->path()), resumed_->step) == RunState::finished;
}

}  // namespace millrace
