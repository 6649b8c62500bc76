// The part of a session that reports: before the first step the plan, after the last step the summary.
#include <torch/nn/module.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/version.h"
#include "millrace/device/device.h"
#include "millrace/device/errors.h"
#include "millrace/doctor/cause.h"
#include "millrace/metrics/figure.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/system/process.h"
#include "millrace/system/signals.h"
#include "millrace/train/report/block_times.h"
#include "millrace/train/report/scores.h"
#include "millrace/train/run/preview.h"
#include "millrace/train/run/session.h"
#include "millrace/train/run_folder/run_files.h"
#include "millrace/train/step/draws.h"
#include "millrace/train/step/stepper_state.h"

namespace millrace {
namespace {

std::string fact_text(const Json& value) {
  if (value.is_number_integer()) return with_commas(value.get<std::int64_t>());
  if (value.is_number_float()) return significant(value.get<double>(), 4);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::int64_t parameter_count(const torch::nn::Module& model) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

// The largest shares of the run's time, the largest first: "backward 61 %, forward 29 %, optimizer 9 %".
std::string share_text(const Json& shares) {
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, value] : shares.items()) sorted.emplace_back(value.get<double>(), name);
  std::sort(sorted.rbegin(), sorted.rend());
  std::string text;
  for (const auto& [share, name] : sorted) {
    if (share >= 0.005) text += (text.empty() ? "" : ", ") + name + " " + percent(share);
  }
  return text;
}

// Adds the first and the last loss; adds nothing if no step was made.
void add_loss(std::vector<std::string>& parts, const Json& loss) {
  if (!loss["last"].is_null()) parts.push_back("loss " + fact_text(loss["first"]) + " -> " + fact_text(loss["last"]));
}

void add_metrics(std::vector<std::string>& parts, const Json& summary) {
  for (const std::string& name : metrics_in_order(summary)) {
    const Json& metric = summary["metrics"][name];
    if (metric.contains("quiet")) continue;
    const Json& last = metric["last"];
    parts.push_back(name + (last.is_number() ? " " + metrics::figure_of(name, last.get<double>()) : " is not a number"));
    if (!last.is_number() && metric["best_step"].is_number() && metric["best"].is_number())
      parts.back() += " (best " + figure(metric["best"].get<double>()) + " at step " + fact_text(metric["best_step"]) + ")";
  }
}

// A line about the best snapshot, which later commands use; "" if the best snapshot is also the last one. `judged`: the metric
// that selects the best snapshot. `kept`: the snapshots of the run.
std::string best_text(const Json& summary, const std::string& judged, const std::vector<snapshot::Found>& kept) {
  const auto metric = summary["metrics"].find(judged);
  if (metric == summary["metrics"].end() || !(*metric)["best_step"].is_number() || (*metric)["best_step"] == summary["steps"])
    return "";
  const bool is_there =
      std::ranges::any_of(kept, [&](const snapshot::Found& each) { return (*metric)["best_step"] == Json(each.step); });
  return "\nbest " + judged + " " + fact_text((*metric)["best"]) + " at step " + fact_text((*metric)["best_step"]) +
         ", the last " + fact_text((*metric)["last"]) +
         (is_there ? ": predict, eval and export use the best"
                   : ": the snapshot of that step is not there, so predict, eval and export use the newest");
}

// A line that says why the run ended before its last step.
std::string early_stop_text(const TrainConfig& train, const std::string& judged) {
  const std::int64_t patience = train.early_stop_patience;
  return "\nstopped early: the last " + (patience == 1 ? "validation" : with_commas(patience) + " validations") + " gave no " +
         (train.early_stop_delta > 0 ? judged + " better by more than " + significant(train.early_stop_delta, 3)
                                     : "better " + judged) +
         " (train.early_stop_patience)";
}

// The snapshots of a run. Empty if the folder can't be read any more; no error is thrown, because the run is done in any case.
std::vector<snapshot::Found> kept_snapshots(Fs& fs, const std::filesystem::path& run) {
  try {
    return snapshot::list(fs, run);
  } catch (const SnapshotError&) {
    return {};
  }
}

// A line for runs in which waiting for saves took much time. It names the setting that would avoid the wait. "" for other runs.
std::string lag_advice(const Json& summary, std::int64_t max_lag) {
  constexpr double kSmallestShare = 0.02;
  const Json& saves = summary["snapshots"];
  const double step_ms = summary["step_ms"]["p50"].get<double>();
  if (saves["lag_share"].get<double>() < kSmallestShare || saves["saved"] == 0 || step_ms <= 0) return "";
  const double count = saves["saved"].get<double>();
  const double save_ms = saves["write_ms"].get<double>() / count;
  const auto enough = std::max(max_lag + 1, static_cast<std::int64_t>(std::ceil(save_ms / step_ms)));
  const std::string text = "waited for snapshots " + percent(saves["lag_share"].get<double>()) +
                           " of the time: writing one takes " + fixed(save_ms, 1) + " ms, a step " + fixed(step_ms, 1) + " ms. ";
  if (static_cast<double>(enough) * count >= summary["steps"].get<double>())
    return text + "Save less often";  // only this advice, because even with a larger max_lag the next save would have to wait
                                      // for this one
  return text + "With --snapshot.max_lag=" + std::to_string(enough) + " training would not wait, but a crash could lose " +
         std::to_string(enough - max_lag) + (enough - max_lag == 1 ? " step more" : " steps more") + "; or save less often";
}

// A line about targets that were not measured, which readers would otherwise take for met. "" if all were measured.
std::string unknown_targets(const Json& summary) {
  std::string keys;
  for (const Json& target : summary.value("targets", Json::array()))
    if (target["measured"].is_null()) keys += (keys.empty() ? "" : ", ") + target["key"].get<std::string>();
  return keys.empty() ? "" : "\ntargets not measured in this run, so not met: " + keys;
}

// A text about the targets that were not measured, and at most three findings of the doctor.
std::string verdict(const Json& summary) {
  std::string text = unknown_targets(summary);
  if (!summary.contains("findings")) return text;
  constexpr std::size_t kMost = 3;
  const Json& findings = summary["findings"];
  for (std::size_t i = 0; i < std::min(findings.size(), kMost); ++i)
    text += "\ndoctor  " + findings[i]["text"].get<std::string>();
  if (findings.size() > kMost)
    text += "\ndoctor  and " + std::to_string(findings.size() - kMost) + " more: millrace doctor " +
            summary["run"].get<std::string>();
  return text;
}

}  // namespace

Json versions() {
  Json all = {{"millrace", kVersion},
              {"libtorch", TORCH_VERSION},
              {"compiler", "g++ " __VERSION__},
              {"cpu_capability", device::cpu_info().capability}};
  if (std::string build = build_id(); !build.empty()) all["build"] = std::move(build);
  return all;
}

std::string Session::plan_text() {
  Plan& plan = setup_.plan();
  for (const Switches::Setting& setting : setup_.switches().settings()) {
    if (!setting.on || setting.reason != "default") {
      plan.set({std::string(setting.row->name), setting.on ? "on" : "off", setting.reason == "--off" ? "flag" : "auto",
                setting.reason});
    }
  }
  const data::Loader& loader = assembly_->loaders().training();
  std::string text = "plan\n" + plan.to_text(request_.verbose);
  const auto line = [&text](const std::string& name, const std::string& value) {
    text += "  " + name + std::string(name.size() < 21 ? 21 - name.size() : 1, ' ') + value + "\n";
  };
  line("model", with_commas(parameter_count(assembly_->recipe().model())) + " parameters");
  line("data", with_commas(loader.samples_per_epoch()) + " samples an epoch, " + with_commas(loader.batches_per_epoch()) +
                   " batches; global batch " + with_commas(assembly_->loaders().global_batch()));
  const auto datasets = loader.dataset_plans();
  for (const data::Loader::DatasetPlan& dataset : datasets) {
    if (datasets.size() == 1) break;  // if there is a single data set, the line above describes it
    line("data " + dataset.name, with_commas(dataset.samples) + " samples, " + with_commas(dataset.batch_size) + " in a batch" +
                                     (dataset.rule.empty() ? "" : "; " + dataset.rule));
  }
  const Facts facts = facts_of(assembly_->recipe(), assembly_->loaders().pipeline(Split::train)->datasets);
  if (!facts.read_as.empty()) line("read as", printable(facts.read_as));
  line("length",
       assembly_->loaders().total_steps() > 0 ? with_commas(assembly_->loaders().total_steps()) + " steps" : "open end");
  for (const auto& [key, value] : facts.lines.items()) line(key, fact_text(value));
  text.pop_back();
  return text;
}

void Session::introduce() {
  console().heading("Millrace " + std::string(kVersion) + "  recipe " + request_.entry->name +
                    (request_.preset.empty() ? "" : "  preset " + request_.preset) +
                    (folder_ == nullptr ? "" : "  run " + folder_->path().string()));
  for (const std::string& notice : request_.config.notices) console().notice(notice);
  show_notices();
  console().line(plan_text());
  logged_choices_ = setup_.plan().choices();
}

void Session::show_notices() {
  const std::vector<std::string>& notices = setup_.notices();
  for (; notices_shown_ < notices.size(); ++notices_shown_) console().notice(notices[notices_shown_]);
}

void Session::log_choices() {
  std::vector<Choice> news;
  for (const Choice& choice : setup_.plan().choices()) {
    const auto is_logged = [&](const Choice& logged) { return logged.option == choice.option && logged.value == choice.value; };
    if (std::ranges::none_of(logged_choices_, is_logged)) news.push_back(choice);
  }
  std::string text = to_text(news, request_.verbose);
  if (!text.empty()) text.pop_back();
  if (!text.empty()) console().line(text);
  show_notices();
  if (resumed_) {
    console().line("resumed from step " + with_commas(resumed_->content.step) + " of " +
                   resumed_->from.parent_path().parent_path().string());
  }
  if (folder_ == nullptr) return setup_.show_notices_with([this](const std::string& line) { console().notice(line); });
  folder_->write(run_files::kConfig, config_text(request_.config));
  folder_->write(run_files::kPlan, setup_.plan().to_json().dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  log_->write("start", {{"recipe", request_.entry->name},
                        {"preset", request_.preset},
                        {"command", request_.command_line},
                        {"step", trainer_->step()},
                        {"notices", setup_.notices()},
                        {"process", ::getpid()},
                        {"unix_time", unix_seconds()},
                        {"system", doctor::system_mark().to_json()},
                        {"plan", setup_.plan().to_json()},
                        {"versions", versions()}});
  log_crashes(run_files::kLog);
  setup_.show_notices_with([this](const std::string& line) {
    console().notice(line);
    log_->write("notice", {{"text", line}, {"step", trainer_->step()}});
  });
}

std::vector<std::string> Session::samples() {
  const telemetry::Span span(setup_.timeline(), telemetry::Phase::validate);
  torch::nn::Module& model = assembly_->recipe().model();
  model.eval();
  const at::NoGradGuard no_grad;
  seed_draws(setup_.context().device, setup_.context().seed, Draws::samples, static_cast<std::uint64_t>(trainer_->step()));
  const auto average = use_average(assembly_->stepper());
  auto texts = assembly_->recipe().samples(trainer_->step());
  model.train();
  return texts;
}

void Session::show_samples(const std::string& title, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  console().heading(title);
  for (const std::string& text : texts) {
    console().line(text);
    if (events_) events_->text("sample", trainer_->step(), text);
  }
}

Json Session::facts_of_end(const std::string& reason, const std::string& error) {
  Json facts = {
      {"recipe", request_.entry->name}, {"preset", request_.preset}, {"run", folder_ == nullptr ? "" : folder_->path().string()},
      {"exit_reason", reason},          {"steps", trainer_->step()}, {"choices", setup_.plan().to_json()},
      {"versions", versions()}};
  if (!error.empty()) facts["error"] = error;
  return facts;
}

Json Session::summary_of(const std::string& reason, const std::string& error) {
  Json summary = trainer_->results();
  summary.update(facts_of_end(reason, error));
  if (!likeness_.empty()) summary["likeness"] = likeness_;
  summary["parameters"] = parameter_count(assembly_->recipe().model());
  summary["peak_memory_bytes"] = device::peak_resident_bytes();
  const bool copies = folder_ != nullptr && setup_.switches().on("async_snapshot");
  const MemoryAccount account = assembly_->memory_account(summary["memory"]["step_peak_bytes"].get<std::uint64_t>(),
                                                          copies && summary["snapshots"]["saved"] != 0);
  summary["memory"]["account"] = account.to_json(device::peak_resident_bytes());
  summary["memory"]["text"] = account.to_text(device::peak_resident_bytes());
  for (const auto& [key, value] : assembly_->memory().trial.items())
    summary["memory"][key == "recompute" ? "planned" : key] = value;
  summary["snapshots"]["advice"] = lag_advice(summary, setup_.config().snapshot.max_lag);
  summary["state_sha256"] = trainer_->state_sha256();
  return summary;
}

std::string Session::closing_text(Ending ending, const Json& summary) const {
  const std::string ended =
      ending == Ending::signal ? std::string("stopped by ") + signal_name(stopped_by_) + ", saved at step " : "done at step ";
  std::vector<std::string> parts = {ended + with_commas(trainer_->step())};
  add_loss(parts, summary["loss"]);
  add_metrics(parts, summary);
  std::string text = telemetry::in_lines(console(), parts);
  if (const double ms = summary["step_ms"]["p50"].get<double>(); ms > 0)
    text += "\nstep " + fixed(ms, 1) + " ms (median); time: " + share_text(summary["shares"]);
  if (summary.contains("blocks")) text += "\nof forward and backward: " + to_text(block_times_of(summary["blocks"]));
  const bool doctor_says_it = std::ranges::any_of(summary.value("findings", Json::array()),
                                                  [](const Json& finding) { return finding["id"] == "neighbours"; });
  if (summary.contains("others") && worth_a_word(summary["others"].get<double>()) && !doctor_says_it) {
    text += "\nother programs used the cores for " + percent(summary["others"].get<double>()) +
            " of the time in which this run needed them: alone on the machine the run would be faster by about that much";
  }
  text += "\n" + summary["memory"]["text"].get<std::string>();
  if (const Json& trial = assembly_->memory().trial; trial.contains("predicted_bytes")) {
    text += ", tensors of a step " + human_bytes(summary["memory"]["step_peak_bytes"].get<double>()) + " (predicted " +
            human_bytes(trial["predicted_bytes"].get<double>()) + ")";
  }
  if (folder_ != nullptr) text += ", run folder " + folder_->path().string();
  const auto& wish = setup_.config().snapshot;
  const std::string judged = wish.best_metric.empty() ? "val_" + assembly_->stepper().objective_name(0) : wish.best_metric;
  if (ending == Ending::early_stop) text += early_stop_text(setup_.config().train, judged);
  if (folder_ != nullptr && wish.keep_best) text += best_text(summary, judged, kept_snapshots(*request_.fs, folder_->path()));
  const auto advice = summary["snapshots"]["advice"].get<std::string>();
  text += verdict(summary);
  return advice.empty() ? text : text + "\n" + advice;
}

RunOutcome Session::nothing_left() const {
  RunOutcome outcome;
  outcome.summary = Json::object();
  if (folder_ == nullptr) return outcome;  // returns, because only rank 0 reports
  outcome.run_folder = folder_->path();
  const std::string text = request_.fs->read_file(folder_->path() / run_files::kSummary);
  outcome.summary = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool stopped_early =
      outcome.summary.is_object() && outcome.summary.value("exit_reason", Json()) == std::string(name_of(Ending::early_stop));
  console().line("already complete at step " + with_commas(resumed_->content.step) +
                 (stopped_early ? ", where it stopped early: raise train.early_stop_patience, or set it to 0"
                                : ": raise train.max_steps or train.epochs") +
                 ", or start over with --fresh");
  return outcome;
}

// Gathers how each rank spent its time. Called when the run is done and saved, so if a rank is lost now, the report lacks only
// these times.
Json Session::times_of_ranks() {
  Agreement& agreement = setup_.agreement();
  stopped_by_ = pending_signal();
  sender_ = pending_signal_sender();
  if (agreement.alone()) return {};
  try {
    Json ranks = Json::array();
    Json mine = trainer_->times();
    mine["signal"] = {stopped_by_, sender_};
    for (Json& rank : agreement.gather(std::move(mine))) {
      const int number = rank.at("signal").at(0).get<int>();
      if (stopped_by_ == 0 && number != 0) {
        stopped_by_ = number;
        sender_ = rank.at("signal").at(1).get<std::string>();
      }
      rank.erase("signal");
      rank["rank"] = ranks.size();
      ranks.push_back(std::move(rank));
    }
    return ranks;
  } catch (const DistributedError& error) {
    agreement.leave();
    console().warning("it is unknown how the other ranks spent their time: " + error.message().what);
    return {};
  }
}

RunOutcome Session::finish(Ending ending) {
  const std::string reason(name_of(ending));
  Json ranks = times_of_ranks();
  RunOutcome outcome;
  outcome.run_folder = folder_ == nullptr ? std::filesystem::path() : folder_->path();
  outcome.summary = summary_of(reason, "");
  if (!ranks.is_null()) outcome.summary["ranks"] = std::move(ranks);
  if (ending == Ending::signal) outcome.exit_code = exit_code_for(stopped_by_);
  if (folder_ != nullptr) {
    keep_summary(outcome.summary);
    log_end(reason, "");
  }
  console().line(closing_text(ending, outcome.summary));
  return outcome;
}

void Session::fail(const char* error, Device device) noexcept {
  const auto attempt = [](const auto& work) {
    try {
      work();
    } catch (const std::exception&) {  // ignored, because the error to report is the caller's
    }
  };
  attempt([&] { setup_.agreement().leave(); });
  // The log's last line is written before any call to the device, because a device that failed may never return from a call.
  if (folder_ != nullptr) attempt([&] { log_end("error", error); });
  if (device == Device::is_lost) {
    if (folder_ != nullptr) attempt([&] { keep_summary(facts_of_end("error", error)); });
    return;
  }
  trainer_->save_after_error();  // called after any error, because the state after the last complete step is worth saving
  if (folder_ != nullptr) attempt([&] { keep_failure(error); });
}

// Throws an error that says how to continue. The state of the last step is lost with the device, and each call to the device
// would fail again.
void Session::lose_device(const std::exception& error) {
  std::string first = trainer_->last_snapshot();
  if (!first.empty()) first += "the same command resumes from it; ";
  const DeviceError lost(device::lost_device(error, "step " + std::to_string(trainer_->step() + 1), first));
  fail(lost.what(), Device::is_lost);
  throw lost;
}

void Session::keep_failure(const std::string& error) {
  Json summary;
  try {
    summary = summary_of("error", error);
  } catch (const std::exception& other) {
    console().warning(std::string("the run's summary is not available: ") + other.what());
    summary = facts_of_end("error", error);
  }
  keep_summary(summary);
}

void Session::keep_summary(const Json& summary) {
  try {
    folder_->write(run_files::kSummary, summary.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } catch (const FsError& failure) {
    console().warning(std::string("summary.json could not be written: ") + failure.what());
  } catch (const UsageError& failure) {
    console().warning("summary.json could not be written: " + failure.message().what);
  }
}

void Session::log_end(const std::string& reason, const std::string& error) {
  Json end = {{"step", trainer_->step()}, {"exit_reason", reason}};
  if (!error.empty()) end["error"] = error;
  if (reason == name_of(Ending::signal)) {
    end["signal"] = signal_name(stopped_by_);
    end["sender"] = sender_;
  }
  log_->write("end", std::move(end));
}

}  // namespace millrace
