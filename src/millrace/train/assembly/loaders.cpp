#include "millrace/train/assembly/loaders.h"

#include <algorithm>
#include <iterator>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/data/loader/twins.h"
#include "millrace/device/device.h"

namespace millrace {
namespace {

// The number of batches in a full step. All batches of a step are from one epoch, so a short epoch may have fewer than
// optim.accumulate batches.
std::int64_t batches_per_step(const optim::OptimConfig& optim, const data::Loader& training) {
  return std::clamp<std::int64_t>(training.batches_per_epoch(), 1, optim.accumulate);
}

}  // namespace

Loaders::Loaders(RunSetup& setup, Recipe& recipe, std::function<void(const std::string&)> note) : setup_(setup) {
  data::Pipeline pipeline = recipe.data(Split::train);
  if (pipeline.datasets.empty())
    throw ConfigError({"recipe " + setup_.request().entry->name + " has no training data", "Recipe::data(Split::train)",
                       "name its input; see --help"});
  pipeline_ = pipeline;
  data::Pipeline held_out = recipe.data(Split::validation);
  if (!held_out.datasets.empty()) held_out_ = held_out;
  if (!setup_.context().places.plan_only)
    std::ranges::move(data::notices_of_twins(pipeline.datasets, held_out.datasets), std::back_inserter(setup_.notices()));
  choose_cache(pipeline, held_out);
  auto options = setup_.loader_options(pipeline, Split::train);
  const auto report = note ? std::move(note) : [console = &setup_.console()](const std::string& text) { console->notice(text); };
  options.note = report;
  const SlotMemory memory =
      slot_memory(setup_.config().data, setup_.context().device, setup_.agreement().ranks().local_world_size,
                  [console = &setup_.console()](const std::string& text) { console->warning(text); });
  options.arena = memory.arena;
  training_ = std::make_unique<data::Loader>(std::move(pipeline), options);
  setup_.choose("data.workers", std::to_string(training_->readers()), training_->readers_reason());
  const optim::OptimConfig& optim = setup_.config().optim;
  if (const std::int64_t batches = batches_per_step(optim, *training_); batches < optim.accumulate)
    setup_.choose("optim.accumulate", std::to_string(batches),
                  "not " + with_commas(optim.accumulate) + ", because an epoch has only " + with_commas(batches) +
                      (batches == 1 ? " batch" : " batches") + ", and all batches of a step are from one epoch");
  const TrainConfig& train = setup_.config().train;
  if (const std::int64_t by_epochs = train.epochs * steps_per_epoch(); train.epochs > 0 && by_epochs < train.max_steps)
    setup_.choose("train.max_steps", std::to_string(train.max_steps),
                  "not reached: train.epochs=" + std::to_string(train.epochs) + " ends the run at step " +
                      with_commas(by_epochs) + ". Set train.epochs=0 if train.max_steps is to decide");
  if (!held_out.datasets.empty()) {
    options = setup_.loader_options(held_out, Split::validation);
    options.note = [](const std::string&) {};
    options.arena = memory.arena;
    validation_ = std::make_unique<data::Loader>(std::move(held_out), options);
  }
  if (!device::backend_of(setup_.context().device).nature(0).in_host_memory) plan_slots(memory);
}

const data::Pipeline* Loaders::pipeline(Split split) const noexcept {
  const std::optional<data::Pipeline>& of_split = split == Split::train ? pipeline_ : held_out_;
  return of_split ? &*of_split : nullptr;
}

data::Cache* Loaders::cache() const noexcept { return disk_cache_ ? static_cast<data::Cache*>(disk_cache_.get()) : cache_.get(); }

std::uint64_t Loaders::bytes_in_memory() const noexcept { return cache_ == nullptr ? 0 : cache_->counters().bytes; }

std::uint64_t Loaders::buffer_bytes() const {
  return training_->buffer_bytes() + (validation_ == nullptr ? 0 : validation_->buffer_bytes());
}

void Loaders::choose_disk_cache(data::Pipeline& training, data::Pipeline& held_out) {
  std::vector<data::Dataset> datasets = training.datasets;
  datasets.insert(datasets.end(), held_out.datasets.begin(), held_out.datasets.end());
  const std::filesystem::path& folder = setup_.context().places.cache_folder;
  Chosen<std::shared_ptr<data::DiskCache>> choice = data::choose_disk_cache(
      datasets, {.folder = folder.empty() ? folder : folder / "parts",
                 .budget_bytes = static_cast<std::uint64_t>(setup_.config().data.cache_bytes.value_or(0)),
                 .writes = setup_.context().places.writes,
                 .note = [console = &setup_.console()](const std::string& text) { console->notice(text); }});
  disk_cache_ = std::move(choice.value);
  data::use_cache(training, disk_cache_);
  data::use_cache(held_out, disk_cache_);
  setup_.choose("data.cache", disk_cache_ ? "disk" : "off", choice.reason);
}

void Loaders::choose_cache(data::Pipeline& training, data::Pipeline& held_out) {
  const config::Auto<DataConfig::CacheMode>& mode = setup_.config().data.cache;
  if (!mode.is_auto() && mode.value() == DataConfig::CacheMode::disk && setup_.switches().on("sample_cache"))
    return choose_disk_cache(training, held_out);
  std::optional<data::CacheWish> wish;
  if (!mode.is_auto()) wish = mode.value() == DataConfig::CacheMode::off ? data::CacheWish::off : data::CacheWish::ram;
  std::vector<data::Dataset> datasets = training.datasets;
  datasets.insert(datasets.end(), held_out.datasets.begin(), held_out.datasets.end());
  Chosen<std::shared_ptr<data::SampleCache>> choice{nullptr, "off: --off=sample_cache"};
  if (setup_.switches().on("sample_cache")) {
    const auto budget = static_cast<std::uint64_t>(setup_.config().data.cache_bytes.value_or(0));
    choice = data::choose_cache(
        datasets, wish,
        device::available_memory_bytes() / static_cast<std::uint64_t>(setup_.agreement().ranks().local_world_size), budget);
  }
  if (choice.value && !mode.is_auto() && mode.value() == DataConfig::CacheMode::device)
    choice.reason += "; data.cache=device uses host memory too";
  cache_ = choice.value;
  data::use_cache(training, cache_);
  data::use_cache(held_out, cache_);
  setup_.choose("data.cache", cache_ ? "ram" : "off", choice.reason);
}

void Loaders::plan_slots(const SlotMemory& memory) {
  const std::uint64_t slots = buffer_bytes();
  std::string reason = memory.reason;
  if (memory.most_bytes > 0 && memory.most_bytes < slots)
    reason += ", " + human_bytes(static_cast<double>(memory.most_bytes)) + " of " + human_bytes(static_cast<double>(slots));
  setup_.choose("data.pin_memory", memory.arena == nullptr ? "off" : "on", std::move(reason));
}

std::int64_t Loaders::steps_per_epoch() const {
  const std::int64_t accumulate = setup_.config().optim.accumulate;
  return (training_->batches_per_epoch() + accumulate - 1) / accumulate;
}

std::int64_t Loaders::total_steps() const { return total_steps(setup_.config().train.epochs, setup_.config().train.max_steps); }

std::int64_t Loaders::total_steps(std::int64_t epochs, std::int64_t max_steps) const {
  const std::int64_t by_epochs = epochs * steps_per_epoch();
  if (max_steps == 0) return by_epochs;
  return epochs == 0 ? max_steps : std::min(by_epochs, max_steps);
}

std::int64_t Loaders::global_batch() const {
  return training_->rows_per_batch() * batches_per_step(setup_.config().optim, *training_) *
         setup_.agreement().ranks().world_size;
}

}  // namespace millrace
