#include "millrace/train/report/reporter.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "millrace/base/format.h"
#include "millrace/core/saved_json.h"
#include "millrace/metrics/figure.h"
#include "millrace/train/step/stepper_report.h"

namespace millrace {
namespace {

// The key of a value of objective i: with a prefix only if the run has several objectives.
std::string key_of(const StepRecord& record, std::size_t i, const std::string& what) {
  return record.objectives.size() == 1 ? what : record.objectives[i].name + "." + what;
}
std::string tag_of(const StepRecord& record, std::size_t i, const std::string& what) {
  return record.objectives.size() == 1 ? what : what + "/" + record.objectives[i].name;
}

std::string rate_text(double rate) { return std::string("lr ") + significant(rate, 3); }

// For runs with several objectives: what a line says about one objective, except its loss.
std::string objective_text(const ObjectiveReport& objective) {
  if (!objective.present) return "  " + objective.name + " off";
  std::string text = "  " + objective.name + " " + rate_text(objective.learning_rate);
  if (objective.spikes > 0) text += " spikes " + fixed(objective.spikes, 0);
  if (objective.loss_scale) text += " scale " + significant(*objective.loss_scale, 6);
  return text;
}

// True for a term of an objective other than the first. With several objectives, the console shows the terms of the first
// objective and only the totals of the later ones; the logs have all terms.
bool is_term_of_later(const std::vector<ObjectiveReport>& objectives, std::string_view metric) {
  return objectives.size() > 1 && std::any_of(objectives.begin() + 1, objectives.end(),
                                              [&](const ObjectiveReport& later) { return metric.starts_with(later.name + "/"); });
}

// A value as a step line shows it: four significant digits below 0.1, then four decimals, and fewer decimals from 100 on.
std::string part_of_line(double value) {
  const double size = std::abs(value);
  if (size < 0.1) return figure(value);
  return fixed(value, size >= 10'000 ? 0 : size >= 100 ? 1 : 4);
}

double per_second(std::int64_t count, double seconds) { return static_cast<double>(count) / std::max(seconds, 1e-9); }

std::vector<std::pair<const char*, std::uint64_t>> counters_of(const StepRecord::Memory& memory) {
  const device::Backend::MemoryCounters& counters = memory.counters;
  if (!memory.on_gpu) return {{"rss", counters.allocated_bytes}, {"peak", counters.peak_bytes}};
  return {{"allocated", counters.allocated_bytes},
          {"reserved", counters.reserved_bytes},
          {"peak", counters.peak_bytes},
          {"rss", device::resident_bytes()}};
}

std::string memory_text(const StepRecord::Memory& memory) {
  const auto text = [](std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  const device::Backend::MemoryCounters& counters = memory.counters;
  if (!memory.on_gpu) return "memory " + text(counters.allocated_bytes) + ", at most " + text(counters.peak_bytes);
  return "GPU " + text(counters.allocated_bytes) + " allocated, " + text(counters.reserved_bytes) + " reserved, peak " +
         text(counters.peak_bytes);
}

// The columns of the history that an earlier process wrote, or `first` if there is no such history. A metric keeps its column,
// whatever its place among the metrics is now, so that the rows of earlier epochs stay in the table.
std::vector<std::string> columns_of_history(Fs& fs, const std::filesystem::path& file, const std::vector<std::string>& first) {
  std::vector<std::string> head;
  try {
    if (!fs.exists(file)) return first;
    const std::string text = fs.read_file(file);
    format::CsvReader reader(text);
    if (!reader.next(head) || !reader.complete()) return first;
  } catch (const FsError&) {  // ignored here, because the write of the row reports the error
    return first;
  }
  const bool is_history = head.size() >= first.size() && std::equal(first.begin(), first.end(), head.begin());
  return is_history ? head : first;
}

// Adds the judged metric `first`, and then, in the recipe's order, the other metrics that the console shows.
void add_metrics(std::vector<std::string>& parts, const metrics::Means& means, const std::string& first) {
  if (const auto it = means.find(first); it != means.end()) parts.push_back(first + " " + metrics::figure_of(first, it->second));
  for (const auto& [name, value] : means) {
    if (name != first && means.shown_on_console(name)) parts.push_back(name + " " + metrics::figure_of(name, value));
  }
}

}  // namespace

bool worth_a_word(std::optional<double> others) noexcept {
  constexpr double kLeast = 0.05;
  return others && *others >= kLeast;
}

Json shares_of(const telemetry::Timeline::Summary& times) {
  Json shares = Json::object();
  for (std::size_t i = 0; i < telemetry::kPhases; ++i)
    shares[std::string(telemetry::name_of(static_cast<telemetry::Phase>(i)))] = times.share(static_cast<telemetry::Phase>(i));
  shares.erase("startup");
  shares.erase("trials");
  return shares;
}

Json accounts_of(const telemetry::Timeline::Summary& times, std::optional<double> others) {
  using telemetry::Phase;
  Json accounts = Json::object();
  for (std::size_t i = 0; i < telemetry::kPhases; ++i)
    accounts[std::string(telemetry::name_of(static_cast<Phase>(i)))] = times.seconds[i];
  if (!others) return accounts;
  double of_others = 0;
  for (const Phase phase : {Phase::prepare, Phase::forward, Phase::backward, Phase::optimizer, Phase::metrics, Phase::validate}) {
    const double part = times.of(phase) * *others;
    accounts[std::string(telemetry::name_of(phase))] = times.of(phase) - part;
    of_others += part;
  }
  accounts["others"] = of_others;
  return accounts;
}

std::string largest_account(const telemetry::Timeline::Summary& times) {
  auto largest = telemetry::Phase::rest;
  for (std::size_t i = 0; i < telemetry::kPhases; ++i) {
    if (const auto phase = static_cast<telemetry::Phase>(i); times.share(phase) > times.share(largest)) largest = phase;
  }
  return std::string(telemetry::name_of(largest));
}

Reporter::Reporter(Reporter::Sinks sinks, Reporter::RecordNames names) : sinks_(std::move(sinks)), names_(std::move(names)) {
  if (names_.step_log)
    step_log_.emplace(*names_.step_log, sinks_.fs, sinks_.step_log, sinks_.steps_kept,
                      [this](const std::string& text) { warning(text); });
}

void Reporter::record(std::string_view kind, Json values) const {
  if (sinks_.log != nullptr) sinks_.log->write(kind, std::move(values));
}

double Reporter::rate_of(std::int64_t samples, double seconds) const {
  return static_cast<double>(samples) * names_.units_per_sample / std::max(seconds, 1e-9);
}

// An estimate of the seconds until the run ends. Assumes that further validations take as many seconds per step as the
// validations of this process so far.
std::optional<double> Reporter::seconds_to_end(std::int64_t step, std::int64_t total_steps, double seconds_per_step) const {
  if (total_steps <= 0) return std::nullopt;
  const std::int64_t made = began_at_ ? step - *began_at_ : 0;
  const double validations = made > 0 ? validation_seconds_ / static_cast<double>(made) : 0;
  return (seconds_per_step + validations) * static_cast<double>(total_steps - step);
}

void Reporter::step(const StepRecord& record) {
  if (!began_at_) began_at_ = record.step - record.window.steps;
  rate_ = rate_of(record.window.samples, record.window.seconds);
  wait_share_ = record.times.share(telemetry::Phase::data_wait);
  own_log(record);
  step_json(record);
  if (sinks_.events != nullptr) step_events(record);
}

// Shows the line of a step, either Millrace's or the recipe's own, and adds a row to the recipe's table.
void Reporter::own_log(const StepRecord& record) {
  if (!step_log_) return step_line(record);
  LoggedStep logged = record.logged;
  for (const auto& [name, value] : record.window.means) logged.means[name] = value;
  step_log_->row(logged);
  const auto line = sinks_.line == LogConfig::Line::original ? step_log_->line(logged) : std::nullopt;
  if (!line) return step_line(record);
  sinks_.console->line(*line);
}

void Reporter::step_line(const StepRecord& record) const {
  const auto loss = record.window.means.find(names_.loss);
  telemetry::Console::Progress line{.step = record.step,
                                    .total_steps = record.total_steps,
                                    .epoch = record.epoch,
                                    .loss = loss == record.window.means.end() ? std::nan("") : loss->second,
                                    .rate = rate_,
                                    .rate_unit = names_.rate_unit + "/s",
                                    .data_wait_share = wait_share_};
  const double per_step = record.window.seconds / static_cast<double>(std::max<std::int64_t>(record.window.steps, 1));
  if (record.window.steps > 0) line.eta_seconds = seconds_to_end(record.step, record.total_steps, per_step);
  for (const auto& [name, value] : record.window.means) {
    if (name == names_.loss || !record.window.means.shown_on_console(name) || is_term_of_later(record.objectives, name)) continue;
    line.extra += (line.extra.empty() ? "" : "  ") + name + " " + part_of_line(value);
  }
  if (worth_a_word(record.window.others)) line.extra += "  others " + percent(*record.window.others) + " of the cores";
  if (record.skipped > 0) line.extra += "  skipped " + fixed(record.skipped, 0);
  if (record.objectives.size() == 1) {
    const ObjectiveReport& only = record.objectives.front();
    line.learning_rate = only.learning_rate;
    if (only.spikes > 0) line.extra += "  spikes " + fixed(only.spikes, 0);
    if (only.loss_scale) line.extra += "  scale " + significant(*only.loss_scale, 6);
  } else {
    for (const ObjectiveReport& objective : record.objectives) line.extra += objective_text(objective);
  }
  if (record.memory) line.extra += "  " + memory_text(*record.memory);
  if (record.cache && record.cache->misses > 0) {
    line.extra += "  cache " + percent(record.cache->hit_rate()) + " of " + human_bytes(static_cast<double>(record.cache->bytes));
  }
  if (line.extra.starts_with("  ")) line.extra.erase(0, 2);
  sinks_.console->line(telemetry::to_text(line));
}

void Reporter::step_json(const StepRecord& record) const {
  Json values = {{"step", record.step},
                 {"epoch", record.epoch},
                 {"skipped", record.skipped},
                 {"samples", record.samples},
                 {names_.rate_unit + "_per_s", rate_},
                 {"step_ms_p50", record.times.step_ms_p50},
                 {"step_ms_p95", record.times.step_ms_p95},
                 {"shares", shares_of(record.times)},
                 {"accounts", accounts_of(record.times, record.window.others)}};
  if (record.host_ms) values["host_ms"] = *record.host_ms;
  if (record.window.others) values["others"] = *record.window.others;
  for (const auto& [name, value] : record.window.means) values[name] = number_or_text(value);
  for (std::size_t i = 0; i < record.objectives.size(); ++i) {
    const ObjectiveReport& objective = record.objectives[i];
    values[key_of(record, i, "lr")] = objective.learning_rate;
    values[key_of(record, i, "grad_norm")] = number_or_text(objective.gradient_norm);
    if (objective.spikes > 0) values[key_of(record, i, "spikes")] = objective.spikes;
    if (objective.loss_scale) values[key_of(record, i, "loss_scale")] = *objective.loss_scale;
    if (!objective.present) values[key_of(record, i, "absent")] = true;
  }
  if (record.cache) {
    values["cache_hit_rate"] = record.cache->hit_rate();
    values["cache_bytes"] = record.cache->bytes;
  }
  if (record.memory) {
    for (const auto& [name, bytes] : counters_of(*record.memory)) values[std::string("memory_") + name] = bytes;
  }
  if (record.gpu) values["gpu"] = record.gpu->to_json();
  this->record("step", std::move(values));
}

void Reporter::step_events(const StepRecord& record) const {
  telemetry::EventWriter& events = *sinks_.events;
  const std::int64_t step = record.step;
  for (const auto& [name, value] : record.window.means)
    events.scalar((name.starts_with("train/") ? name.substr(6) : name) + "/train", step, value);
  for (std::size_t i = 0; i < record.objectives.size(); ++i) {
    const ObjectiveReport& objective = record.objectives[i];
    if (!objective.present) continue;
    events.scalar(tag_of(record, i, "lr"), step, objective.learning_rate);
    events.scalar(tag_of(record, i, "grad_norm"), step, objective.gradient_norm);
    if (objective.spikes > 0) events.scalar(tag_of(record, i, "spikes"), step, objective.spikes);
    if (objective.loss_scale) events.scalar(tag_of(record, i, "scale"), step, *objective.loss_scale);
  }
  events.scalar(names_.rate_unit + "_per_s", step, rate_);
  events.scalar("data_wait_share", step, wait_share_);
  events.scalar("step_ms_p50", step, record.times.step_ms_p50);
  if (record.host_ms) events.scalar("host_ms", step, *record.host_ms);
  const double steps = static_cast<double>(std::max<std::int64_t>(record.window.steps, 1));
  events.scalar("time/preprocess_ms", step, record.times.of(telemetry::Phase::prepare) * 1e3 / steps);
  if (record.cache) events.scalar("cache_hit_rate", step, record.cache->hit_rate());
  if (record.memory) {
    for (const auto& [name, bytes] : counters_of(*record.memory))
      events.scalar(std::string("memory/") + name, step, static_cast<double>(bytes));
  }
  if (record.gpu && record.gpu->utilisation) events.scalar("gpu/utilisation", step, *record.gpu->utilisation);
  events.flush();
}

void Reporter::memory(const StepRecord::Memory& memory, std::int64_t step) const {
  Json values = {{"step", step}};
  for (const auto& [name, bytes] : counters_of(memory)) values[name] = bytes;
  if (memory.gpu_use) values["utilisation"] = *memory.gpu_use;
  record("memory_use", std::move(values));
  text("step " + with_commas(step) + "  " + memory_text(memory) +
       (memory.gpu_use ? ", busy " + percent(*memory.gpu_use) : std::string()));
  if (sinks_.events == nullptr) return;
  for (const auto& [name, bytes] : counters_of(memory))
    sinks_.events->scalar(std::string("memory/") + name, step, static_cast<double>(bytes));
  if (memory.gpu_use) sinks_.events->scalar("gpu/utilisation", step, *memory.gpu_use);
}

void Reporter::text(const std::string& lines) const {
  sinks_.console->end_progress();
  sinks_.console->line(lines);
}

void Reporter::progress(std::int64_t step, std::int64_t total_steps, std::uint64_t epoch, std::optional<double> loss,
                        double seconds_per_step) {
  telemetry::Console::Progress line{.step = step,
                                    .total_steps = total_steps,
                                    .epoch = epoch,
                                    .loss = loss.value_or(std::nan("")),
                                    .rate = rate_,
                                    .rate_unit = names_.rate_unit + "/s",
                                    .data_wait_share = wait_share_};
  if (seconds_per_step > 0) line.eta_seconds = seconds_to_end(step, total_steps, seconds_per_step);
  sinks_.console->progress(line);
}

void Reporter::validation(const ValidationRecord& record) {
  // The validation before the first step is not counted, because it is made only once.
  if (record.step > 0) validation_seconds_ += record.seconds;
  std::vector<std::string> parts = {"validation", "step " + std::to_string(record.step)};
  add_metrics(parts, record.means, record.judged);
  if (!record.gained && record.best.best_step >= 0)
    parts.push_back("(best " + figure(record.best.best) + " at step " + std::to_string(record.best.best_step) + ")");
  sinks_.console->line(telemetry::in_lines(*sinks_.console, parts));
  Json values = {{"step", record.step}};
  if (record.batches > 0) {
    values["seconds"] = record.seconds;
    values["it_per_s"] = per_second(record.batches, record.seconds);
    if (sinks_.events != nullptr) {
      sinks_.events->scalar("time/validation_s", record.step, record.seconds);
      sinks_.events->scalar("time/validation_it_per_s", record.step, per_second(record.batches, record.seconds));
    }
  }
  for (const auto& [name, value] : record.means) {
    values[name] = number_or_text(value);
    if (const int version = record.means.version_of(name).number; version != 1) values["metric_versions"][name] = version;
    if (sinks_.events != nullptr)
      sinks_.events->scalar(name.starts_with("val_") ? name.substr(4) + "/val" : names_.metric_tags + name, record.step, value);
  }
  this->record("validation", std::move(values));
  describe_metrics(record);
}

// Logs a description of the metrics, such as their order and which values are better: once, and again after a change.
void Reporter::describe_metrics(const ValidationRecord& record) {
  if (record.means.empty()) return;
  Json order = Json::array(), quiet = Json::array(), best_is = Json::object();
  for (const auto& [name, value] : record.means) {
    order.push_back(name);
    if (!record.means.shown_on_console(name)) quiet.push_back(name);
    const auto direction = name == record.judged ? record.best.best_is : record.means.best_is_of(name);
    if (const std::string_view word = word_of(direction); !word.empty()) best_is[name] = word;
  }
  Json described = {{"step", record.step},
                    {"judged", record.judged},
                    {"order", std::move(order)},
                    {"quiet", std::move(quiet)},
                    {"best_is", std::move(best_is)}};
  Json lasting = described;
  lasting.erase("step");
  if (lasting == metrics_described_) return;
  metrics_described_ = std::move(lasting);
  this->record("metrics", std::move(described));
}

// Writes a row of history.csv. A metric that first appears in a later epoch becomes an additional column.
void Reporter::history_row(const Meter::EpochRow& row, const metrics::Means& means) {
  const std::string loss = "val_" + names_.loss;
  const std::vector<std::string> first = {"epoch", "train_loss", "val_loss", "seconds", names_.rate_unit + "_per_s"};
  const auto metrics_begin = static_cast<std::ptrdiff_t>(first.size());
  std::vector<std::string> wished = names_.history;
  for (const auto& [name, value] : means)
    if (names_.history.empty() && name != loss && means.shown_on_console(name)) wished.push_back(name);
  std::vector<std::string> columns =
      history_ == nullptr ? columns_of_history(*sinks_.fs, sinks_.history, first) : history_->columns();
  for (const std::string& name : wished)
    if (std::find(columns.begin() + metrics_begin, columns.end(), name) == columns.end()) columns.push_back(name);
  if (history_ == nullptr || columns.size() > history_->columns().size()) {
    const auto kept = history_ == nullptr ? std::optional(sinks_.epochs_kept) : std::nullopt;
    const auto warn = [this](const std::string& text) { warning(text); };
    history_ = std::make_unique<format::CsvWriter>(*sinks_.fs, sinks_.history, std::move(columns), warn, kept);
  }
  const auto cell = [&means](const std::string& name) {
    const auto it = means.find(name);
    return it == means.end() || std::isnan(it->second) ? std::string() : format::csv_number(it->second);
  };
  const std::string train_loss = std::isnan(row.train_loss) ? std::string() : format::csv_number(row.train_loss);
  std::vector<std::string> cells = {train_loss, cell(loss), fixed(row.seconds, 3),
                                    fixed(rate_of(row.samples_here, row.seconds), 1)};
  std::transform(history_->columns().begin() + metrics_begin, history_->columns().end(), std::back_inserter(cells), cell);
  history_->row(static_cast<std::int64_t>(row.epoch), cells);
}

void Reporter::epoch(const Meter::EpochRow& row, std::int64_t step, const metrics::Means& means, bool on_console) {
  const double rate = rate_of(row.samples_here, row.seconds);
  const double steps_per_second = per_second(row.steps_here, row.seconds);
  if (on_console) {
    std::string line = "epoch " + std::to_string(row.epoch) + "  " + human_duration(row.seconds + row.validation_seconds) +
                       "  training " + human_rate(steps_per_second) + " it/s";
    if (row.validation_batches > 0)
      line += "  validation " + human_rate(per_second(row.validation_batches, row.validation_seconds)) + " it/s";
    sinks_.console->line(line);
  }
  if (!sinks_.history.empty()) history_row(row, means);
  if (sinks_.events != nullptr) {
    sinks_.events->scalar("time/epoch_s", step, row.seconds);
    sinks_.events->scalar("time/train_it_per_s", step, steps_per_second);
    if (row.peak_bytes > 0) sinks_.events->scalar("memory/epoch_peak", step, static_cast<double>(row.peak_bytes));
  }
  record("epoch", {{"epoch", row.epoch},
                   {"step", step},
                   {"train_loss", number_or_text(row.train_loss)},
                   {"seconds", row.seconds},
                   {"it_per_s", steps_per_second},
                   {"peak_bytes", row.peak_bytes},
                   {names_.rate_unit + "_per_s", rate}});
}

void Reporter::findings(std::int64_t step, const std::vector<doctor::Finding>& fresh, const std::vector<doctor::Finding>& all,
                        bool changed) const {
  for (const doctor::Finding& finding : fresh) {
    const std::string line = doctor::to_text(finding);
    if (!finding.warned) text("doctor  " + line);
    if (sinks_.events != nullptr) sinks_.events->text("doctor", step, line);
  }
  if (changed) record("findings", {{"step", step}, {"findings", doctor::to_json(all)}});
}

void Reporter::picture(const Picture& picture, std::int64_t step, std::string_view png) {
  if (sinks_.events == nullptr) return;
  const bool has_prefix = picture.name.starts_with("val_");  // a name with this prefix is the tag itself, because some programs
                                                             // use the prefix in their event files
  sinks_.events->image((has_prefix ? "" : "val/") + picture.name, step, picture.height, picture.width, png);
}

}  // namespace millrace
