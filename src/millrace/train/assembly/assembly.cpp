#include "millrace/train/assembly/assembly.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/errors.h"
#include "millrace/device/heap.h"
#include "millrace/device/operation_census.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/system/process.h"
#include "millrace/system/signals.h"
#include "millrace/telemetry/long_task.h"
#include "millrace/train/assembly/model_state.h"
#include "millrace/train/step/feed.h"
#include "millrace/train/step/stepper_report.h"
#include "millrace/train/step/stepper_state.h"

namespace millrace {
namespace {

// Refuses sharding and compression together with distributed.average_every. Both need gradients that are summed over the ranks,
// but ranks that average their weights do not sum gradients.
void check_averaging(const DistributedConfig& config) {
  if (config.average_every == 1 || !(config.shard_optimizer || config.compress)) return;
  throw ConfigError(
      {"with distributed.average_every, no gradients are sent, so none can be compressed, and each rank needs the whole "
       "optimiser",
       "distributed.average_every with distributed." + std::string(config.shard_optimizer ? "shard_optimizer" : "compress"),
       "leave one of the two at its default"});
}

struct IdleSetting {
  std::string key, value, reason;
};

// The settings of a schedule that can't have their intended effect in this run.
std::vector<IdleSetting> idle_settings(const ObjectiveStep& objective, const Loaders& loaders) {
  using optim::ScheduleKind;
  const optim::OptimConfig& used = objective.spec().optim;
  std::vector<IdleSetting> idle;
  const bool by_epoch = used.schedule_by == optim::ScheduleUnit::epoch;
  const std::int64_t steps = loaders.total_steps();
  const std::int64_t of_unit = by_epoch ? std::max<std::int64_t>(loaders.steps_per_epoch(), 1) : 1;
  const std::int64_t length = (steps + of_unit - 1) / of_unit;
  if (steps > 0 && used.warmup_steps > length && used.schedule != ScheduleKind::one_cycle) {
    idle.push_back({"optim.warmup_steps", std::to_string(used.warmup_steps),
                    std::string("the run has only ") + with_commas(length) + " " + (by_epoch ? "epochs" : "steps") +
                        ", so the learning rate ends at " + significant(objective.learning_rate_at(steps - 1, steps), 3) +
                        " and never reaches " + significant(used.learning_rate, 3)});
  }
  if (used.min_learning_rate > used.learning_rate && used.schedule != ScheduleKind::constant) {
    idle.push_back({"optim.min_learning_rate", significant(used.min_learning_rate, 3),
                    "above the learning rate (" + significant(used.learning_rate, 3) +
                        "), so the schedule can't lower the rate to this value"});
  }
  return idle;
}

}  // namespace

Assembly::Assembly(RunSetup& setup, std::unique_ptr<Recipe> recipe, Loaders loaders, Json kept)
    : setup_(setup), recipe_(std::move(recipe)), loaders_(std::move(loaders)), kept_(std::move(kept)) {
  make_stepper();
}

Assembly::Assembly(RunSetup& setup, const RecipeFolders& places)
    : setup_(setup), recipe_(setup.make_recipe(places)), loaders_(setup, *recipe_), kept_(Json::object()) {
  make_stepper();
}

Assembly::~Assembly() = default;

RecipeFolders folders_to_look_in(bool plan_only) {
  return {.run_folder = {}, .new_files = {}, .cache_folder = cache_folder(), .writes = false, .plan_only = plan_only};
}

BatchContext Assembly::batch_context() const {
  return {.recipe = *recipe_,
          .timeline = &setup_.timeline(),
          .device = setup_.context().device,
          .micro_batches = setup_.config().memory.micro_batches,
          .seed = setup_.context().seed};
}

std::string Assembly::trial_of(std::string_view what, const Batch& batch) const {
  return step_trial(what, setup_.request().entry->name, setup_.request().config.values, recipe_->model(), batch);
}

const Json* Assembly::kept(const std::string& option) const {
  const auto it = kept_.find(option);
  return it != kept_.end() && it->is_string() ? &*it : nullptr;
}

// The number format, if it is known without a trial. A resumed run keeps its snapshot's format, because another format would
// change bits of the results.
std::optional<at::ScalarType> Assembly::known_format() const {
  if (!setup_.switches().on("autocast") || kept("precision.fallback") != nullptr) return std::nullopt;
  if (!setup_.config().precision.dtype.is_auto()) {
    constexpr std::array<const char*, 3> words = {"fp32", "bf16", "fp16"};
    return precision::format_of(words[static_cast<std::size_t>(setup_.config().precision.dtype.value())]);
  }
  const Json* format = kept("precision.dtype");
  return format == nullptr ? std::nullopt : precision::format_of(format->get<std::string>());
}

void Assembly::make_stepper() {
  check_averaging(setup_.config().distributed);
  Stepper::Options options{
      .device = setup_.context().device,
      .seed = setup_.context().seed,
      .autocast = known_format(),
      .total_steps = loaders_.total_steps(),
      .steps_per_epoch = loaders_.steps_per_epoch(),
      .global_batch = loaders_.global_batch(),
      .agreement = setup_.request().agreement,
      .average_every = setup_.config().distributed.average_every,
      .shards_optimizer = setup_.config().distributed.shard_optimizer,
      .gradients = {.bucket_bytes = setup_.config().distributed.bucket_bytes, .compress = setup_.config().distributed.compress}};
  options.offload_bytes = offload_bytes(setup_.config().memory, setup_.context().device, setup_.switches());
  stepper_ = std::make_unique<Stepper>(*recipe_, setup_.switches(), setup_.timeline(), options);
  plan_rates();
  if (!setup_.config().precision.dtype.is_auto()) {
    const std::string off = setup_.switches().on("autocast") ? "" : "--off=autocast";
    setup_.choose("precision.dtype", precision::name_of(options.autocast),
                  off.empty() ? precision::remark_on(setup_.context().device, options.autocast) : off);
  }
  if (const Json* fallback = kept("precision.fallback"))
    setup_.plan().set({"precision.fallback", fallback->get<std::string>(), "snapshot",
                       "the run had changed to this format before the snapshot", /*by_trial=*/true});
}

// Adds the learning rates to the plan. The rates come from the objectives, not from the config, because a recipe may give an
// objective its own rate.
void Assembly::plan_rates() {
  const optim::OptimConfig& given = setup_.config().optim;
  const bool alone = stepper_->objectives().size() == 1;
  for (const ObjectiveStep& objective : stepper_->objectives()) {
    const optim::OptimConfig& used = objective.spec().optim;
    std::string reason;
    if (used.lr_scaling != optim::RateScaling::none) {
      const bool root = used.lr_scaling == optim::RateScaling::sqrt;
      const double ratio = static_cast<double>(loaders_.global_batch()) / static_cast<double>(used.lr_scaling_batch);
      reason = significant(used.learning_rate / (root ? std::sqrt(ratio) : ratio), 6) + (root ? " x sqrt(" : " x (") +
               with_commas(loaders_.global_batch()) + " / " + with_commas(used.lr_scaling_batch) + ")";
    } else if (!alone) {
      reason = "objective " + objective.spec().name;
    } else if (used.learning_rate != given.learning_rate) {
      reason = "by the recipe; optim.learning_rate is " + significant(given.learning_rate, 6);
    }
    const std::string of = alone ? "" : "." + objective.spec().name;
    for (const IdleSetting& idle : idle_settings(objective, loaders_)) setup_.choose(idle.key + of, idle.value, idle.reason);
    if (reason.empty()) continue;
    setup_.choose("optim.learning_rate" + of, significant(used.learning_rate, 6), reason);
  }
  const std::string key = "optim.warmup_frac";
  const auto origin = setup_.request().config.origins.find(key);
  const bool asked = origin != setup_.request().config.origins.end() && !origin->second.starts_with("recipe");
  if (given.warmup_frac > 0 && asked && !optim::needs_length(given.schedule))
    setup_.choose(key, significant(given.warmup_frac, 3), "without effect: the schedule has no end; see optim.warmup_steps");
}

std::optional<Batch> Assembly::trial_batch(Split split, Recipe* prepares) const {
  const data::Pipeline* const pipeline = loaders_.pipeline(split);
  if (pipeline == nullptr) return std::nullopt;
  auto options = setup_.loader_options(*pipeline, split);
  options.readers = 0;
  options.warn = nullptr;  // no warnings: the run's own loader will report the same samples
  data::Loader trial_loader(*pipeline, options);
  const BatchContext own = batch_context();
  const BatchContext context{.recipe = prepares == nullptr ? own.recipe : *prepares,
                             .timeline = own.timeline,
                             .device = own.device,
                             .micro_batches = own.micro_batches,
                             .split = split,
                             .ahead = own.ahead,
                             .seed = own.seed};
  std::optional<Batch> first;
  while (auto host = trial_loader.next()) {
    stop_if_signalled();
    Batch here;
    {
      const device::ExpectedCopies on_its_way;
      here = to_batch(std::move(*host), split, context.device);
    }
    for_each_micro_batch(context, std::move(here), [&](Batch batch, MicroPosition) {
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
      return count == 1 ? "" : "; tried on 1/" + std::to_string(count) + " of a batch, because more does not fit into memory";
    } catch (const std::exception& error) {
      if (!device::is_out_of_memory(error) || micro_batches_of(*batch, 2 * count) < 2 * count) throw;
    }
    device::release_cached_memory(setup_.context().device);
  }
}

// True if the run computes in `half`, or if a trial may still choose `half`.
bool Assembly::may_compute_in(at::ScalarType half) const {
  if (stepper_->autocast()) return *stepper_->autocast() == half;
  if (!setup_.config().precision.dtype.is_auto() || !setup_.switches().on("autocast") || !kept_.empty()) return false;
  return half == at::kBFloat16 && precision::hardware_has_fast_bf16(setup_.context().device, nullptr);
}

void Assembly::limit_trials(std::function<double()> clock) {
  const RunConfig& config = setup_.config();
  const std::int64_t steps = loaders_.total_steps() * config.optim.accumulate * config.memory.micro_batches;
  trial_time_ = TrialTime(static_cast<double>(steps), std::move(clock));
}

void Assembly::decide() {
  try_convolutions();
  // The trial includes kernels for channels-last volumes if the run may use that layout.
  const bool last = setup_.switches().on("channels_last") &&
                    (setup_.config().device.layout.is_auto() || setup_.config().device.layout.value() == Layout::channels_last);
  if (last) recipe_->set_layout(Layout::channels_last);
  try_kernels();
  if (last && setup_.config().device.layout.is_auto()) recipe_->set_layout(Layout::contiguous);
  decide_precision();
  decide_tf32();
  plan_kernels();
  decide_layout();
}

// Chooses what to recompute. Recompute changes no bits, unlike the number format, so a resumed run may choose again, and each
// rank may choose independently.
void Assembly::decide_memory() {
  if (!setup_.switches().on("recompute")) {
    memory_ = {.recompute = memory::Recompute(), .value = "none", .reason = "--off=recompute"};
  } else if (setup_.config().memory.budget.empty()) {
    memory_ = named_memory(setup_.config().memory);
  } else {
    const telemetry::LongTask told(setup_.console(), "trying what to recompute in the backward pass");
    const std::optional<Batch> batch = trial_batch();
    const bool with_gradients = setup_.config().optim.accumulate > 1 || setup_.config().memory.micro_batches > 1;
    memory_ =
        batch ? try_memory(*stepper_, *batch, setup_.config().memory, with_gradients) : named_memory(setup_.config().memory);
  }
  stepper_->blocks().set_recompute(memory_.recompute);
  setup_.choose(setup_.config().memory.budget.empty() ? "memory.recompute" : "memory.budget", memory_.value, memory_.reason);
}

void Assembly::note_undecided() {
  const auto open = [this](const std::string& key, bool is_open, const char* reason) {
    if (is_open) setup_.plan().set({key, "?", "auto", reason});
  };
  const bool tries_format = setup_.config().precision.dtype.is_auto() && setup_.switches().on("autocast");
  open("precision.dtype", tries_format, "a trial of the first step decides");
  const bool has_layouts = recipe_->set_layout(Layout::contiguous);
  open("device.layout", has_layouts && setup_.config().device.layout.is_auto() && setup_.switches().on("channels_last"),
       "a trial of the first step decides");
  if (!setup_.config().memory.budget.empty() && setup_.switches().on("recompute")) {
    open("memory.budget", true, "trials decide what is computed again in the backward pass");
  } else {
    decide_memory();
  }
}

MemoryAccount Assembly::memory_account(std::uint64_t step_peak, bool copies_snapshots) const {
  const auto bytes = state_bytes_of(*stepper_);
  MemoryAccount account{.on_gpu = !setup_.context().device.is_cpu()};
  account.weights = bytes.at("parameters") + bytes.at("buffers");
  for (const ObjectiveStep& objective : stepper_->objectives()) {
    for (const auto& group : objective.optimizer().groups()) {
      for (const auto& parameter : group.parameters) account.gradients += parameter.value.nbytes();
    }
  }
  account.optimizer = bytes.at("optimizer");
  for (const auto& [name, tensor] : averaged_weights(*stepper_)) account.averages += tensor.nbytes();
  account.activations = step_peak - std::min(step_peak, account.of_tensors());
  account.loader = loaders_.buffer_bytes();
  account.cache = loaders_.bytes_in_memory();
  if (copies_snapshots) {
    account.snapshot = account.weights + account.optimizer + account.averages;
    if (setup_.config().snapshot.frozen == FrozenWeights::leave_out) {
      const auto parameters = recipe_->model().named_parameters();
      for (const std::string& name : frozen_names(recipe_->model(), *stepper_)) account.snapshot -= parameters[name].nbytes();
    }
  }
  const std::uint64_t of_heap = setup_.bare_memory().heap + (setup_.context().device.is_cpu() ? account.of_tensors() : 0) +
                                account.loader + account.cache + account.snapshot;
  account.scratch = device::heap_bytes() - std::min(device::heap_bytes(), of_heap);
  account.libraries = setup_.bare_memory().resident +
                      (device::resident_bytes() - std::min(device::resident_bytes(), device::private_resident_bytes()));
  return account;
}

}  // namespace millrace
