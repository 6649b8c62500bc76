#include "millrace/measure/step_bench.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <iterator>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/median.h"
#include "millrace/config/schema_of.h"
#include "millrace/device/convolution_guard.h"
#include "millrace/device/device.h"
#include "millrace/device/device_clock.h"
#include "millrace/device/shared_cores.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/precision/tf32.h"
#include "millrace/system/process.h"
#include "millrace/train/assembly/convolution_choice.h"
#include "millrace/train/assembly/kernel_trial.h"
#include "millrace/train/assembly/layout_trial.h"
#include "millrace/train/assembly/memory_choice.h"
#include "millrace/train/recipe/recipe_guard.h"
#include "millrace/train/run/run.h"
#include "millrace/train/run/session.h"
#include "millrace/train/step/feed.h"
#include "millrace/train/step/step_graph.h"
#include "millrace/train/step/stepper.h"
#include "millrace/train/watch/trace.h"

namespace millrace {
namespace {

constexpr int kStepsUntilKnown = 20;  // after this many steps it is known whether a run launches its steps as graphs

const BenchShape& find_shape(const Entry& entry, const std::string& name) {
  std::vector<std::string> names;
  for (const BenchShape& shape : entry.bench_shapes) {
    if (shape.name == name) return shape;
    names.push_back(shape.name);
  }
  std::string all;
  for (const std::string& known : names) all += (all.empty() ? "" : ", ") + known;
  throw UsageError(
      {"recipe " + entry.name + " has no bench shape " + quoted(name), "--shape", all.empty() ? "it has none" : "it has " + all});
}

std::optional<at::ScalarType> autocast_of(const std::string& word, at::Device device) {
  if (word == "fp32") return std::nullopt;
  if (word == "bf16" || word == "fp16") return precision::format_of(word);
  if (word == "auto") return precision::hardware_has_fast_bf16(device, nullptr) ? std::optional(at::kBFloat16) : std::nullopt;
  throw UsageError({"there is no precision " + quoted(word), "--precision", "use auto, fp32, bf16 or fp16"});
}

Json sizes_of(const Batch& batch) {
  Json groups = Json::array();
  for (const Group& group : batch.groups()) {
    Json fields = Json::object();
    for (const auto& [name, field] : group.fields) fields[name] = field.sizes().vec();
    groups.push_back(std::move(fields));
  }
  return groups;
}

// Says whether steps are launched as graphs. Returns null if this device does not record steps.
Json graph_of(const Stepper& stepper) {
  const StepGraph* const graph = StepGraph::of(stepper);
  if (graph == nullptr || !graph->choice()) return nullptr;
  return {{"taken", graph->choice()->value}, {"reason", graph->choice()->reason}};
}

// A recipe and a batch of the shape, on the config's device.
struct Made {
  config::Resolved config;
  RunConfig shared;
  Switches switches;
  Context context;
  std::optional<device::SharedCores> shared_cores;
  std::unique_ptr<Recipe> recipe;
  Batch batch;

  void make(const Entry& entry, const StepBench::Options& options);
  [[nodiscard]] Json description() const;
};

void Made::make(const Entry& entry, const StepBench::Options& options) {
  const BenchShape& shape = find_shape(entry, options.shape);
  const config::Schema schema = schema_of(entry);
  const auto aliases = aliases_of(entry);
  config::Layers layers(schema, aliases);
  layers.add_values(entry.defaults, "recipe");
  layers.add_values(shape.config, "shape " + shape.name);
  layers.add_values(options.overrides, "flag");
  config = layers.resolve();
  shared = config::read<RunConfig>(config.values);
  if (auto problems = run_problems(entry, config); !problems.empty()) throw ConfigError(std::move(problems));
  device::count_tensor_memory();
  if (options.agreement != nullptr) context.ranks = options.agreement->ranks();
  switches = Switches(options.off);
  context.device = device::choose(shared.device.name, context.ranks.local_rank).device;
  if (!context.device.is_cpu()) c10::impl::VirtualGuardImpl(context.device.type()).setDevice(context.device);
  precision::use_gpu_settings(gpu_settings_of(shared, context.device), context.device);
  device::set_threads(static_cast<int>(options.threads));
  shared_cores.emplace();
  context.config = &shared;
  context.switches = &switches;
  context.seed = static_cast<std::uint64_t>(shared.train.seed);
  torch::manual_seed(context.seed);
  recipe = make_guarded(entry.name, entry.make, config.values, context);
  recipe->model().to(context.device);
  recipe->model().train();
  batch = moved_to(shape.batch(config.values, context.seed + static_cast<std::uint64_t>(context.ranks.rank)), context.device);
}

Json Made::description() const {
  std::int64_t parameters = 0, trained = 0;
  for (const at::Tensor& parameter : recipe->model().parameters()) {
    parameters += parameter.numel();
    if (parameter.requires_grad()) trained += parameter.numel();
  }
  const int index = context.device.has_index() ? context.device.index() : 0;
  return {{"parameters", parameters},
          {"trained_parameters", trained},
          {"batch", sizes_of(batch)},
          {"device", context.device.str()},
          {"device_name", device::backend_of(context.device).device_name(index)}};
}

}  // namespace

struct StepBench::Impl : Made {
  telemetry::Timeline timeline;
  std::unique_ptr<Stepper> stepper;
  std::int64_t step = 0;
  std::optional<double> first_step_seconds;
  double loss_first = 0;
  at::Tensor loss;
  std::string recipe_name;
  ConvolutionChoice convolutions;
  std::vector<KernelChoice> kernels;
  std::string layout;  // the memory layout that a trial chose
  MemoryChoice memory;
  Chosen<bool> tf32;
  std::uint64_t resident_bytes = 0;  // resident memory before the first step

  void use_tf32(std::optional<at::ScalarType> format) {
    tf32 = precision::choose_tf32(shared.device.tf32_wish(), context.device, format);
    precision::use_tf32(tf32, context.device);
  }
  [[nodiscard]] bool knows_graph() const { return StepGraph::of(*stepper) == nullptr || StepGraph::of(*stepper)->choice(); }
  // Makes the same choices as a run, and uses results of trials that runs have kept.
  void choose_ways(const std::string& precision, at::Device device) {
    const bool has_layouts = recipe->set_layout(Layout::contiguous);
    const bool tries_layouts = has_layouts && shared.device.layout.is_auto() && switches.on("channels_last");
    const bool last = !shared.device.layout.is_auto() && shared.device.layout.value() == Layout::channels_last;
    KeptTrials kept(Fs::real(), cache_folder(), /*writes=*/true, device);
    try_convolutions(device, kept);
    if (last || tries_layouts) recipe->set_layout(Layout::channels_last);
    const bool tries_formats = precision == "auto" && switches.on("autocast");
    choose_kernels(device, kept, tries_formats);
    if (tries_layouts) recipe->set_layout(Layout::contiguous);
    if (tries_formats) {
      StepTrials trials(*stepper);
      const auto trial = [&](auto format) { return try_format(*recipe, trials, batch, format, tries_layouts); };
      stepper->set_autocast(precision::choose(device, trial).autocast);
    }
    if (tries_layouts) {
      const bool is_last = try_layouts(*recipe, *stepper, batch).channels_last;
      recipe->set_layout(is_last ? Layout::channels_last : Layout::contiguous);
      layout = is_last ? "channels_last" : "contiguous";
    }
  }
  void try_convolutions(at::Device device, KeptTrials& kept) {
    if (!device.is_cpu() || stepper->autocast() != at::kBFloat16 || !switches.on("tried_convolutions")) return;
    choose_all(kernels::Implementation::library);
    const std::string trial = step_trial("convolutions", recipe_name, config.values, recipe->model(), batch);
    StepTrials trials(*stepper);
    convolutions = choose_convolutions([&] { (void)trials.try_precision(batch, std::nullopt); }, kept, trial);
    device::guard_also(convolutions.faults);
  }
  void choose_kernels(at::Device device, KeptTrials& kept, bool tries_formats) {
    kernels::forget_implementations();
    if (!device.is_cpu()) return;
    if (!shared.device.kernels.is_auto()) {
      return choose_all(shared.device.kernels.value());
    }
    std::vector<std::optional<at::ScalarType>> formats{stepper->autocast()};
    if (tries_formats && stepper->autocast()) formats.emplace_back(std::nullopt);
    StepTrials trials(*stepper);
    for (const auto& format : formats)
      std::ranges::move(try_kernels([&] { (void)trials.try_precision(batch, format); }, kept), std::back_inserter(kernels));
    choose(kernels);
  }
};

StepBench::StepBench(const Entry& entry, const StepBench::Options& options) : impl_(std::make_unique<Impl>()), options_(options) {
  Impl& impl = *impl_;
  impl.make(entry, options);
  impl.recipe_name = entry.name;
  const at::Device device = impl.context.device;
  Stepper::Options stepper{
      .device = device, .seed = impl.context.seed, .autocast = autocast_of(options.precision, device), .total_steps = 1'000'000};
  stepper.agreement = options.agreement;
  stepper.gradients = {.bucket_bytes = impl.shared.distributed.bucket_bytes, .compress = impl.shared.distributed.compress};
  if (!impl.switches.on("autocast")) stepper.autocast.reset();
  stepper.offload_bytes = offload_bytes(impl.shared.memory, device, impl.switches);
  impl.stepper = std::make_unique<Stepper>(*impl.recipe, impl.switches, impl.timeline, stepper);
  impl.use_tf32(std::nullopt);  // turned off, because trials of number formats compare with true fp32
  impl.choose_ways(options.precision, device);
  impl.use_tf32(impl.stepper->autocast());
  if (impl.switches.on("recompute")) {
    impl.memory = impl.shared.memory.budget.empty() ? named_memory(impl.shared.memory)
                                                    : try_memory(*impl.stepper, impl.batch, impl.shared.memory, false);
  }
  impl.stepper->blocks().set_recompute(impl.memory.recompute);
  if (impl.switches.on("step_graph")) static_cast<void>(StepGraph::use(*impl.stepper));
  impl.resident_bytes = device::resident_bytes();
  device::reset_peak_tensor_memory(device);
}

StepBench::~StepBench() = default;

// Launches a step. Reads no value from the device: `loss` stays there.
void StepBench::begin_step() {
  Impl& impl = *impl_;
  impl.timeline.begin_step();
  impl.stepper->begin_step(impl.step++);
  const StepResult result = impl.stepper->accumulate(impl.batch, {.only = true, .last = true});
  impl.stepper->update();
  impl.timeline.end_step();
  impl.loss = shown(result.losses[0]);
}

double StepBench::step() {
  Impl& impl = *impl_;
  const double begin = steady_seconds();
  begin_step();
  // Reads the loss, because the programs with which Millrace is compared read it too. This waits for the device.
  const double loss = impl.loss.item<double>();
  if (!impl.first_step_seconds) {
    impl.first_step_seconds = seconds_since_process_start();
    impl.loss_first = loss;
  }
  return (steady_seconds() - begin) * 1e3;
}

std::vector<double> StepBench::steps(std::int64_t count) {
  std::vector<double> ms;
  if (impl_->context.device.is_cpu()) {
    for (std::int64_t i = 0; i < count; ++i) ms.push_back(step());
    return ms;
  }
  (void)step();
  for (int i = 0; i < kStepsUntilKnown && !impl_->knows_graph(); ++i) begin_step();
  device::DeviceClock clock(impl_->context.device);
  clock.mark();
  for (std::int64_t i = 0; i < count; ++i) {
    begin_step();
    clock.mark();
  }
  ms = clock.between();
  device::release_cached_memory(impl_->context.device);
  return ms;
}

std::string StepBench::trace(std::int64_t count) {
  return trace_of(impl_->context.device, [&] {
    for (std::int64_t i = 0; i < count; ++i) begin_step();
  });
}

Json StepBench::report(const std::vector<double>& ms) const {
  const Impl& impl = *impl_;
  Json shares = Json::object();
  const auto times = impl.timeline.total();
  for (std::size_t i = 0; i < telemetry::kPhases; ++i) {
    shares[std::string(telemetry::name_of(static_cast<telemetry::Phase>(i)))] = times.share(static_cast<telemetry::Phase>(i));
  }
  Json switches = Json::object();
  for (const auto& setting : impl.switches.settings()) switches[std::string(setting.row->name)] = setting.on;
  Json kernels = Json::object();
  for (const KernelChoice& choice : impl.kernels)
    kernels[choice.option()] = {{"way", name_of(choice.implementation)}, {"reason", choice.reason}};
  Json memory = {{"step_peak_bytes", device::tensor_memory(impl.stepper->device()).peak_bytes},
                 {"resident_before_bytes", impl.resident_bytes},
                 {"recompute", impl.memory.recompute.patterns()}};
  for (const auto& [key, value] : impl.memory.trial.items()) memory[key] = value;
  Json all = impl.description();
  all.update({{"shape", options_.shape},
              {"memory", std::move(memory)},
              {"precision", options_.precision},
              {"threads", options_.threads},
              {"steps", ms.size()},
              {"ms", ms},
              {"ms_p50", median(ms)},
              {"ms_min", ms.empty() ? 0.0 : *std::min_element(ms.begin(), ms.end())},
              {"first_step_s_since_process_start", impl.first_step_seconds.value_or(0.0)},
              {"peak_memory_bytes", device::peak_resident_bytes()},
              {"loss_first", impl.loss_first},
              {"loss_last", impl.loss.defined() ? impl.loss.item<double>() : 0.0},
              {"shares", std::move(shares)},
              {"kernels", std::move(kernels)},
              {"convolutions", impl.convolutions.reason},
              {"layout", impl.layout},
              {"format", precision::name_of(impl.stepper->autocast())},
              {"tf32", {{"on", impl.tf32.value}, {"reason", impl.tf32.reason}}},
              {"step_graph", graph_of(*impl.stepper)},
              {"switches", std::move(switches)},
              {"versions", versions()}});
  return all;
}

Json describe_step(const Entry& entry, const StepBench::Options& options) {
  Made made;
  made.make(entry, options);
  Json description = made.description();
  description.update({{"recipe", entry.name}, {"shape", options.shape}});
  return description;
}

Json bench_step(const Entry& entry, const StepBench::Options& options, const std::filesystem::path& trace) {
  constexpr std::int64_t kTraced = 3;
  StepBench bench(entry, options);
  for (std::int64_t i = 0; i < std::max<std::int64_t>(options.warmup, 1); ++i) bench.step();
  Json report = bench.report(bench.steps(options.steps));
  if (!trace.empty()) write_atomically(Fs::real(), trace, bench.trace(kTraced));
  report["recipe"] = entry.name;
  return report;
}

}  // namespace millrace
