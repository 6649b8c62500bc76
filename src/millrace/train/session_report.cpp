// What a session tells: the plan before the first step, the summary after the last.
#include <torch/nn/module.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/base/signals.h"
#include "millrace/base/version.h"
#include "millrace/device/device.h"
#include "millrace/train/generator_state.h"
#include "millrace/train/run_files.h"
#include "millrace/train/session.h"

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

// The largest shares of the run's time, most first: "backward 61 %, forward 29 %, optimizer 9 %".
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

// "" where no step was made.
std::string loss_text(const Json& loss) {
  return loss["last"].is_null() ? "" : "  loss " + fact_text(loss["first"]) + " -> " + fact_text(loss["last"]);
}

std::string metrics_text(const Json& metrics) {
  std::string text;
  for (const auto& [name, metric] : metrics.items()) {
    const Json& last = metric["last"];
    text += "  " + name + (last.is_number() ? " " + fact_text(last) : " is not a number");
    if (!last.is_number() && metric["best_step"].is_number())
      text += " (best " + fact_text(metric["best"]) + " at step " + fact_text(metric["best_step"]) + ")";
  }
  return text;
}

// What waiting for saves cost, where that is worth a word, and what would hide it.
std::string lag_advice(const Json& summary, std::int64_t max_lag) {
  constexpr double kWorthAWord = 0.02;
  const Json& saves = summary["snapshots"];
  const double step_ms = summary["step_ms"]["p50"].get<double>();
  if (saves["lag_share"].get<double>() < kWorthAWord || saves["saved"] == 0 || step_ms <= 0) return "";
  const double count = saves["saved"].get<double>();
  const double save_ms = saves["write_ms"].get<double>() / count;
  const auto enough = std::max(max_lag + 1, static_cast<std::int64_t>(std::ceil(save_ms / step_ms)));
  const std::string text = "waited for snapshots " + percent(saves["lag_share"].get<double>()) +
                           " of the time: writing one takes " + fixed(save_ms, 1) + " ms, a step " + fixed(step_ms, 1) + " ms. ";
  if (static_cast<double>(enough) * count >= summary["steps"].get<double>())
    return text + "Save less often";  // the next one waits
  return text + "With --snapshot.max_lag=" + std::to_string(enough) + " that would be hidden, and a crash could lose " +
         std::to_string(enough - max_lag) + (enough - max_lag == 1 ? " step more" : " steps more") + "; or save less often";
}

}  // namespace

Json versions() {
  return {{"millrace", kVersion},
          {"libtorch", TORCH_VERSION},
          {"compiler", "g++ " __VERSION__},
          {"cpu_capability", device::cpu_info().capability}};
}

void Session::introduce() {
  telemetry::Console& console = *request_.console;
  console.heading("Millrace " + std::string(kVersion) + "  recipe " + request_.recipe +
                  (request_.preset.empty() ? "" : "  preset " + request_.preset) +
                  (folder_ == nullptr ? "" : "  run " + folder_->path().string()));
  for (const std::string& notice : request_.config.notices) console.notice(notice);
  for (const std::string& notice : notices_) console.notice(notice);
  for (const Switches::Setting& setting : switches_.settings()) {
    if (!setting.on || setting.reason != "default") {
      plan_.set({std::string(setting.row->name), setting.on ? "on" : "off", setting.reason == "--off" ? "flag" : "auto",
                 setting.reason});
    }
  }
  const std::int64_t global_batch = config_.data.batch_size * config_.optim.accumulate;
  std::string text = "plan\n" + plan_.to_text();
  text += "  model                " + with_commas(parameter_count(recipe_->model())) + " parameters\n";
  text += "  data                 " + with_commas(loader_->samples_per_epoch()) + " samples an epoch, " +
          with_commas(loader_->batches_per_epoch()) + " batches; global batch " + with_commas(global_batch) + "\n";
  text += "  length               " + with_commas(total_steps_) + " steps";
  for (const auto& [key, value] : facts_.items()) {
    if (key == "rate_unit" || key == "units_per_sample" || key == "parameters" || key == "history") continue;
    text += "\n  " + key + std::string(key.size() < 21 ? 21 - key.size() : 1, ' ') + fact_text(value);
  }
  console.line(text);
  if (resumed_) {
    console.line("resumed from step " + with_commas(resumed_->step) + " of " +
                 resumed_from_.parent_path().parent_path().string());
  }
  if (folder_ == nullptr) return;
  folder_->write(run_files::kConfig, config_text(request_.config));
  folder_->write(run_files::kPlan, plan_.to_json().dump(2) + "\n");
  log_->write("start", {{"recipe", request_.recipe},
                        {"preset", request_.preset},
                        {"command", request_.command_line},
                        {"step", trainer_->step()},
                        {"plan", plan_.to_json()},
                        {"notices", notices_},
                        {"versions", versions()}});
}

void Session::show_samples(const std::string& title) {
  if (resumed_ && title.find("before") != std::string::npos) return;
  torch::nn::Module& model = recipe_->model();
  model.eval();
  const at::NoGradGuard no_grad;
  const KeepGenerator no_trace;
  const auto average = stepper_->use_average();
  const auto texts = recipe_->samples(trainer_->step());
  model.train();
  if (texts.empty()) return;
  request_.console->heading(title);
  for (const std::string& text : texts) {
    request_.console->line(text);
    if (events_) events_->text("sample", trainer_->step(), text);
  }
}

RunOutcome Session::finish(std::optional<Ending> ending, const std::string& error) {
  telemetry::Console& console = *request_.console;
  RunOutcome outcome;
  outcome.run_folder = folder_ == nullptr ? std::filesystem::path() : folder_->path();
  if (!ending && error.empty()) {
    console.line("already complete at step " + with_commas(resumed_->step) +
                 ": raise train.max_steps or train.epochs, or start over with --fresh");
    const std::string text = request_.fs->read_file(folder_->path() / run_files::kSummary);
    outcome.summary = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    return outcome;
  }
  Json summary = trainer_->results();
  summary["recipe"] = request_.recipe;
  summary["preset"] = request_.preset;
  summary["run"] = outcome.run_folder.string();
  summary["exit_reason"] = ending ? std::string(name_of(*ending)) : "error";
  if (!error.empty()) summary["error"] = error;
  summary["choices"] = plan_.to_json();
  summary["versions"] = versions();
  summary["parameters"] = parameter_count(recipe_->model());
  summary["peak_memory_bytes"] = device::peak_resident_bytes();
  for (const auto& [key, value] : memory_.trial.items()) summary["memory"][key == "recompute" ? "planned" : key] = value;
  summary["snapshots"]["advice"] = lag_advice(summary, config_.snapshot.max_lag);
  summary["state_sha256"] = trainer_->state_sha256();
  if (ending == Ending::signal) outcome.exit_code = exit_code_for(pending_signal());
  if (folder_ != nullptr) {
    try {
      folder_->write(run_files::kSummary, summary.dump(2) + "\n");
    } catch (const FsError& failure) {
      console.warning(std::string("summary.json could not be written: ") + failure.what());
    } catch (const UsageError& failure) {
      console.warning("summary.json could not be written: " + failure.message().what);
    }
    log_->write("end", {{"step", trainer_->step()}, {"exit_reason", summary["exit_reason"]}});
  }
  if (error.empty()) {
    std::string text = ending == Ending::signal ? std::string("stopped by ") + signal_name(pending_signal()) + ", saved at step "
                                                : "done at step ";
    text += with_commas(trainer_->step()) + loss_text(summary["loss"]) + metrics_text(summary["metrics"]);
    if (const double ms = summary["step_ms"]["p50"].get<double>(); ms > 0)
      text += "\nstep " + fixed(ms, 1) + " ms (median); time: " + share_text(summary["shares"]);
    text += "\npeak memory " + human_bytes(static_cast<double>(device::peak_resident_bytes()));
    if (memory_.trial.contains("predicted_bytes")) {
      text += ", tensors of a step " + human_bytes(summary["memory"]["step_peak_bytes"].get<double>()) + " (predicted " +
              human_bytes(memory_.trial["predicted_bytes"].get<double>()) + ")";
    }
    if (folder_ != nullptr) text += ", run folder " + folder_->path().string();
    if (const auto advice = summary["snapshots"]["advice"].get<std::string>(); !advice.empty()) text += "\n" + advice;
    console.line(text);
  }
  outcome.summary = std::move(summary);
  return outcome;
}

}  // namespace millrace
