#include "millrace/train/run/session.h"

#include <fcntl.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include "millrace/base/clock.h"
#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/device.h"
#include "millrace/device/errors.h"
#include "millrace/device/operation_marks.h"
#include "millrace/nn/weights.h"
#include "millrace/runs/earlier_runs.h"
#include "millrace/snapshot/layout.h"
#include "millrace/system/crash.h"
#include "millrace/system/process.h"
#include "millrace/system/signals.h"
#include "millrace/telemetry/long_task.h"
#include "millrace/train/assembly/kept_trials.h"
#include "millrace/train/assembly/model_state.h"
#include "millrace/train/run/detail/snapshot_check.h"
#include "millrace/train/run/rebuilt_check.h"
#include "millrace/train/run/rehearsal.h"
#include "millrace/train/run_folder/run_files.h"
#include "millrace/train/step/rank_check.h"

namespace millrace {

Session::Session(RunRequest request, RunDestination place)
    : setup_(std::move(request)), request_(setup_.request()), place_(std::move(place)) {
  if (setup_.agreement().ranks().rank != 0) place_.folder.clear();
}

Session::Session(RunRequest request) : setup_(std::move(request)), request_(setup_.request()) {
  if (setup_.agreement().ranks().rank == 0) place_ = destination_of_run(request_.entry->name, setup_.config().run);
}

Session::~Session() {
  if (crash_log_ < 0) return;
  set_crash_log(-1);
  ::close(crash_log_);
}

void Session::log_crashes(const char* file) {
  const int before = crash_log_;
  crash_log_ = ::open((folder_->path() / file).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  set_crash_log(crash_log_);
  if (before >= 0) ::close(before);
}

RunOutcome Session::run() {
  // The run's time counts from the start of the process. A program that calls train() may have run for long before the call, so
  // there the run's time counts from the call.
  if (!request_.command_line.empty()) {
    telemetry::Timeline& timeline = setup_.timeline();
    timeline.began_earlier(static_cast<std::int64_t>((seconds_since_process_start() - timeline.total().wall) * 1e9));
  }
  if (request_.dry_run == DryRun::plan) return plan_only();
  if (request_.dry_run == DryRun::rehearsal) return rehearse_only();
  check_alike(setup_.agreement(), schema_of(*request_.entry), request_.config.values);
  open_folder();
  share_snapshot();
  if (resumed_) check_trainer_part(resumed_->content);
  if (resumed_ && already_complete(0)) return nothing_left();
  auto [recipe, loaders] = open_data();
  const data::Loader* const validation = setup_.agreement().alone() ? nullptr : loaders.validation();
  check_same_data(setup_.agreement(), loaders.training().data_state(), validation == nullptr ? Json() : validation->data_state());
  const std::int64_t total_steps = loaders.total_steps();
  if (already_complete(total_steps)) return nothing_left();
  assembly_ = std::make_unique<Assembly>(setup_, std::move(recipe), std::move(loaders), kept_choices());
  make_trainer();
  if (resumed_) trainer_->restore(resumed_->content);
  require_frozen_parts(assembly_->recipe().model());
  if (already_complete(total_steps)) return nothing_left();
  if (resumed_) log_new_length();
  const std::unique_ptr<Watchdog> watchdog = watch();
  introduce();
  try_out();
  const std::vector<std::string> untrained = resumed_ ? std::vector<std::string>() : samples();
  stop_if_signalled();
  begin_folder();
  log_choices();
  show_samples("the model before training", untrained);
  try {
    const Ending ending = trainer_->run();
    if (ending != Ending::signal) show_samples("the model after " + with_commas(trainer_->step()) + " steps", samples());
    return finish(ending);
  } catch (const std::exception& error) {  // also catches LibTorch's errors, which are not derived from Millrace's Error
    if (device::is_device_lost(error)) lose_device(error);
    fail(error.what(), Device::answers);
    throw;
  }
}

std::pair<std::unique_ptr<Recipe>, Loaders> Session::open_data() {
  stop_if_signalled();
  const telemetry::LongTask told(console(), "opening the data");
  const double began = steady_seconds();
  std::unique_ptr<Recipe> recipe = setup_.make_recipe(places(), first_weights());
  stop_if_signalled();
  Loaders loaders(setup_, *recipe, [this](const std::string& text) {
    // A notice that comes before the run has begun is shown later, with the plan.
    if (folder_ != nullptr && !folder_->has_begun()) return setup_.notices().push_back(text);
    console().notice(text);
    if (folder_ != nullptr) log_->write("loader", {{"choice", text}});
  });
  opening_seconds_ = steady_seconds() - began;
  stop_if_signalled();
  return {std::move(recipe), std::move(loaders)};
}

// Makes the trials that decide choices, and the rehearsal.
void Session::try_out() {
  const telemetry::Span span(setup_.timeline(), telemetry::Phase::trials);
  const device::OperationMarks marks;
  assembly_->limit_trials();
  assembly_->decide();
  assembly_->decide_memory();
  if (resumed_ || !setup_.switches().on("rehearsal")) return require_judge(*assembly_);
  const Doing task(Doing::Level::task, "the rehearsal");
  const telemetry::LongTask told(console(), "rehearsing with a batch of each split");
  const Rehearsal rehearsal = rehearse(*assembly_);
  if (request_.verbose)
    for (const std::string& text : rehearsal.unchecked)
      console().notice("whether half batches add up was not checked for " + text);
  for (const std::string& warning : rehearsal.warnings) console().warning(warning);
}

// Returns a watchdog for the time from the first trial to the end of the run.
std::unique_ptr<Watchdog> Session::watch() {
  device::mark_convolutions();
  Watchdog::Options options;
  options.limit_s = static_cast<double>(setup_.config().train.hang_limit);
  options.report = [this](const std::string& text) {
    console().warning(text);
    if (folder_ != nullptr && folder_->has_begun()) log_->write("hang", {{"text", text}});
  };
  options.saved = [this]() -> std::string {
    if (folder_ == nullptr || !folder_->has_begun()) return resumed_ ? resumed_->from.string() : "";
    const auto kept = snapshot::list(*request_.fs, folder_->path());
    return kept.empty() ? "" : kept.back().path.string();
  };
  auto watchdog = std::make_unique<Watchdog>(std::move(options));
  watchdog->start();
  return watchdog;
}

std::optional<Weights> Session::first_weights() const {
  const std::string& from = setup_.config().train.weights;
  if (resumed_ || from.empty()) return std::nullopt;
  return load_weights(*request_.fs, from, console());
}

// Makes the plan and writes nothing: no run folder, no cache, no new sample data.
RunOutcome Session::plan_only() {
  assembly_ = std::make_unique<Assembly>(setup_, folders_to_look_in(/*plan_only=*/true));
  assembly_->note_undecided();
  introduce();
  return {Json::object(), place_.folder, 0};
}

RunOutcome Session::rehearse_only() {
  assembly_ = std::make_unique<Assembly>(setup_, folders_to_look_in());
  require_frozen_parts(assembly_->recipe().model());
  const std::unique_ptr<Watchdog> watchdog = watch();
  assembly_->note_undecided();
  introduce();
  const device::OperationMarks marks;
  if (assembly_->stepper().autocast() == at::kBFloat16) {
    assembly_->try_convolutions();
    log_choices();
  }
  const Doing task(Doing::Level::task, "the rehearsal");
  console().line(to_text(rehearse(*assembly_)));
  return {Json::object(), place_.folder, 0};
}

RecipeFolders Session::places() const {
  RecipeFolders places{.run_folder = {}, .new_files = {}, .cache_folder = cache_folder()};
  if (folder_ == nullptr) return places;
  if (!folder_->is_replaced()) places.run_folder = folder_->path();
  places.new_files = folder_->staging();
  return places;
}

// The choices that trials and fallbacks had made when the snapshot was saved.
Json Session::kept_choices() const {
  if (!resumed_) return Json::object();
  const State* trainer = snapshot::part_of(resumed_->content, snapshot::kTrainer);
  const bool has_choices = trainer != nullptr && trainer->json.contains("choices");
  return has_choices ? trainer->json["choices"] : Json::object();
}

Reporter::Sinks Session::sinks() const {
  Reporter::Sinks sinks{.console = &console(), .log = log_.get(), .events = events_.get(), .history = {}};
  if (folder_ == nullptr) return sinks;
  sinks.history = folder_->path() / run_files::kHistory;
  if (resumed_) sinks.epochs_kept = resumed_->content.parts.at(snapshot::kTrainer).json.value("epoch", std::int64_t{0});
  sinks.fs = request_.fs;
  return sinks;
}

void Session::make_trainer() {
  const Facts facts = assembly_->recipe().facts();
  const auto& wish = setup_.config().memory.recompute;
  Trainer::Parts parts;
  parts.config = &setup_.config();
  parts.config_values = request_.config.values;
  parts.recipe = &assembly_->recipe();
  parts.stepper = &assembly_->stepper();
  parts.timeline = &setup_.timeline();
  parts.loader = &assembly_->loaders().training();
  parts.validation = assembly_->loaders().validation();
  parts.cache = assembly_->loaders().cache();
  parts.plan = &setup_.plan();
  parts.convolutions = &assembly_->convolutions();
  parts.place = {.saves = setup_.agreement().any(folder_ != nullptr),
                 .fs = request_.fs,
                 .folder = folder_.get(),
                 .began_from = resumed_ ? resumed_->from : std::filesystem::path(),
                 .in_background = setup_.switches().on("async_snapshot")};
  parts.sinks = sinks();
  parts.names = {.loss = assembly_->stepper().objective_name(0),
                 .rate_unit = facts.rate_unit,
                 .units_per_sample = facts.units_per_sample,
                 .metric_tags = facts.metric_tags,
                 .history = facts.history,
                 .step_log = facts.step_log,
                 .blind = facts.blind};
  if (facts.step_log && folder_ != nullptr)
    parts.sinks.step_log = [folder = folder_.get(), file = facts.step_log->name + ".csv"] { return folder->own(file); };
  if (resumed_) parts.sinks.steps_kept = resumed_->content.parts.at(snapshot::kTrainer).json.value("step", std::int64_t{0});
  parts.sinks.line = setup_.config().log.line;
  parts.recovers = setup_.switches().on("memory_recovery");
  parts.may_recompute = setup_.switches().on("recompute") && std::ranges::find(wish, "auto") != wish.end();
  parts.batch_ahead = setup_.switches().on("batch_ahead");
  parts.step_graph = setup_.switches().on("step_graph");
  parts.frozen_source = facts.frozen_source;
  if (parts.frozen_source.empty()) {
    parts.frozen_source = joined(nn::frozen_parts(assembly_->recipe().model()), ", ",
                                 [](const nn::NamedPart& found) { return found.part->file().string(); });
  }
  parts.total_steps = assembly_->loaders().total_steps();
  parts.agreement = request_.agreement;
  if (setup_.config().log.doctor && setup_.agreement().ranks().rank == 0) {
    std::string ignored;  // the error is ignored, because a GPU's driver may be installed without NVML
    const at::Device device = assembly_->stepper().device();
    sampler_ = std::make_unique<doctor::Sampler>("/", device.is_cpu() ? nullptr : doctor::Nvml::open(ignored),
                                                 device.has_index() ? device.index() : 0);
    sampler_->start();
    parts.sampler = sampler_.get();
    for (const data::Dataset& dataset : assembly_->loaders().pipeline(Split::train)->datasets)
      parts.cacheable_bytes += data::cache_payload(*dataset.source);
    parts.doctor_trials = [this] { return try_remedies(*assembly_); };
    likeness_ = likeness();
    if (folder_ != nullptr) parts.earlier = runs::earlier_runs(folder_->path(), likeness_);
  }
  const bool checks_snapshot = !resumed_ && folder_ != nullptr && setup_.switches().on("rehearsal");
  if (checks_snapshot && !setup_.agreement().alone() && request_.verbose)
    console().notice("the first snapshot will not be loaded into a second model, because the run has several processes");
  if (checks_snapshot && setup_.agreement().alone())
    parts.check_snapshot = [this](const snapshot::Content& content) { return check_first(content); };
  trainer_ = std::make_unique<Trainer>(std::move(parts));
}

std::string Session::check_first(const snapshot::Content& content) {
  const double begin = steady_seconds();
  const RebuiltCheck check = check_rebuilt(*assembly_, content, opening_seconds_);
  if (request_.verbose)
    console().notice(check.unchecked.empty()
                         ? "the first snapshot was loaded into a second model and the losses were compared, in " +
                               human_duration(steady_seconds() - begin)
                         : "the first snapshot was not loaded into a second model: " + check.unchecked);
  return check.warning;
}

std::string Session::likeness() const {
  const at::Device device = assembly_->stepper().device();
  const device::Cpu& cpu = device::cpu_info();
  const Json loader = assembly_->loaders().training().state();
  return runs::Likeness{.recipe = request_.entry->name,
                        .config = request_.config.values,
                        .data = loader.value("fingerprint", Json()).dump(),
                        .machine = {{"cpu", this_cpu()},
                                    {"cores", cpu.physical_cores},
                                    {"device", device::backend_of(device).device_name(device.has_index() ? device.index() : 0)},
                                    {"global_batch", assembly_->loaders().global_batch()}}}
      .digest();
}

}  // namespace millrace
