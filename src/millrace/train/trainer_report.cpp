// What the trainer says: log lines, validation lines, history, and its share of the summary.
#include <algorithm>
#include <cmath>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/device.h"
#include "millrace/format/png.h"
#include "millrace/train/run_files.h"
#include "millrace/train/trainer.h"

namespace millrace {
namespace {

std::string metric_text(const std::map<std::string, double>& means, const std::string& first) {
  std::string text;
  if (const auto it = means.find(first); it != means.end()) text = first + " " + fixed(it->second, 4);
  for (const auto& [name, value] : means) {
    if (name != first) text += "  " + name + " " + fixed(value, 4);
  }
  return text;
}

Json shares_of(const telemetry::Timeline::Summary& times) {
  Json shares = Json::object();
  for (std::size_t i = 0; i < telemetry::kPhases; ++i) {
    shares[std::string(telemetry::name_of(static_cast<telemetry::Phase>(i)))] = times.share[i];
  }
  return shares;
}

std::string counts_text(double skipped, double spikes, std::optional<double> scale) {
  std::string text;
  if (skipped > 0) text += "  skipped " + fixed(skipped, 0);
  if (spikes > 0) text += "  spikes " + fixed(spikes, 0);
  if (scale) text += "  scale " + significant(*scale, 6);
  return text;
}

std::string gpu_memory_text(at::Device device) {
  const auto memory = device::backend_of(device).memory(device.has_index() ? device.index() : 0);
  return "  GPU " + human_bytes(static_cast<double>(memory.allocated_bytes)) + " allocated, " +
         human_bytes(static_cast<double>(memory.reserved_bytes)) + " reserved";
}

// JSON has no NaN: a value that is not finite is written as text, so that nothing is silently lost.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(fixed(value, 0)); }
Json number(std::optional<double> value) { return value ? number(*value) : Json(); }  // null: there was none

}  // namespace

void Trainer::log() {
  const telemetry::Span span(*parts_.timeline, telemetry::Phase::log);
  const auto means = window_.means();
  const double grad_norm = parts_.stepper->gradient_norm().item<double>();
  const double skipped = parts_.stepper->skipped().item<double>();
  const double in_a_row = parts_.stepper->skipped_in_a_row().item<double>();
  const double elapsed = static_cast<double>(steady_nanoseconds() - window_begin_ns_) * 1e-9;
  const auto times = parts_.timeline->window();
  log_rate_ = static_cast<double>(window_samples_) * parts_.units_per_sample / std::max(elapsed, 1e-9);
  wait_share_ = times.share[static_cast<std::size_t>(telemetry::Phase::data_wait)];
  if (const auto it = means.find(parts_.stepper->objective_name(0)); it != means.end()) loss_last_ = it->second;
  if (!loss_first_) loss_first_ = loss_last_;

  telemetry::Progress line = progress();
  line.learning_rate = parts_.stepper->learning_rate(0);
  for (const auto& [name, value] : means) {
    if (name != parts_.stepper->objective_name(0)) line.extra += (line.extra.empty() ? "" : "  ") + name + " " + fixed(value, 4);
  }
  const double spikes = parts_.stepper->spikes().item<double>();
  const std::optional<double> scale = parts_.stepper->loss_scale();
  line.extra += counts_text(skipped, spikes, scale);
  if (parts_.config->log.gpu_memory) line.extra += gpu_memory_text(parts_.device);
  const data::CacheCounters cache = parts_.cache != nullptr ? parts_.cache->counters() : data::CacheCounters{};
  const data::CacheCounters fresh{.hits = cache.hits - cache_logged_.hits, .misses = cache.misses - cache_logged_.misses};
  cache_logged_ = cache;
  if (fresh.misses > 0)
    line.extra += "  cache " + percent(fresh.hit_rate()) + " of " + human_bytes(static_cast<double>(cache.bytes));
  parts_.console->line(telemetry::to_text(line));

  Json values = {{"step", step_},
                 {"epoch", epoch_ + 1},
                 {"lr", parts_.stepper->learning_rate(0)},
                 {"grad_norm", number(grad_norm)},
                 {"skipped", skipped},
                 {"samples", samples_},
                 {parts_.rate_unit + "_per_s", log_rate_},
                 {"step_ms_p50", times.step_ms_p50},
                 {"step_ms_p95", times.step_ms_p95},
                 {"shares", shares_of(times)}};
  for (const auto& [name, value] : means) values[name] = number(value);
  if (spikes > 0) values["spikes"] = spikes;
  if (scale) values["loss_scale"] = *scale;
  if (parts_.cache != nullptr) {
    values["cache_hit_rate"] = fresh.hit_rate();
    values["cache_bytes"] = cache.bytes;
  }
  record("step", std::move(values));
  if (parts_.events != nullptr) {
    for (const auto& [name, value] : means) parts_.events->scalar(name + "/train", step_, value);
    parts_.events->scalar("lr", step_, parts_.stepper->learning_rate(0));
    parts_.events->scalar("grad_norm", step_, grad_norm);
    if (scale) parts_.events->scalar("scale", step_, *scale);
    parts_.events->scalar(parts_.rate_unit + "_per_s", step_, log_rate_);
    parts_.events->scalar("data_wait_share", step_, wait_share_);
    parts_.events->scalar("step_ms_p50", step_, times.step_ms_p50);
    const double prepare = times.share[static_cast<std::size_t>(telemetry::Phase::prepare)];
    parts_.events->scalar("time/preprocess_ms", step_,
                          prepare * elapsed * 1e3 / static_cast<double>(std::max<std::int64_t>(window_steps_, 1)));
    if (parts_.cache != nullptr) parts_.events->scalar("cache_hit_rate", step_, fresh.hit_rate());
    parts_.events->flush();
  }
  window_.reset();
  window_samples_ = window_steps_ = 0;
  window_begin_ns_ = steady_nanoseconds();
  parts_.timeline->reset_window();
  // Half precision has a rule of its own: while a loss scale finds its place, many steps in a row may overflow.
  if (!parts_.stepper->autocast()) check_divergence(in_a_row);
}

std::string Trainer::judged_metric() const {
  const std::string& wish = parts_.config->snapshot.best_metric;
  return wish.empty() ? "val_" + parts_.stepper->objective_name(0) : wish;
}

void Trainer::note_validation(const std::map<std::string, double>& means) {
  const auto value_of = [&](const std::string& name) {
    const auto it = means.find(name);
    return it == means.end() ? std::nan("") : it->second;
  };
  const std::string first = judged_metric();
  if (!means.contains(first) && !parts_.config->snapshot.best_metric.empty()) {
    std::string names;
    for (const auto& [name, value] : means) names += (names.empty() ? "" : ", ") + name;
    throw ConfigError({"validation gives no metric " + quoted(first), "snapshot.best_metric", "it gives " + names});
  }
  const double judged = value_of(first);
  const bool highest = parts_.config->snapshot.best_is == BestIs::highest;
  const auto before = metrics_.find(first);
  const bool equal_or_worse =
      before != metrics_.end() && (highest ? before->second.best >= judged : before->second.best <= judged);
  const bool gained = std::isfinite(judged) && !equal_or_worse;
  for (const auto& [name, value] : means) {
    Metric& metric = metrics_[name];
    metric.last = value;
    if (gained) {
      metric.best = value;
      metric.best_step = step_;
    }
  }
  improved_ = improved_ || gained;
  const double delta = parts_.config->train.early_stop_delta;
  const bool too_little = highest ? early_stop_best_ + delta >= judged : early_stop_best_ - delta <= judged;
  const bool enough = std::isfinite(judged) && !too_little;  // NaN at first, and nothing is too little
  validations_without_gain_ = enough ? 0 : validations_without_gain_ + 1;
  if (enough) early_stop_best_ = judged;
  parts_.stepper->observe_validation(value_of("val_" + parts_.stepper->objective_name(0)));

  const Metric& metric = metrics_[first];
  std::string line = "validation  step " + std::to_string(step_) + "  " + metric_text(means, first);
  if (!gained && metric.best_step >= 0)
    line += "  (best " + fixed(metric.best, 4) + " at step " + std::to_string(metric.best_step) + ")";
  parts_.console->line(line);
  Json values = {{"step", step_}};
  for (const auto& [name, value] : means) {
    values[name] = number(value);
    if (parts_.events != nullptr)
      parts_.events->scalar(name.starts_with("val_") ? name.substr(4) + "/val" : parts_.metric_tags + name, step_, value);
  }
  record("validation", std::move(values));
  write_history(means);
}

void Trainer::write_history(const std::map<std::string, double>& means) {
  if (!epoch_row_) return;
  const EpochRow row = *epoch_row_;
  epoch_row_.reset();
  if (parts_.history) parts_.history(row.epoch, row.train_loss, means, row.seconds, row.rate);
  if (parts_.events != nullptr) parts_.events->scalar("time/epoch_s", step_, row.seconds);
  record("epoch", {{"epoch", row.epoch},
                   {"step", step_},
                   {"train_loss", number(row.train_loss)},
                   {"seconds", row.seconds},
                   {parts_.rate_unit + "_per_s", row.rate}});
}

// A picture that can't be written is a warning, never the end of a run.
void Trainer::draw() const {
  if (parts_.folder == nullptr || !parts_.config->log.images) return;
  const auto pictures = parts_.recipe->draw();
  if (pictures.empty()) return;
  const std::string folder = run_files::kPictures;
  try {
    parts_.fs->create_directories(parts_.folder->path() / folder);
    for (const Picture& picture : pictures) {
      const auto png =
          format::encode_png({picture.height, picture.width, format::Pixels::rgb}, std::as_bytes(std::span(picture.rgb)));
      const std::string_view bytes(reinterpret_cast<const char*>(png.data()), png.size());
      write_atomically(*parts_.fs, parts_.folder->own(folder + "/" + picture.name + ".png"), bytes);
      if (parts_.events != nullptr) parts_.events->image("val/" + picture.name, step_, picture.height, picture.width, bytes);
    }
  } catch (const FsError& error) {
    parts_.console->warning(std::string("pictures could not be written: ") + error.what());
  } catch (const UsageError& error) {
    parts_.console->warning("pictures could not be written: " + error.message().what);
  }
}

Json Trainer::results() const {
  const auto times = parts_.timeline->total();
  Json metrics = Json::object();
  for (const auto& [name, metric] : metrics_) {
    const bool has_best = metric.best_step >= 0;
    metrics[name] = {{"last", number(metric.last)},
                     {"best", has_best ? number(metric.best) : Json()},
                     {"best_step", has_best ? Json(metric.best_step) : Json()}};
  }
  Json all = {{"steps", step_},
              {"epochs", epoch_},
              {"samples", samples_},
              {"metrics", std::move(metrics)},
              {"loss", {{"first", number(loss_first_)}, {"last", number(loss_last_)}}},
              {"step_ms", {{"p50", times.step_ms_p50}, {"p95", times.step_ms_p95}}},
              {"shares", shares_of(times)},
              {"skipped_steps", parts_.stepper->skipped().item<double>()},
              {"spike_steps", parts_.stepper->spikes().item<double>()}};
  const double seconds = times.seconds;
  all["samples_per_s"] = seconds > 0 ? static_cast<double>(session_samples_) / seconds : 0.0;
  if (parts_.rate_unit != "samples")
    all[parts_.rate_unit + "_per_s"] = all["samples_per_s"].get<double>() * parts_.units_per_sample;
  const data::LoaderCounters read = parts_.loader->counters();
  all["loader"] = {{"readers", parts_.loader->readers()},
                   {"reason", parts_.loader->readers_reason()},
                   {"buffer_bytes", parts_.loader->buffer_bytes()},
                   {"bad_samples", read.bad_samples},
                   {"wait_s", read.wait_seconds},
                   {"read_s", read.read_seconds}};
  if (parts_.cache != nullptr) {
    const data::CacheCounters cache = parts_.cache->counters();
    all["cache"] = {{"hit_rate", cache.hit_rate()},
                    {"hits", cache.hits},
                    {"misses", cache.misses},
                    {"bytes", cache.bytes},
                    {"budget_bytes", cache.budget_bytes}};
  }
  all["snapshots"] = {{"saved", saves_.done},
                      {"failed", saves_.failed},
                      {"blocked_ms", saves_.blocked_ms},
                      {"write_ms", saves_.write_ms},
                      {"lag_ms", saves_.lag_ms},
                      {"lag_share", seconds > 0 ? saves_.lag_ms * 1e-3 / seconds : 0.0}};
  all["memory"] = memory_results();
  if (first_step_seconds_) all["time_to_first_step_s"] = *first_step_seconds_;
  return all;
}

}  // namespace millrace
