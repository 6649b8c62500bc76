#include "millrace/train/doctor_trials.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "millrace/base/doing.h"
#include "millrace/base/work_clock.h"
#include "millrace/device/device.h"
#include "millrace/device/operation_census.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/memory/planner.h"
#include "millrace/train/generator_state.h"
#include "millrace/train/micro_batches.h"

namespace millrace {
namespace {

constexpr int kRounds = 2;

using Way = std::function<precision::Trial()>;

enum class Time : std::uint8_t {
  fair,  // what other programs took is left out
  wall   // threads that wait for each other look like such programs
};

// Time of the first way to that of the second, in turns.
double ratio_of(const Way& first, const Way& second, Time time = Time::fair) {
  std::vector<WorkTime> times[2];
  const Way* ways[2] = {&first, &second};
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 2; ++i) {
      const precision::Trial trial = (*ways[i])();
      times[i].push_back({trial.step_ms, time == Time::wall ? trial.step_ms : trial.busy_ms.value_or(trial.step_ms)});
    }
  }
  const Comparison all = compare(times[0], times[1]);
  return all.first_ms / std::max(all.second_ms, 1e-9);
}

std::optional<doctor::Experiments::Format> try_format(const Assembly& assembly, const Way& now, const Way& half) {
  const auto& wish = assembly.config().precision.dtype;
  const bool fixed = !wish.is_auto() && !assembly.stepper().autocast() && assembly.switches().on("autocast");
  if (!fixed || !precision::hardware_has_fast_bf16(assembly.context().device, nullptr)) return std::nullopt;
  return doctor::Experiments::Format{.from = "fp32", .to = "bf16", .ratio = ratio_of(now, half)};
}

std::optional<doctor::Experiments::Threads> try_threads(const Assembly& assembly, const Way& now) {
  const int asked = at::get_num_threads();
  const int cores = device::cpu_info().physical_cores;
  if (asked <= cores || !assembly.context().device.is_cpu()) return std::nullopt;
  struct Back {
    int threads;
    ~Back() { at::set_num_threads(threads); }
  };
  const Back back{asked};
  const double ratio = ratio_of(
      [&] {
        at::set_num_threads(asked);
        return now();
      },
      [&] {
        at::set_num_threads(cores);
        return now();
      },
      Time::wall);
  return doctor::Experiments::Threads{.asked = asked, .cores = cores, .ratio = ratio};
}

std::optional<doctor::Experiments::Batch> try_half(const Batch& batch, const Way& now, const Way& half) {
  if (micro_batches_of(batch, 2) < 2 || batch.groups().size() > 1) return std::nullopt;
  const double ratio = ratio_of(now, half);  // T(b) / T(b/2); T = a + k b
  return doctor::Experiments::Batch{.rows = batch.rows(), .fixed_share = std::clamp(2 / ratio - 1, 0.0, 1.0)};
}

// The layout is what arranges a batch on its way through the model: no weight knows of it.
std::optional<doctor::Experiments::Layouts> try_layout(const Assembly& assembly, const Way& way) {
  const auto& wish = assembly.config().device.layout;
  if (wish.is_auto() || !assembly.switches().on("channels_last")) return std::nullopt;
  Recipe& recipe = assembly.recipe();
  const Layout now = wish.value();
  const Layout other = now == Layout::contiguous ? Layout::channels_last : Layout::contiguous;
  struct Back {
    Recipe& recipe;
    Layout layout;
    ~Back() { recipe.set_layout(layout); }
  };
  if (!recipe.set_layout(now)) return std::nullopt;
  const Back back{recipe, now};
  const auto in = [&](Layout layout) -> Way {
    return [&recipe, &way, layout] {
      recipe.set_layout(layout);
      return way();
    };
  };
  const auto name = [](Layout layout) { return layout == Layout::contiguous ? "contiguous" : "channels_last"; };
  (void)in(other)();  // the first step sets things up
  return doctor::Experiments::Layouts{.from = name(now), .to = name(other), .ratio = ratio_of(in(now), in(other))};
}

bool recomputes_nothing(const RunConfig& config) {
  return config.memory.recompute == std::vector<std::string>{"none"} && config.memory.budget.empty();
}

// One step that computes every block again, which holds less than one of the run's; what it brought back is what it saves.
std::optional<doctor::Experiments::Recompute> try_recompute(const Assembly& assembly, const Batch& batch) {
  const RunConfig& config = assembly.config();
  Stepper& stepper = assembly.stepper();
  if (!recomputes_nothing(config) || !assembly.switches().on("recompute") || stepper.blocks().empty()) return std::nullopt;
  const bool with_gradients = config.optim.accumulate > 1 || config.memory.micro_batches > 1;
  const memory::Planner planner(stepper.profile_memory(batch, memory::Recompute({"all"}), with_gradients), std::nullopt);
  std::vector<std::string> all;
  double ms = 0;
  for (const memory::BlockCost& cost : planner.costs()) {
    all.push_back(cost.name);
    ms += cost.ms;
  }
  const std::uint64_t plain = planner.plain_bytes(), least = planner.predict(all);
  return doctor::Experiments::Recompute{.saved_bytes = plain - std::min(plain, least), .seconds = ms * 1e-3};
}

void try_all(Assembly& assembly, DoctorTrials& trials) {
  Stepper& stepper = assembly.stepper();
  const auto format = stepper.autocast();
  std::optional<Batch> batch;
  const device::OperationCensus census = device::census_of([&] {
    batch = assembly.trial_batch();
    if (batch) static_cast<void>(stepper.try_precision(*batch, format, TrialRole::reference));
  });
  if (!batch) return;
  trials.census = doctor::Census{.operations = census.operations,
                                 .host_reads = census.host_reads,
                                 .seconds = census.seconds,
                                 .rebuilt_seconds = census.rebuilt_seconds,
                                 .rebuilt_by = census.rebuilt_by,
                                 .copies = census.copies,
                                 .copied_seconds = census.copied_seconds,
                                 .copied_by = census.copied_by};
  const auto way = [&stepper](const Batch& of, std::optional<at::ScalarType> in) {
    return [&stepper, &of, in] { return stepper.try_precision(of, in, TrialRole::reference); };
  };
  const Way now = way(*batch, format);
  trials.experiments.format = try_format(assembly, now, way(*batch, at::kBFloat16));
  trials.experiments.threads = try_threads(assembly, now);
  trials.experiments.layout = try_layout(assembly, now);
  trials.experiments.recompute = try_recompute(assembly, *batch);
  // Threads that wait for each other cost as much for half the rows.
  if (micro_batches_of(*batch, 2) < 2 || trials.experiments.threads) return;
  const Batch half = micro_batch(*batch, 0, 2);
  trials.experiments.batch = try_half(*batch, now, way(half, format));
}

}  // namespace

std::int64_t doctor_trial_steps(const RunConfig& config) {
  constexpr std::int64_t kAlways = 14, kLayout = 5, kRecompute = 2;
  return kAlways + (config.device.layout.is_auto() ? 0 : kLayout) + (recomputes_nothing(config) ? kRecompute : 0);
}

Json DoctorTrials::to_json() const {
  Json json = Json::object();
  if (const auto& format = experiments.format) json["format"] = {{"to", format->to}, {"ratio", format->ratio}};
  if (const auto& threads = experiments.threads) json["threads"] = {{"to", threads->cores}, {"ratio", threads->ratio}};
  if (const auto& batch = experiments.batch) json["batch"] = {{"rows", batch->rows}, {"fixed_share", batch->fixed_share}};
  if (const auto& layout = experiments.layout) json["layout"] = {{"to", layout->to}, {"ratio", layout->ratio}};
  if (const auto& recompute = experiments.recompute)
    json["recompute"] = {{"saved_bytes", recompute->saved_bytes}, {"seconds", recompute->seconds}};
  return json;
}

DoctorTrials try_remedies(Assembly& assembly) {
  const Doing task(Doing::Level::task, "the doctor's trials");
  DoctorTrials trials;
  if (!assembly.agreement().alone()) return trials;  // ranks would have to agree on each
  const KeepGenerator no_trace;
  try {
    try_all(assembly, trials);
  } catch (const std::exception&) {
    device::release_cached_memory(assembly.context().device);
  }
  assembly.stepper().end_trials();
  return trials;
}

}  // namespace millrace
