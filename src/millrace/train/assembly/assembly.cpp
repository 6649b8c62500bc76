#include "millrace/train/assembly/assembly.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/config/schema_of.h"
#include "millrace/data/loader/twins.h"
#include "millrace/device/attention_guard.h"
#include "millrace/device/convolution_guard.h"
#include "millrace/device/device.h"
#include "millrace/device/errors.h"
#include "millrace/device/heap.h"
#include "millrace/device/operation_census.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/kernels/kernels.h"
#include "millrace/precision/tf32.h"
#include "millrace/system/instructions.h"
#include "millrace/system/malloc_pages.h"
#include "millrace/system/openmp.h"
#include "millrace/train/assembly/model_state.h"
#include "millrace/train/recipe/recipe_guard.h"
#include "millrace/train/step/feed.h"
#include "millrace/train/step/rank_check.h"

namespace millrace {
namespace {

// Sums of gradients are what shards and compression are about.
void check_averaging(const DistributedConfig& config) {
  if (config.average_every == 1 || !(config.shard_optimizer || config.compress)) return;
  throw ConfigError(
      {"ranks that step by their own gradients have none to compress and need the whole optimiser each",
       "distributed.average_every with distributed." + std::string(config.shard_optimizer ? "shard_optimizer" : "compress"),
       "leave one of the two at its default"});
}

}  // namespace

data::LoaderOptions loader_options(const RunConfig& config, const Switches& switches, const data::Pipeline& pipeline, Split split,
                                   telemetry::Console& console) {
  const bool training = split == Split::train;
  data::LoaderOptions options;
  options.batch_size = pipeline.batch_size.value_or(config.data.samples_per_batch());
  options.shuffle = pipeline.shuffle.value_or(training && config.data.shuffle);
  options.drop_last = pipeline.drop_last.value_or(training && config.data.drop_last);
  options.seed = static_cast<std::uint64_t>(config.train.seed);
  options.readers = config.data.workers.is_auto() ? -1 : static_cast<int>(config.data.workers.value());
  if (!switches.on("loader_threads")) options.readers = 0;
  options.adapts = switches.on("loader_adaptation");
  options.looks_ahead = switches.on("look_ahead");
  options.prefetch = static_cast<int>(config.data.prefetch);
  options.bad_samples = config.data.bad_samples;
  options.max_bad_fraction = config.data.max_bad_fraction;
  options.accepts_changed = config.data.accept_changed;
  options.max_buffer_bytes = static_cast<std::uint64_t>(config.data.max_buffer_bytes);
  options.called = training ? "the training data" : "the validation data";
  options.warn = [&console](const std::string& text) { console.warning(text); };
  return options;
}

std::vector<Problem> problems_of(const RunConfig& config) {
  std::vector<Problem> problems = memory_problems(config.memory);
  if (config.train.epochs == 0 && config.train.max_steps == 0)
    problems.push_back({"the run has no end: train.epochs and train.max_steps are both 0", "train", "set one of them"});
  return problems;
}

Assembly::Assembly(AssemblyRequest request)
    : request_(std::move(request)), config_(config::read<RunConfig>(request_.config.values)), switches_(config_.train.off) {
  if (auto problems = problems_of(config_); !problems.empty()) throw ConfigError(std::move(problems));
  if (!agreement().alone()) {
    timed_ = std::make_unique<TimedAgreement>(*request_.agreement, timeline_);
    request_.agreement = timed_.get();
  }
  device::count_tensor_memory();
  bare_.bytes = device::private_resident_bytes();
  bare_.heap = device::heap_bytes();
}

Assembly::~Assembly() = default;

Agreement& Assembly::agreement() const noexcept {
  return request_.agreement == nullptr ? Agreement::of_one() : *request_.agreement;
}

void Assembly::choose(const std::string& key, std::string value, std::string reason) {
  const auto it = request_.config.origins.find(key);
  plan_.set({key, std::move(value), it == request_.config.origins.end() ? "default" : it->second, std::move(reason)});
}

data::LoaderOptions Assembly::loader_options(const data::Pipeline& pipeline, Split split) const {
  data::LoaderOptions options = millrace::loader_options(config_, switches_, pipeline, split, *request_.console);
  options.rank = agreement().ranks().rank;
  options.world_size = agreement().ranks().world_size;
  options.cores = cores_.loader;
  return options;
}

BatchWay Assembly::way() {
  return {.recipe = *recipe_,
          .timeline = &timeline_,
          .device = context_.device,
          .micro_batches = config_.memory.micro_batches,
          .seed = context_.seed};
}

void Assembly::choose_device() {
  const device::Choice choice = device::choose(config_.device.name, agreement().ranks().local_rank);
  context_.device = choice.device;
  choose("device.name", choice.device.str(), choice.reason);
  if (!choice.warning.empty()) request_.console->warning(choice.warning);
  // What names no GPU is this rank's, too.
  if (!choice.device.is_cpu()) c10::impl::VirtualGuardImpl(choice.device.type()).setDevice(choice.device);
  choose_gpu_settings();
  // Trials of number formats have fp32 itself to compare with.
  precision::use_tf32(precision::choose_tf32(config_.device.tf32_wish(), choice.device, std::nullopt), choice.device);
  if (context_.device.is_cpu() && switches_.on("memory_recovery")) memory_limit_.emplace(config_.memory.limit);
  if (!context_.device.is_cpu() && config_.memory.limit != "auto")
    choose("memory.limit", config_.memory.limit, "without effect: it is of a CPU's tensors; a GPU is used until it has no more");
  const auto& cpu = device::cpu_info();
  const bool automatic = config_.device.threads.is_auto();
  const CoreShare share = core_share(agreement(), cpu.physical_cores);
  if (share.sharers > 1) cores_.loader = share.cores;
  const auto threads = static_cast<int>(config_.device.threads.value_or(share.cores));
  device::set_threads(threads);
  shared_cores_.emplace();
  if (const std::string asked = automatic ? other_threads_asked(threads) : ""; !asked.empty())
    notices_.push_back(asked + " does not decide here: device.threads is auto, and takes " + std::to_string(threads) +
                       ", the cores that this process may use; set --device.threads to have another number");
  std::string code = "kernels " + std::string(kernels::instruction_set()) + ", ATen " + cpu.capability;
  if (const std::string asked = asked_instructions(); !asked.empty()) code += ", as " + asked + " says";
  choose("device.threads", std::to_string(threads),
         (automatic ? "the physical cores this process may use" +
                          (share.sharers > 1 ? ", shared by " + std::to_string(share.sharers) + " ranks" : "") + "; "
                    : "") +
             code + "; " + openmp_waits());
  const MallocPages pages = malloc_pages();
  plan_.set({"device.pages", pages.size, "auto", pages.reason});
  choose_guards();
  choose_transport();
}

void Assembly::choose_transport() {
  if (agreement().alone()) return;
  const config::Auto<Carrier>& wish = config_.distributed.transport;
  const std::string word = wish.is_auto() ? "auto" : wish.value() == Carrier::nccl ? "nccl" : "gloo";
  Chosen<std::string> transport = agreement().use_device(context_.device, word);
  if (!transport.value.empty()) choose("distributed.transport", std::move(transport.value), std::move(transport.reason));
}

void Assembly::choose_guards() {
  std::vector<const device::Fault*> faults = device::guard_convolutions();
  if (const device::Fault* fault = device::guard_attention()) faults.push_back(fault);
  std::string names;
  for (const device::Fault* fault : faults) names += (names.empty() ? "" : ", ") + std::string(fault->name);
  if (!names.empty() && context_.device.is_cpu())
    plan_.set({"device.guards", names, "auto", "known faults of the libraries below, which are gone around"});
}

void Assembly::make_recipe(const RecipePlaces& places) {
  context_.ranks = agreement().ranks();
  context_.config = &config_;
  context_.switches = &switches_;
  context_.places = places;
  context_.seed = static_cast<std::uint64_t>(config_.train.seed);
  context_.notice = [this](const std::string& text) { tell_ ? tell_(text) : notices_.push_back(text); };
  torch::manual_seed(context_.seed);
  agreement().in_turn([&] {
    recipe_ = make_guarded(request_.recipe, request_.make, request_.config.values, context_);
    if (weights_) recipe_->load_state(weights_->recipe);
    recipe_->before_training();
  });
  if (weights_) {
    if (const std::string told = load_model_weights(recipe_->model(), *weights_); !told.empty()) context_.notice(told);
  }
  recipe_->model().to(context_.device);
  weights_.reset();
}

void Assembly::begin_with(Weights weights) {
  choose("train.weights", weights.path.string(), weights.which + "; optimiser and schedule begin anew");
  weights_ = std::make_unique<Weights>(std::move(weights));
}

data::Cache* Assembly::cache() const noexcept {
  return input_.disk_cache ? static_cast<data::Cache*>(input_.disk_cache.get()) : input_.cache.get();
}

void Assembly::choose_disk_cache(data::Pipeline& training, data::Pipeline& held_out) {
  std::vector<data::Dataset> datasets = training.datasets;
  datasets.insert(datasets.end(), held_out.datasets.begin(), held_out.datasets.end());
  const std::filesystem::path& folder = context_.places.cache_folder;
  Chosen<std::shared_ptr<data::DiskCache>> choice = data::choose_disk_cache(
      datasets, {.folder = folder.empty() ? folder : folder / "parts",
                 .budget_bytes = static_cast<std::uint64_t>(config_.data.cache_bytes.value_or(0)),
                 .writes = context_.places.writes,
                 .note = [console = request_.console](const std::string& text) { console->notice(text); }});
  input_.disk_cache = std::move(choice.value);
  data::use_cache(training, input_.disk_cache);
  data::use_cache(held_out, input_.disk_cache);
  choose("data.cache", input_.disk_cache ? "disk" : "off", choice.reason);
}

void Assembly::choose_cache(data::Pipeline& training, data::Pipeline& held_out) {
  const config::Auto<CacheMode>& mode = config_.data.cache;
  if (!mode.is_auto() && mode.value() == CacheMode::disk && switches_.on("sample_cache"))
    return choose_disk_cache(training, held_out);
  std::optional<data::CacheWish> wish;
  if (!mode.is_auto()) wish = mode.value() == CacheMode::off ? data::CacheWish::off : data::CacheWish::ram;
  std::vector<data::Dataset> datasets = training.datasets;
  datasets.insert(datasets.end(), held_out.datasets.begin(), held_out.datasets.end());
  Chosen<std::shared_ptr<data::SampleCache>> choice{nullptr, "off: --off=sample_cache"};
  if (switches_.on("sample_cache")) {
    const auto budget = static_cast<std::uint64_t>(config_.data.cache_bytes.value_or(0));
    choice = data::choose_cache(
        datasets, wish, device::available_memory_bytes() / static_cast<std::uint64_t>(agreement().ranks().local_world_size),
        budget);
  }
  if (choice.value && !mode.is_auto() && mode.value() == CacheMode::device)
    choice.reason += "; host memory also serves \"device\"";
  input_.cache = choice.value;
  data::use_cache(training, input_.cache);
  data::use_cache(held_out, input_.cache);
  choose("data.cache", input_.cache ? "ram" : "off", choice.reason);
}

void Assembly::make_loaders(std::function<void(const std::string&)> note) {
  data::Pipeline pipeline = recipe_->data(Split::train);
  if (pipeline.datasets.empty())
    throw ConfigError(
        {"recipe " + request_.recipe + " has no training data", "Recipe::data(Split::train)", "name its input; see --help"});
  input_.pipeline = pipeline;
  data::Pipeline held_out = recipe_->data(Split::validation);
  if (!held_out.datasets.empty()) input_.held_out = held_out;
  if (!context_.places.plan_only)
    std::ranges::move(data::told_of_twins(pipeline.datasets, held_out.datasets), std::back_inserter(notices_));
  choose_cache(pipeline, held_out);
  auto options = loader_options(pipeline, Split::train);
  const auto tell = note ? std::move(note) : [this](const std::string& text) { request_.console->notice(text); };
  options.note = tell;
  const SlotMemory memory = slot_memory(config_.data, context_.device, agreement().ranks().local_world_size,
                                        [this](const std::string& text) { request_.console->warning(text); });
  options.arena = memory.arena;
  input_.loader = std::make_unique<data::Loader>(std::move(pipeline), options);
  choose("data.workers", std::to_string(input_.loader->readers()), input_.loader->readers_reason());
  if (!held_out.datasets.empty()) {
    options = loader_options(held_out, Split::validation);
    options.note = [](const std::string&) {};
    options.arena = memory.arena;
    input_.validation = std::make_unique<data::Loader>(std::move(held_out), options);
  }
  if (!device::backend_of(context_.device).nature(0).in_host_memory) plan_slots(memory);
}

void Assembly::plan_slots(const SlotMemory& memory) {
  const std::uint64_t slots = input_.loader->buffer_bytes() + (validation() == nullptr ? 0 : validation()->buffer_bytes());
  std::string reason = memory.reason;
  if (memory.most_bytes > 0 && memory.most_bytes < slots)
    reason += ", " + human_bytes(static_cast<double>(memory.most_bytes)) + " of " + human_bytes(static_cast<double>(slots));
  choose("data.pin_memory", memory.arena == nullptr ? "off" : "on", std::move(reason));
}

std::int64_t Assembly::total_steps() const { return total_steps(config_.train.epochs, config_.train.max_steps); }

std::int64_t Assembly::total_steps(std::int64_t epochs, std::int64_t max_steps) const {
  if (input_.loader == nullptr) return 0;
  const std::int64_t by_epochs = epochs * steps_per_epoch();
  if (max_steps == 0) return by_epochs;
  return epochs == 0 ? max_steps : std::min(by_epochs, max_steps);
}

std::int64_t Assembly::steps_per_epoch() const {
  return (input_.loader->batches_per_epoch() + config_.optim.accumulate - 1) / config_.optim.accumulate;
}

std::int64_t Assembly::global_batch() const {
  return input_.loader->rows_per_batch() * config_.optim.accumulate * agreement().ranks().world_size;
}

const Json* Assembly::kept(const std::string& option) const {
  const auto it = kept_.find(option);
  return it != kept_.end() && it->is_string() ? &*it : nullptr;
}

// As far as it is known before a trial. A resumed run keeps what its snapshot says, since another format would change its bits.
std::optional<at::ScalarType> Assembly::known_format() const {
  if (!switches_.on("autocast") || kept("precision.fallback") != nullptr) return std::nullopt;
  if (!config_.precision.dtype.is_auto()) {
    constexpr std::array<const char*, 3> words = {"fp32", "bf16", "fp16"};
    return precision::format_of(words[static_cast<std::size_t>(config_.precision.dtype.value())]);
  }
  const Json* format = kept("precision.dtype");
  return format == nullptr ? std::nullopt : precision::format_of(format->get<std::string>());
}

void Assembly::make_stepper(Json kept_choices) {
  check_averaging(config_.distributed);
  kept_ = std::move(kept_choices);
  StepperOptions options{
      .device = context_.device,
      .seed = context_.seed,
      .autocast = known_format(),
      .total_steps = total_steps(),
      .steps_per_epoch = steps_per_epoch(),
      .global_batch = global_batch(),
      .agreement = request_.agreement,
      .average_every = config_.distributed.average_every,
      .shards_optimizer = config_.distributed.shard_optimizer,
      .gradients = {.bucket_bytes = config_.distributed.bucket_bytes, .compress = config_.distributed.compress}};
  options.offload_bytes = offload_bytes(config_.memory, context_.device, switches_);
  stepper_ = std::make_unique<Stepper>(*recipe_, switches_, timeline_, options);
  plan_rates();
  if (!config_.precision.dtype.is_auto()) {
    const std::string off = switches_.on("autocast") ? "" : "--off=autocast";
    choose("precision.dtype", precision::name_of(options.autocast),
           off.empty() ? precision::remark_on(context_.device, options.autocast) : off);
  }
  if (const Json* fallback = kept("precision.fallback"))
    plan_.set({"precision.fallback", fallback->get<std::string>(), "snapshot", "as the run went on", /*by_trial=*/true});
}

// By the objectives themselves: a recipe may give one of them a rate of its own.
void Assembly::plan_rates() {
  const optim::OptimConfig& given = config_.optim;
  for (std::size_t i = 0; i < stepper_->objectives(); ++i) {
    const optim::OptimConfig& used = stepper_->objective(i).optim;
    std::string reason;
    if (used.lr_scaling != optim::RateScaling::none) {
      const bool root = used.lr_scaling == optim::RateScaling::sqrt;
      const double ratio = static_cast<double>(global_batch()) / static_cast<double>(used.lr_scaling_batch);
      reason = significant(used.learning_rate / (root ? std::sqrt(ratio) : ratio), 6) + (root ? " x sqrt(" : " x (") +
               with_commas(global_batch()) + " / " + with_commas(used.lr_scaling_batch) + ")";
    } else if (stepper_->objectives() > 1) {
      reason = "objective " + stepper_->objective_name(i);
    } else if (used.learning_rate != given.learning_rate) {
      reason = "by the recipe; optim.learning_rate is " + significant(given.learning_rate, 6);
    }
    if (reason.empty()) continue;
    const std::string of = stepper_->objectives() == 1 ? "" : "." + stepper_->objective_name(i);
    choose("optim.learning_rate" + of, significant(used.learning_rate, 6), reason);
  }
  const std::string key = "optim.warmup_frac";
  const auto origin = request_.config.origins.find(key);
  const bool asked = origin != request_.config.origins.end() && !origin->second.starts_with("recipe");
  if (given.warmup_frac > 0 && asked && !optim::needs_length(given.schedule))
    choose(key, significant(given.warmup_frac, 3), "without effect: the schedule has no end; see optim.warmup_steps");
}

std::optional<Batch> Assembly::trial_batch(Split split) {
  const std::optional<data::Pipeline>& pipeline = split == Split::train ? input_.pipeline : input_.held_out;
  if (!pipeline) return std::nullopt;
  auto options = loader_options(*pipeline, split);
  options.readers = 0;
  options.warn = nullptr;  // the run's own loader meets the same samples
  data::Loader trial_loader(*pipeline, options);
  BatchWay way = this->way();
  way.split = split;
  std::optional<Batch> first;
  while (auto host = trial_loader.next()) {
    Batch here;
    {
      const device::ExpectedCopies on_its_way;
      here = to_batch(std::move(*host), split, way.device);
    }
    for_each_micro_batch(way, std::move(here), [&](Batch batch, MicroPlace) {
      if (!first) first = std::move(batch);
    });
    if (first) break;
  }
  return first;
}

std::optional<std::string> Assembly::try_on_batch(const std::function<void(const Batch&)>& trial) {
  const std::optional<Batch> batch = trial_batch();
  if (!batch) return std::nullopt;
  for (std::int64_t count = 1;; count *= 2) {
    try {
      trial(micro_batch(*batch, 0, count));
      return count == 1 ? "" : "; tried on 1/" + std::to_string(count) + " of a batch, which is what fits into memory";
    } catch (const std::exception& error) {
      if (!device::is_out_of_memory(error) || micro_batches_of(*batch, 2 * count) < 2 * count) throw;
    }
    device::release_cached_memory(context_.device);
  }
}

// In a format that was asked for or that a trial may come to choose.
bool Assembly::may_compute_in(at::ScalarType half) const {
  if (stepper_->autocast()) return *stepper_->autocast() == half;
  if (!config_.precision.dtype.is_auto() || !switches_.on("autocast") || !kept_.empty()) return false;
  return half == at::kBFloat16 && precision::hardware_has_fast_bf16(context_.device, nullptr);
}

void Assembly::decide() {
  try_convolutions();
  // Kernels of channels-last volumes are tried too, where the run may come to have such.
  const bool last = switches_.on("channels_last") &&
                    (config_.device.layout.is_auto() || config_.device.layout.value() == Layout::channels_last);
  if (last) recipe_->set_layout(Layout::channels_last);
  try_kernels();
  if (last && config_.device.layout.is_auto()) recipe_->set_layout(Layout::contiguous);
  decide_precision();
  decide_tf32();
  plan_kernels();
  decide_layout();
}

// Unlike precision it changes no bits, so a resumed run may choose anew, and each rank for itself.
void Assembly::decide_memory() {
  if (!switches_.on("recompute")) {
    memory_ = {.recompute = memory::Recompute(), .value = "none", .reason = "--off=recompute"};
  } else if (config_.memory.budget.empty()) {
    memory_ = named_memory(config_.memory);
  } else {
    const std::optional<Batch> batch = trial_batch();
    const bool with_gradients = config_.optim.accumulate > 1 || config_.memory.micro_batches > 1;
    memory_ = batch ? try_memory(*stepper_, *batch, config_.memory, with_gradients) : named_memory(config_.memory);
  }
  stepper_->set_recompute(memory_.recompute);
  choose(config_.memory.budget.empty() ? "memory.recompute" : "memory.budget", memory_.value, memory_.reason);
}

void Assembly::note_undecided() {
  const auto open = [this](const std::string& key, bool is_open, const char* reason) {
    if (is_open) plan_.set({key, "?", "auto", reason});
  };
  const bool tries_format = config_.precision.dtype.is_auto() && switches_.on("autocast");
  open("precision.dtype", tries_format, "a trial of the first step decides");
  const bool has_layouts = recipe_->set_layout(Layout::contiguous);
  open("device.layout", has_layouts && config_.device.layout.is_auto() && switches_.on("channels_last"),
       "a trial of the first step decides");
  if (!config_.memory.budget.empty() && switches_.on("recompute")) {
    open("memory.budget", true, "trials decide what is computed again in the backward pass");
  } else {
    decide_memory();
  }
}

MemoryAccount Assembly::memory_account(std::uint64_t step_peak, bool copies_snapshots) const {
  const auto bytes = stepper_->state_bytes();
  MemoryAccount account{.on_gpu = !context_.device.is_cpu()};
  account.weights = bytes.at("parameters") + bytes.at("buffers");
  for (std::size_t i = 0; i < stepper_->objectives(); ++i) {
    for (const auto& group : stepper_->parameter_groups(i)) {
      for (const auto& parameter : group.parameters) account.gradients += parameter.value.nbytes();
    }
  }
  account.optimizer = bytes.at("optimizer");
  for (const auto& [name, tensor] : stepper_->averaged_weights()) account.averages += tensor.nbytes();
  account.activations = step_peak - std::min(step_peak, account.of_tensors());
  account.loader = input_.loader->buffer_bytes() + (input_.validation != nullptr ? input_.validation->buffer_bytes() : 0);
  if (input_.cache != nullptr) account.cache = input_.cache->counters().bytes;
  if (copies_snapshots) {
    account.snapshot = account.weights + account.optimizer + account.averages;
    if (config_.snapshot.frozen == FrozenWeights::leave_out) {
      const auto parameters = recipe_->model().named_parameters();
      for (const std::string& name : frozen_names(recipe_->model(), *stepper_)) account.snapshot -= parameters[name].nbytes();
    }
  }
  const std::uint64_t of_heap =
      bare_.heap + (context_.device.is_cpu() ? account.of_tensors() : 0) + account.loader + account.cache + account.snapshot;
  account.scratch = device::heap_bytes() - std::min(device::heap_bytes(), of_heap);
  account.libraries =
      bare_.bytes + (device::resident_bytes() - std::min(device::resident_bytes(), device::private_resident_bytes()));
  return account;
}

}  // namespace millrace
