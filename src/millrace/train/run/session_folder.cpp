// The part of a session about its run folder: which snapshot the run resumes from, and when writing in the folder begins.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/shell_word.h"
#include "millrace/snapshot/layout.h"
#include "millrace/train/run/session.h"
#include "millrace/train/run_folder/resume_rules.h"
#include "millrace/train/run_folder/run_files.h"
#include "millrace/train/step/rank_check.h"

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

// The value of `option` in the plan of the last process that used this run folder; "" = unknown.
std::string planned(Fs& fs, const std::filesystem::path& run_folder, const std::string& option) {
  const std::filesystem::path file = run_folder / run_files::kPlan;
  const Json plan = fs.exists(file) ? Json::parse(fs.read_file(file), nullptr, /*allow_exceptions=*/false) : Json();
  for (const Json& choice : plan.is_array() ? plan : Json::array()) {
    if (choice.is_object() && choice.value("option", Json()) == option && choice.value("value", Json()).is_string())
      return choice["value"].get<std::string>();
  }
  return "";
}

// Returns the saved config for the comparison with the present one. On resume the global batch must stay the same, but the batch
// of one rank may change. So if the global batch is unchanged, the result has the present batch size of a rank.
Json with_batch_of_these_ranks(const snapshot::Content& content, const RunConfig& now, const Ranks& ranks) {
  Json config = content.config;
  const auto place = Json::json_pointer("/data/batch_size");
  const State* loader = snapshot::part_of(content, snapshot::kLoader);
  if (!config.contains(place) || now.data.batch_size.is_auto() || loader == nullptr) return config;
  const std::int64_t together = now.data.batch_size.value() * ranks.world_size;
  const Json& saved = loader->json;  // `saved` is not checked yet and may hold anything
  if (saved.is_object() && saved.contains("global_batch_size") && saved["global_batch_size"] == Json(together))
    config[place] = now.data.batch_size.value();
  return config;
}

}  // namespace

void Session::open_folder() {
  if (place_.folder.empty()) return;
  Fs& fs = *request_.fs;
  folder_ = std::make_unique<RunFolder>(fs, place_, request_.entry->name, request_.fresh);
  log_crashes(run_files::kLock);
  find_snapshot();
  if (resumed_ && resumed_->from.parent_path().parent_path() == folder_->path()) check_changes();
  const auto warn = [this](const std::string& text) { console().warning(text); };
  log_ = std::make_unique<telemetry::RunLog>(fs, folder_->path() / run_files::kLog, warn);
  if (setup_.config().log.tensorboard) events_ = std::make_unique<telemetry::EventWriter>(fs, folder_->path(), warn);
}

void Session::check_changes() {
  auto problems = forbidden_changes(with_batch_of_these_ranks(resumed_->content, setup_.config(), setup_.agreement().ranks()),
                                    request_.config, schema_of(*request_.entry), folder_->record().started_in);
  if (!problems.empty()) {
    const std::vector<std::string> command = read_first_start(folder_->path()).command;
    if (!command.empty()) problems.back().next += "; the run was begun by: " + joined(command, " ", shell_word);
    throw ConfigError(std::move(problems));
  }
  const std::string threads = planned(*request_.fs, folder_->path(), "device.threads");
  const Choice* now = setup_.plan().find("device.threads");
  if (threads.empty() || now == nullptr || now->value == threads) return;
  setup_.notices().push_back("device.threads is " + now->value + ", but it was " + threads +
                             " so far: sums are taken in another order, so the last bits of the run's numbers may differ");
}

// Warns if the learning-rate schedule covers the whole run and the run's length has changed, because the rate then jumps at the
// next step.
void Session::log_new_length() {
  constexpr double kSmallestChange = 1e-3;  // smallest jump that gets a warning, relative to the rate
  const Json::json_pointer epochs("/train/epochs"), max_steps("/train/max_steps");
  const Json& saved = resumed_->content.config;
  const std::int64_t step = resumed_->content.step, now = assembly_->loaders().total_steps();
  if (step == 0 || !saved.is_object() || !saved.contains(epochs) || !saved.contains(max_steps)) return;
  if (saved.value("optim", Json()) != request_.config.values.value("optim", Json()))
    return;  // no warning, because the user changed the schedule on purpose
  const auto of = [&saved](const Json::json_pointer& key) {
    return saved.at(key).is_number_integer() ? saved.at(key).get<std::int64_t>() : 0;
  };
  const std::int64_t before = assembly_->loaders().total_steps(of(epochs), of(max_steps));
  const Stepper& stepper = assembly_->stepper();
  if (before == now || before <= 0 || now <= 0) return;
  for (const ObjectiveStep& objective : stepper.objectives()) {
    if (!optim::needs_length(objective.spec().optim.schedule)) continue;
    const double last = objective.learning_rate_at(step - 1, before), next = objective.learning_rate_at(step, now);
    const double planned = objective.learning_rate_at(step, before);
    if (std::abs(next - planned) <= kSmallestChange * std::max(next, planned)) continue;
    const std::string from = resumed_->from.string();
    setup_.notices().push_back(
        "the run is " + with_commas(now) + " steps long now, and was " + with_commas(before) +
        ": its schedule spans the whole run, so the learning rate " + (next > last ? "rises" : "falls") + " from " +
        significant(last, 3) + " at step " + with_commas(step) + " to " + significant(next, 3) + " at step " +
        with_commas(step + 1) + ". To continue from these weights at your own rate instead: --run=NEW_FOLDER --train.resume=" +
        from + " --optim.schedule=constant --optim.learning_rate=" + significant(last > 0 ? last : planned, 3));
    return;
  }
}

// Finds the snapshot to resume from. If train.resume is a path, a new run starts from the snapshot there. Once the new run has
// saved a snapshot, it resumes from its own, so that repeating the same command always continues the run.
void Session::find_snapshot() {
  Fs& fs = *request_.fs;
  const std::filesystem::path& folder = folder_->path();
  const auto newest = [&](const std::filesystem::path& run) -> std::optional<Resumed> {
    const auto passed_over = [&](const std::filesystem::path& path, const std::string& reason) {
      console().warning("snapshot " + path.string() + " is damaged and was skipped: " + reason);
    };
    std::filesystem::path from;
    auto content = snapshot::load_newest(fs, run, passed_over, &from);
    return content ? std::optional(Resumed{*std::move(content), std::move(from)}) : std::nullopt;
  };
  const std::string& resume = setup_.config().train.resume;
  if (resume == "never") {
    if (request_.fresh || snapshot::list(fs, folder).empty()) return;
    throw UsageError({"the run folder " + folder.string() + " holds a run already", "train.resume=never",
                      "start over with --fresh, or choose another folder with --run"});
  }
  const bool names_a_path = !resume.empty() && resume != "auto";
  if (!request_.fresh) {
    resumed_ = newest(folder);
    if (!resumed_ && !names_a_path && !snapshot::list(fs, folder).empty()) {
      console().warning(
          "no snapshot in " + folder.string() + " can be used, so the run begins again at step 0 and its tables " +
          "lose the earlier rows. Stop the run if the snapshots can be repaired, or if they are unreadable only for the moment");
    }
    const std::string& folder_of_paths = folder_->record().started_in;
    if (!names_a_path || (resumed_ && leads_to(resume_of(resumed_->content.config), resume, folder_of_paths))) return;
    resumed_.reset();
  }
  if (!names_a_path) return;
  const std::filesystem::path given = resume;  // removes a slash at the end, with which a shell completes the name of a folder
  const std::filesystem::path from = given.has_filename() ? given : given.parent_path();
  resumed_ = fs.exists(from / "manifest.json") ? Resumed{snapshot::load(fs, from), from} : newest(from);
  if (!resumed_) {
    throw SnapshotError(
        {"there is no valid snapshot in " + from.string(), "train.resume", "give the folder of a run or of a snapshot"});
  }
  std::error_code code;
  const bool is_here = std::filesystem::equivalent(resumed_->from.parent_path().parent_path(), folder, code);
  branches_after_ = is_here ? resumed_->content.step : -1;
  if (is_here) resumed_->from = folder / run_files::kSnapshots / resumed_->from.filename();
  if (is_here && request_.fresh) {
    throw UsageError({"--fresh would remove " + resumed_->from.string() + ", from which the run is to begin", "train.resume",
                      "remove --fresh: later snapshots then become a branch; or choose another folder with --run"});
  }
}

// Called before the first step. From here on the session writes into the folder.
void Session::begin_folder() {
  if (folder_ == nullptr) return;
  for (const std::string& text : folder_->begin(branches_after_)) setup_.notices().push_back(text);
  if (request_.folder_begun) request_.folder_begun(folder_->path());
  if (!events_) return;
  static_cast<void>(folder_->own(events_->file_name()));
  // Called for a new run too, because a process that was killed before its first snapshot has left events, and all of its steps
  // are made again.
  events_->goes_on_at(resumed_ ? trainer_->step() + 1 : 0);
}

// Sends the snapshot to all ranks, because only rank 0 has the folder.
void Session::share_snapshot() {
  Agreement& agreement = setup_.agreement();
  if (agreement.alone()) return;
  const bool is_root = agreement.ranks().rank == 0;
  const Json from = agreement.from_root(is_root && resumed_ ? Json(resumed_->from.string()) : Json());
  if (from.is_null()) return;
  if (!is_root) resumed_ = Resumed{.content = {}, .from = from.get<std::string>()};
  share_content(agreement, resumed_->content);
}

bool Session::already_complete(std::int64_t total_steps) const {
  return setup_.agreement().from_root(root_is_complete(total_steps)).get<bool>();
}

// True if the run has made all its steps. If max_steps ends the run, a snapshot alone shows this. Otherwise the length of an
// epoch must be known.
bool Session::root_is_complete(std::int64_t total_steps) const {
  if (!resumed_ || folder_ == nullptr) return false;
  const TrainConfig& train = setup_.config().train;
  const std::int64_t step = resumed_->content.step;
  const bool by_steps = train.max_steps > 0 && step >= train.max_steps;
  const bool by_epochs = total_steps > 0 && train.epochs > 0 && step >= total_steps;
  // whether a run stopped early is known only after its validations are loaded
  const bool by_validations = trainer_ != nullptr && trainer_->has_ended();
  if (!by_steps && !by_epochs && !by_validations) return false;
  // A run that was interrupted after its last step still needs its last validation and its summary, so it is not complete.
  return state_of_run(read_summary(*request_.fs, folder_->path()), step) == RunState::finished;
}

}  // namespace millrace
