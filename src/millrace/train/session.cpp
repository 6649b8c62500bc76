#include "millrace/train/session.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/config/schema_of.h"
#include "millrace/device/device.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/format/csv.h"
#include "millrace/train/feed.h"
#include "millrace/train/generator_state.h"
#include "millrace/train/run_files.h"
#include "millrace/train/snapshot_check.h"
#include "millrace/train/split.h"

namespace millrace {
namespace {

data::BadSamples policy_of(BadSamplePolicy policy) {
  switch (policy) {
    case BadSamplePolicy::fail:
      return data::BadSamples::fail;
    case BadSamplePolicy::skip:
      return data::BadSamples::skip;
    case BadSamplePolicy::substitute:
      return data::BadSamples::substitute;
    case BadSamplePolicy::quarantine:
      return data::BadSamples::quarantine;
  }
  return data::BadSamples::fail;
}

std::int64_t steps_of(const RunConfig& config, std::int64_t batches_per_epoch) {
  const std::int64_t per_epoch = (batches_per_epoch + config.optim.accumulate - 1) / config.optim.accumulate;
  const std::int64_t by_epochs = config.train.epochs * per_epoch;
  if (config.train.max_steps == 0) return by_epochs;
  return config.train.epochs == 0 ? config.train.max_steps : std::min(by_epochs, config.train.max_steps);
}

}  // namespace

data::LoaderOptions loader_options(const RunConfig& config, const Switches& switches, const data::Pipeline& pipeline, Split split,
                                   telemetry::Console& console) {
  const bool training = split == Split::train;
  data::LoaderOptions options;
  options.batch_size = pipeline.batch_size.value_or(config.data.batch_size);
  options.shuffle = pipeline.shuffle.value_or(training && config.data.shuffle);
  options.drop_last = pipeline.drop_last.value_or(training && config.data.drop_last);
  options.seed = static_cast<std::uint64_t>(config.train.seed);
  options.readers = config.data.workers.is_auto() ? -1 : static_cast<int>(config.data.workers.value());
  if (!switches.on("loader_threads")) options.readers = 0;
  options.prefetch = static_cast<int>(config.data.prefetch);
  options.bad_samples = policy_of(config.data.bad_samples);
  options.max_bad_fraction = config.data.max_bad_fraction;
  options.accepts_changed = config.data.accept_changed;
  options.max_buffer_bytes = static_cast<std::uint64_t>(config.data.max_buffer_bytes);
  options.warn = [&console](const std::string& text) { console.warning(text); };
  return options;
}

std::filesystem::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::filesystem::path(cache) / "millrace";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::filesystem::path(home) / ".cache" / "millrace";
  return std::filesystem::path("runs") / "cache";
}

std::vector<Problem> run_problems(const config::Resolved& config) {
  const auto run = config::read<RunConfig>(config.values);
  std::vector<Problem> problems = memory_problems(run.memory);
  if (run.train.epochs == 0 && run.train.max_steps == 0)
    problems.push_back({"the run has no end: train.epochs and train.max_steps are both 0", "train", "set one of them"});
  for (Problem& problem : problems) {
    const auto origin = config.origins.find(problem.where);
    if (origin != config.origins.end()) problem.where = origin->second;
  }
  return problems;
}

Session::Session(SessionRequest request)
    : request_(std::move(request)), config_(config::read<RunConfig>(request_.config.values)), switches_(config_.train.off) {
  if (request_.fs == nullptr) request_.fs = &Fs::real();
  if (auto problems = run_problems(request_.config); !problems.empty()) throw ConfigError(std::move(problems));
  device::count_tensor_memory();
}

Session::~Session() = default;

RunOutcome Session::run() {
  choose_device();
  if (!request_.dry_run) open_folder();
  if (resumed_) check_trainer_part(*resumed_);
  if (resumed_ && already_complete()) return finish(std::nullopt, "");
  make_recipe();
  make_loaders();
  if (already_complete()) return finish(std::nullopt, "");
  make_stepper();
  if (request_.dry_run) {
    introduce();
    return {Json::object(), request_.run_place.folder, 0};
  }
  make_trainer();
  restore();
  if (already_complete()) return finish(std::nullopt, "");
  decide_precision();
  decide_layout();
  decide_memory();
  begin_folder();
  introduce();
  show_samples("the model before training");
  try {
    const Ending ending = trainer_->run();
    if (ending != Ending::signal) show_samples("the model after " + with_commas(trainer_->step()) + " steps");
    return finish(ending, "");
  } catch (const std::exception& error) {  // LibTorch's too: the last whole step is worth keeping whatever went wrong
    trainer_->save_after_error();
    finish(std::nullopt, error.what());
    throw;
  }
}

void Session::make_step() {
  make_recipe();
  make_loaders();
  make_stepper();
  decide_precision();
  decide_layout();
}

void Session::origin_choice(const std::string& key, std::string value, std::string reason) {
  const auto it = request_.config.origins.find(key);
  plan_.set({key, std::move(value), it == request_.config.origins.end() ? "default" : it->second, std::move(reason)});
}

void Session::choose_device() {
  const device::Choice choice = device::choose(config_.device.name);
  context_.device = choice.device;
  origin_choice("device.name", choice.device.str(), choice.reason);
  if (!choice.warning.empty()) request_.console->warning(choice.warning);
  if (context_.device.is_cpu() && switches_.on("memory_recovery")) memory_limit_.emplace(config_.memory.limit);
  const auto& cpu = device::cpu_info();
  const bool automatic = config_.device.threads.is_auto();
  const auto threads = static_cast<int>(config_.device.threads.value_or(cpu.physical_cores));
  device::set_threads(threads);
  origin_choice("device.threads", std::to_string(threads),
                automatic ? "the physical cores this process may use, " + cpu.capability + " code path" : "");
}

void Session::make_recipe() {
  context_.switches = &switches_;
  if (folder_ != nullptr) {
    if (!folder_->is_replaced()) context_.run_folder = folder_->path();
    context_.new_files = folder_->staging();
  }
  context_.config_folder = request_.config_folder;
  context_.cache_folder = cache_folder();
  context_.seed = static_cast<std::uint64_t>(config_.train.seed);
  context_.notice = [this](const std::string& text) { notices_.push_back(text); };
  torch::manual_seed(context_.seed);
  recipe_ = request_.make(request_.config.values, context_);
  recipe_->before_training();
  recipe_->model().to(context_.device);
}

void Session::choose_cache(data::Pipeline& training, data::Pipeline& held_out) {
  const config::Auto<CacheMode>& mode = config_.data.cache;
  data::CacheWish wish = data::CacheWish::automatic;
  if (!mode.is_auto()) wish = mode.value() == CacheMode::off ? data::CacheWish::off : data::CacheWish::ram;
  std::vector<data::Dataset> datasets = training.datasets;
  datasets.insert(datasets.end(), held_out.datasets.begin(), held_out.datasets.end());
  data::CacheChoice choice{nullptr, "off: --off=sample_cache"};
  if (switches_.on("sample_cache")) {
    const auto budget = static_cast<std::uint64_t>(config_.data.cache_bytes.value_or(0));
    choice = data::choose_cache(datasets, wish, device::available_memory_bytes(), budget);
  }
  if (choice.cache && !mode.is_auto() && mode.value() == CacheMode::device)
    choice.reason += "; host memory also serves \"device\"";
  cache_ = choice.cache;
  data::use_cache(training, cache_);
  data::use_cache(held_out, cache_);
  origin_choice("data.cache", cache_ ? "ram" : "off", choice.reason);
}

void Session::make_loaders() {
  data::Pipeline pipeline = recipe_->data(Split::train);
  if (pipeline.datasets.empty())
    throw ConfigError({"recipe " + request_.recipe + " has no training data", "data", "name its input; see --help"});
  trial_pipeline_ = pipeline;
  data::Pipeline held_out = recipe_->data(Split::validation);
  choose_cache(pipeline, held_out);
  auto options = loader_options(config_, switches_, pipeline, Split::train, *request_.console);
  options.note = [this](const std::string& text) {
    if (folder_ != nullptr && !folder_->has_begun()) return notices_.push_back(text);
    request_.console->notice(text);
    if (folder_ != nullptr && folder_->has_begun()) log_->write("loader", {{"choice", text}});
  };
  loader_ = std::make_unique<data::Loader>(std::move(pipeline), options);
  origin_choice("data.workers", std::to_string(loader_->readers()), loader_->readers_reason());
  if (!held_out.datasets.empty()) {
    options = loader_options(config_, switches_, held_out, Split::validation, *request_.console);
    options.note = [this](const std::string& text) {
      if (folder_ != nullptr && !folder_->has_begun()) notices_.push_back(text);
    };
    validation_ = std::make_unique<data::Loader>(std::move(held_out), options);
  }
  total_steps_ = steps_of(config_, loader_->batches_per_epoch());
}

// What a trial or a fallback decided before the snapshot; null when nothing did.
const Json* Session::kept_choice(const std::string& option) const {
  if (!resumed_) return nullptr;
  const auto part = resumed_->parts.find("trainer");
  if (part == resumed_->parts.end() || !part->second.json.contains("choices")) return nullptr;
  const Json& choices = part->second.json["choices"];
  const auto it = choices.find(option);
  return it != choices.end() && it->is_string() ? &*it : nullptr;
}

// As far as it is known before a trial. A resumed run keeps what its snapshot says, since another format would change its bits.
std::optional<at::ScalarType> Session::known_format() const {
  if (!switches_.on("autocast") || kept_choice("precision.fallback") != nullptr) return std::nullopt;
  if (!config_.precision.dtype.is_auto()) {
    constexpr std::array<const char*, 3> words = {"fp32", "bf16", "fp16"};
    return precision::format_of(words[static_cast<std::size_t>(config_.precision.dtype.value())]);
  }
  const Json* kept = kept_choice("precision.dtype");
  return kept == nullptr ? std::nullopt : precision::format_of(kept->get<std::string>());
}

void Session::make_stepper() {
  StepperOptions options{
      .device = context_.device, .seed = context_.seed, .autocast = known_format(), .total_steps = total_steps_};
  options.recovers = switches_.on("memory_recovery");
  options.offload_bytes = offload_bytes(config_.memory, context_.device, switches_);
  options.global_batch = config_.data.batch_size * config_.optim.accumulate;
  stepper_ = std::make_unique<Stepper>(*recipe_, switches_, timeline_, options);
  const optim::OptimConfig& given = config_.optim;
  if (given.lr_scaling != optim::RateScaling::none) {
    origin_choice("optim.learning_rate", significant(optim::settled(given, total_steps_, options.global_batch).learning_rate, 6),
                  significant(given.learning_rate, 6) + (given.lr_scaling == optim::RateScaling::sqrt ? " x sqrt(" : " x (") +
                      with_commas(options.global_batch) + " / " + with_commas(given.lr_scaling_batch) + ")");
  }
  const std::string key = "optim.warmup_frac";
  const auto origin = request_.config.origins.find(key);
  const bool asked = origin != request_.config.origins.end() && !origin->second.starts_with("recipe");
  if (given.warmup_frac > 0 && asked && !optim::needs_length(given.schedule))
    origin_choice(key, significant(given.warmup_frac, 3), "without effect: the schedule has no end; see optim.warmup_steps");
  if (!config_.precision.dtype.is_auto()) {
    const std::string off = switches_.on("autocast") ? "" : "--off=autocast";
    origin_choice("precision.dtype", precision::name_of(options.autocast),
                  off.empty() ? precision::remark_on(context_.device, options.autocast) : off);
  }
  if (const Json* fallback = kept_choice("precision.fallback"))
    plan_.set({"precision.fallback", fallback->get<std::string>(), "snapshot", "as the run went on", /*by_trial=*/true});
}

std::optional<Batch> Session::trial_batch() const {
  auto options = loader_options(config_, switches_, *trial_pipeline_, Split::train, *request_.console);
  options.readers = 0;
  data::Loader trial_loader(*trial_pipeline_, options);
  auto host = trial_loader.next();
  if (!host) return std::nullopt;
  Batch batch = to_batch(std::move(*host), context_.device);
  const std::int64_t parts = parts_of(batch, config_.memory.split);
  return recipe_->prepare(take_part(batch, 0, parts));
}

std::optional<std::string> Session::try_on_batch(const std::function<void(const Batch&)>& trial) const {
  const KeepGenerator no_trace;
  const std::optional<Batch> batch = trial_batch();
  if (!batch) return std::nullopt;
  for (std::int64_t parts = 1;; parts *= 2) {
    try {
      trial(part_of(*batch, 0, parts));
      return parts == 1 ? "" : "; tried on 1/" + std::to_string(parts) + " of a batch, which is what fits into memory";
    } catch (const std::exception& error) {
      if (!device::is_out_of_memory(error) || parts_of(*batch, 2 * parts) < 2 * parts) throw;
    }
    device::release_cached_memory(context_.device);
  }
}

// A trial decides once per run.
void Session::decide_precision() {
  if (!config_.precision.dtype.is_auto()) return;
  if (const Json* kept = kept_choice("precision.dtype")) {
    plan_.set({"precision.dtype", kept->get<std::string>(), "snapshot", "as the run began", /*by_trial=*/true});
    return;
  }
  precision::Decision decision{.autocast = std::nullopt, .reason = "--off=autocast"};
  if (switches_.on("autocast")) decision = try_precisions();
  stepper_->set_autocast(decision.autocast);
  plan_.set({"precision.dtype", precision::name_of(decision.autocast), "auto", decision.reason, /*by_trial=*/true});
}

precision::Decision Session::try_precisions() {
  precision::Decision decision{.autocast = std::nullopt, .reason = "fp32: no batch to try it on"};
  const auto how = try_on_batch([&](const Batch& batch) {
    decision = precision::choose(context_.device,
                                 [&](std::optional<at::ScalarType> dtype) { return stepper_->try_precision(batch, dtype); });
  });
  stepper_->end_trials();
  decision.reason += how.value_or("");
  return decision;
}

// Unlike precision it changes no bits, so a resumed run may choose anew.
void Session::decide_memory() {
  if (!switches_.on("recompute")) {
    memory_ = {.recompute = memory::Recompute(), .value = "none", .reason = "--off=recompute"};
  } else if (config_.memory.budget.empty()) {
    memory_ = named_memory(config_.memory);
  } else {
    const KeepGenerator no_trace;
    const std::optional<Batch> batch = trial_batch();
    const bool with_gradients = config_.optim.accumulate > 1 || config_.memory.split > 1;
    memory_ = batch ? try_memory(*stepper_, *batch, config_.memory, with_gradients) : named_memory(config_.memory);
  }
  stepper_->set_recompute(memory_.recompute);
  origin_choice(config_.memory.budget.empty() ? "memory.recompute" : "memory.budget", memory_.value, memory_.reason);
}

void Session::make_trainer() {
  facts_ = recipe_->describe();
  TrainerParts parts;
  parts.config = &config_;
  parts.config_values = request_.config.values;
  parts.recipe = recipe_.get();
  parts.stepper = stepper_.get();
  parts.timeline = &timeline_;
  parts.loader = loader_.get();
  parts.validation = validation_.get();
  parts.cache = cache_.get();
  parts.console = request_.console;
  parts.log = log_.get();
  parts.events = events_.get();
  parts.fs = request_.fs;
  parts.folder = folder_.get();
  parts.began_from = resumed_ ? resumed_from_ : std::filesystem::path();
  parts.saves_in_background = switches_.on("async_snapshot");
  parts.plan = &plan_;
  parts.device = context_.device;
  parts.total_steps = total_steps_;
  parts.rate_unit = facts_.value("rate_unit", "samples");
  parts.metric_tags = facts_.value("metric_tags", "");
  parts.units_per_sample = facts_.value("units_per_sample", 1.0);
  parts.recovers = switches_.on("memory_recovery");
  const auto& wish = config_.memory.recompute;
  parts.may_recompute = switches_.on("recompute") && std::ranges::find(wish, "auto") != wish.end();
  if (folder_ != nullptr) {
    const std::int64_t epochs_kept = resumed_ ? resumed_->parts["trainer"].json.value("epoch", std::int64_t{0}) : 0;
    const auto extra = facts_.value("history", std::vector<std::string>{});
    const std::string loss = "val_" + stepper_->objective_name(0);
    std::vector<std::string> columns = {"epoch", "train_loss", "val_loss", "seconds", parts.rate_unit + "_per_s"};
    columns.insert(columns.end(), extra.begin(), extra.end());
    // Opened at the first row: rows of later epochs go then, and not before the first step can be taken.
    const auto open = [this, columns = std::move(columns), epochs_kept] {
      return std::make_shared<format::CsvWriter>(
          *request_.fs, folder_->path() / run_files::kHistory, columns,
          [this](const std::string& text) { request_.console->warning(text); }, epochs_kept);
    };
    parts.history = [open, table = std::shared_ptr<format::CsvWriter>(), extra, loss](std::uint64_t epoch, double train,
                                                                                      const std::map<std::string, double>& means,
                                                                                      double seconds, double rate) mutable {
      if (table == nullptr) table = open();
      const auto cell = [&means](const std::string& name) {
        const auto it = means.find(name);
        return it == means.end() || std::isnan(it->second) ? std::string() : format::csv_number(it->second);
      };
      std::vector<std::string> cells = {format::csv_number(train), cell(loss), fixed(seconds, 3), fixed(rate, 1)};
      for (const std::string& name : extra) cells.push_back(cell(name));
      table->row(static_cast<std::int64_t>(epoch), cells);
    };
  }
  trainer_ = std::make_unique<Trainer>(std::move(parts));
}

void Session::restore() {
  if (resumed_) trainer_->restore(*resumed_);
}

}  // namespace millrace
