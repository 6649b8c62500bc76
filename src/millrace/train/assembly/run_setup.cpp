#include "millrace/train/assembly/run_setup.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/module.h>

#include "millrace/base/error.h"
#include "millrace/config/schema_of.h"
#include "millrace/device/attention_guard.h"
#include "millrace/device/convolution_guard.h"
#include "millrace/device/device.h"
#include "millrace/device/heap.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/kernels/kernels.h"
#include "millrace/precision/tf32.h"
#include "millrace/system/instructions.h"
#include "millrace/system/malloc_pages.h"
#include "millrace/system/openmp.h"
#include "millrace/train/assembly/model_state.h"
#include "millrace/train/recipe/recipe_guard.h"
#include "millrace/train/step/rank_check.h"

namespace millrace {
namespace {

// False for weights from a plain file, which holds no state of a recipe. load_state() is then not called, so a recipe need not
// handle a missing state.
bool has_state(const Weights& weights) {
  return !weights.run.empty() || !weights.recipe.tensors.empty() || !weights.recipe.json.empty();
}

}  // namespace

precision::GpuSettings gpu_settings_of(const RunConfig& config, const at::Device& device) {
  return precision::choose_gpu_settings(config.train.deterministic, config.device.timed_convolutions(), device);
}

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

RunSetup::RunSetup(RunRequest request)
    : request_(std::move(request)), config_(config::read<RunConfig>(request_.config.values)), switches_(config_.train.off) {
  if (auto problems = problems_of(config_); !problems.empty()) throw ConfigError(std::move(problems));
  if (request_.fs == nullptr) request_.fs = &Fs::real();
  if (!agreement().alone()) {
    timed_ = std::make_unique<TimedAgreement>(*request_.agreement, timeline_);
    request_.agreement = timed_.get();
  }
  device::count_tensor_memory();
  bare_ = {.resident = device::private_resident_bytes(), .heap = device::heap_bytes()};
  context_.ranks = agreement().ranks();
  context_.config = &config_;
  context_.switches = &switches_;
  context_.seed = static_cast<std::uint64_t>(config_.train.seed);
  context_.notice = [this](const std::string& text) { show_ ? show_(text) : notices_.push_back(text); };
  choose_device();
}

RunSetup::~RunSetup() = default;

Agreement& RunSetup::agreement() const noexcept {
  return request_.agreement == nullptr ? Agreement::of_one() : *request_.agreement;
}

void RunSetup::choose(const std::string& key, std::string value, std::string reason) {
  const auto it = request_.config.origins.find(key);
  plan_.set({key, std::move(value), it == request_.config.origins.end() ? "default" : it->second, std::move(reason)});
}

data::LoaderOptions RunSetup::loader_options(const data::Pipeline& pipeline, Split split) const {
  data::LoaderOptions options = millrace::loader_options(config_, switches_, pipeline, split, console());
  options.rank = agreement().ranks().rank;
  options.world_size = agreement().ranks().world_size;
  options.cores = loader_cores_;
  return options;
}

void RunSetup::choose_device() {
  const device::Choice choice = device::choose(config_.device.name, agreement().ranks().local_rank);
  inputs_.emplace();  // must follow device::choose(), because after any call to LibTorch the GPU can't be chosen any more
  context_.device = choice.device;
  choose("device.name", choice.device.str(), choice.reason);
  if (!choice.warning.empty()) console().warning(choice.warning);
  // Makes this rank's GPU the default for calls that do not name a GPU.
  if (!choice.device.is_cpu()) c10::impl::VirtualGuardImpl(choice.device.type()).setDevice(choice.device);
  choose_gpu_settings();
  // Off until TF32 is decided, because trials of number formats compare with true fp32.
  precision::use_tf32(precision::choose_tf32(config_.device.tf32_wish(), choice.device, std::nullopt), choice.device);
  if (context_.device.is_cpu() && switches_.on("memory_recovery")) memory_limit_.emplace(config_.memory.limit);
  if (!context_.device.is_cpu() && config_.memory.limit != "auto")
    choose("memory.limit", config_.memory.limit, "without effect on a GPU: it limits tensors in CPU memory");
  choose_threads();
  choose_guards();
  choose_transport();
}

void RunSetup::choose_threads() {
  const auto& cpu = device::cpu_info();
  const bool automatic = config_.device.threads.is_auto();
  const CoreShare share = core_share(agreement(), cpu.physical_cores);
  if (share.sharers > 1) loader_cores_ = share.cores;
  const auto threads = static_cast<int>(config_.device.threads.value_or(share.cores));
  device::set_threads(threads);
  shared_cores_.emplace();
  if (const std::string asked = automatic ? other_threads_asked(threads) : ""; !asked.empty())
    notices_.push_back(asked + " is ignored: device.threads=auto uses " + std::to_string(threads) +
                       (threads == 1 ? " thread" : " threads") +
                       ", one per core of this process; set --device.threads for another number");
  std::string code = "kernels " + std::string(kernels::instruction_set()) + ", ATen " + cpu.capability;
  if (const std::string asked = asked_instructions(); !asked.empty()) code += ", as " + asked + " says";
  choose("device.threads", std::to_string(threads),
         (automatic ? "the physical cores this process may use" +
                          (share.sharers > 1 ? ", shared by " + std::to_string(share.sharers) + " ranks" : "") + "; "
                    : "") +
             code + "; " + openmp_waits());
  const MallocPages pages = malloc_pages();
  plan_.set({"device.pages", pages.size, "auto", pages.reason});
}

void RunSetup::choose_gpu_settings() {
  const at::Device device = context_.device;
  const precision::GpuSettings settings = gpu_settings_of(config_, device);
  precision::use_gpu_settings(settings, device);
  if (!settings.deterministic_reason.empty())
    choose("train.deterministic", config_.train.deterministic ? "on" : "off", settings.deterministic_reason);
  if (!device.is_cpu() || !settings.convolutions_reason.empty()) {
    const bool timed = device.is_cpu() ? *config_.device.timed_convolutions() : settings.timed_convolutions;
    choose("device.cudnn", timed ? "timed" : "rules", settings.convolutions_reason);
  }
}

void RunSetup::choose_transport() {
  if (agreement().alone()) return;
  const config::Auto<DistributedConfig::Carrier>& wish = config_.distributed.transport;
  const std::string word = wish.is_auto() ? "auto" : wish.value() == DistributedConfig::Carrier::nccl ? "nccl" : "gloo";
  Chosen<std::string> transport = agreement().use_device(context_.device, word);
  if (!transport.value.empty()) choose("distributed.transport", std::move(transport.value), std::move(transport.reason));
}

void RunSetup::choose_guards() {
  std::vector<const device::Fault*> faults = device::guard_convolutions();
  if (const device::Fault* fault = device::guard_attention()) faults.push_back(fault);
  std::string names;
  for (const device::Fault* fault : faults) names += (names.empty() ? "" : ", ") + std::string(fault->name);
  if (names.empty() || !context_.device.is_cpu()) return;
  plan_.set({.option = "device.guards",
             .value = names,
             .origin = "auto",
             .reason = std::string("known ") + (faults.size() == 1 ? "fault" : "faults") + " of the libraries below, which " +
                       (faults.size() == 1 ? "is" : "are") + " worked around" +
                       (request_.verbose ? "" : " (--verbose names them)"),
             .brief = std::to_string(faults.size())});
}

std::unique_ptr<Recipe> RunSetup::make_recipe(const RecipeFolders& places, std::optional<Weights> weights) {
  if (weights)
    choose("train.weights", weights->path.string(), weights->which + "; optimiser and schedule start from the beginning");
  context_.places = places;
  torch::manual_seed(context_.seed);
  std::unique_ptr<Recipe> recipe;
  agreement().in_turn([&] {
    recipe = make_guarded(request_.entry->name, request_.entry->make, request_.config.values, context_);
    if (weights && has_state(*weights)) recipe->load_state(weights->recipe);
    recipe->before_training();
  });
  load_frozen_parts(recipe->model(), context_.notice);
  if (weights) {
    if (const std::string notice = load_model_weights(recipe->model(), *weights); !notice.empty()) context_.notice(notice);
    // called again: load_model_weights() may have replaced the weights of frozen parts, which must be those of the parts' files
    load_frozen_parts(recipe->model(), [](const std::string&) {});
  }
  recipe->model().to(context_.device);
  return recipe;
}

}  // namespace millrace
