#include "millrace/train/watch/detail/doctor_trials.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "millrace/base/doing.h"
#include "millrace/base/finally.h"
#include "millrace/device/device.h"
#include "millrace/device/operation_census.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/memory/planner.h"
#include "millrace/system/work_clock.h"
#include "millrace/train/step/micro_batches.h"
#include "millrace/train/step/step_trials.h"

namespace millrace {
namespace {

constexpr int kRounds = 2;

using Way = std::function<precision::Trial()>;

enum class Time : std::uint8_t {
  fair,  // time without the share in which other programs used the cores
  // all time; for trials with other numbers of threads, because threads of the run that wait for each other would count as other
  // programs
  wall
};

// The time of `first` divided by the time of `second`. Measurements of `first` and `second` take turns.
double ratio_of(const Way& first, const Way& second, Time time = Time::fair) {
  std::vector<WorkClock::Time> times[2];
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

Way in_format(StepTrials& trials, const Batch& batch, std::optional<at::ScalarType> format) {
  return [&trials, &batch, format] { return trials.try_precision(batch, format, StepTrials::Role::reference); };
}

void count_operations(Assembly& assembly, DoctorTrials& to) {
  Stepper& stepper = assembly.stepper();
  bool counted = false;
  const device::OperationCensus census = device::census_of([&] {
    const std::optional<Batch> batch = assembly.trial_batch();
    if (batch) static_cast<void>(StepTrials(stepper).try_precision(*batch, stepper.autocast(), StepTrials::Role::reference));
    counted = batch.has_value();
  });
  if (!counted) return;
  to.census = doctor::Evidence::Census{.operations = census.operations,
                                       .host_reads = census.host_reads,
                                       .seconds = census.seconds,
                                       .rebuilt_seconds = census.rebuilt_seconds,
                                       .rebuilt_by = census.rebuilt_by,
                                       .copies = census.copies,
                                       .copied_seconds = census.copied_seconds,
                                       .copied_by = census.copied_by};
}

bool may_gain_by_format(const Assembly& assembly) {
  const bool fixed =
      !assembly.config().precision.dtype.is_auto() && !assembly.stepper().autocast() && assembly.switches().on("autocast");
  return fixed && precision::hardware_has_fast_bf16(assembly.setup().context().device, nullptr);
}

void try_format(Assembly& assembly, DoctorTrials& to) {
  const std::optional<Batch> batch = assembly.trial_batch();
  // may_try_bf16() can refuse, because the user may have chosen fp32 to avoid a convolution that crashes or hangs in bf16 on
  // this machine.
  if (!batch || !assembly.may_try_bf16(*batch)) return;
  StepTrials trials(assembly.stepper());
  const double ratio = ratio_of(in_format(trials, *batch, std::nullopt), in_format(trials, *batch, at::kBFloat16));
  to.experiments.format = doctor::Evidence::Experiments::Format{.from = "fp32", .to = "bf16", .ratio = ratio};
}

bool has_more_threads_than_cores(const Assembly& assembly) {
  return at::get_num_threads() > device::cpu_info().physical_cores && assembly.setup().context().device.is_cpu();
}

void try_threads(Assembly& assembly, DoctorTrials& to) {
  const std::optional<Batch> batch = assembly.trial_batch();
  if (!batch) return;
  StepTrials trials(assembly.stepper());
  const Way now = in_format(trials, *batch, assembly.stepper().autocast());
  const int asked = at::get_num_threads();
  const int cores = device::cpu_info().physical_cores;
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
  to.experiments.threads = doctor::Evidence::Experiments::Threads{.asked = asked, .cores = cores, .ratio = ratio};
}

void try_half(Assembly& assembly, DoctorTrials& to) {
  const std::optional<Batch> batch = assembly.trial_batch();
  if (!batch || micro_batches_of(*batch, 2) < 2 || batch->groups().size() > 1) return;
  const Batch half = micro_batch(*batch, 0, 2);
  StepTrials trials(assembly.stepper());
  const auto format = assembly.stepper().autocast();
  const double ratio =
      // a batch of b rows takes T(b) = a + k b, so T(b) / T(b/2) shows the fixed part a
      ratio_of(in_format(trials, *batch, format), in_format(trials, half, format));
  const RunConfig& config = assembly.config();
  const data::Pipeline& pipeline = *assembly.loaders().pipeline(Split::train);
  const bool by_recipe = pipeline.batch_size || pipeline.datasets.front().batch_size;
  to.experiments.batch = doctor::Evidence::Experiments::Batch{.rows = batch->rows(),
                                                              .fixed_share = std::clamp(2 / ratio - 1, 0.0, 1.0),
                                                              .batch_size = by_recipe ? 0 : config.data.samples_per_batch(),
                                                              .micro_batches = config.memory.micro_batches,
                                                              .accumulate = config.optim.accumulate};
}

bool has_another_layout(const Assembly& assembly) {
  const auto& wish = assembly.config().device.layout;
  return !wish.is_auto() && assembly.switches().on("channels_last") && assembly.recipe().set_layout(wish.value());
}

// Tries the other memory layout. The layout affects only how a batch passes through the model; weights do not depend on it.
void try_layout(Assembly& assembly, DoctorTrials& to) {
  const std::optional<Batch> batch = assembly.trial_batch();
  if (!batch) return;
  Recipe& recipe = assembly.recipe();
  const Layout now = assembly.config().device.layout.value();
  const Layout other = now == Layout::contiguous ? Layout::channels_last : Layout::contiguous;
  StepTrials trials(assembly.stepper());
  const Way way = in_format(trials, *batch, assembly.stepper().autocast());
  const auto in = [&](Layout layout) -> Way {
    return [&recipe, &way, layout] {
      recipe.set_layout(layout);
      return way();
    };
  };
  const auto name = [](Layout layout) { return layout == Layout::contiguous ? "contiguous" : "channels_last"; };
  const double ratio = finally(
      [&] {
        (void)in(other)();  // the time of this first step is not used, because the step also warms caches up
        return ratio_of(in(now), in(other));
      },
      [&] { recipe.set_layout(now); });
  to.experiments.layout = doctor::Evidence::Experiments::Layouts{.from = name(now), .to = name(other), .ratio = ratio};
}

bool may_recompute(const Assembly& assembly) {
  const MemoryConfig& wish = assembly.config().memory;
  const bool nothing = wish.recompute == std::vector<std::string>{"none"} && wish.budget.empty();
  return nothing && assembly.switches().on("recompute") && !assembly.stepper().blocks().names().empty();
}

bool adds_gradients(const RunConfig& config) { return config.optim.accumulate > 1 || config.memory.micro_batches > 1; }

// Makes one step that recomputes every block, and computes from its costs how much memory recompute would save.
void try_recompute(Assembly& assembly, DoctorTrials& to) {
  const std::optional<Batch> batch = assembly.trial_batch();
  if (!batch) return;
  const bool with_gradients = adds_gradients(assembly.config());
  const memory::Planner planner(StepTrials(assembly.stepper()).profile_memory(*batch, memory::Recompute({"all"}), with_gradients),
                                std::nullopt);
  std::vector<std::string> all;
  double ms = 0;
  for (const memory::Planner::BlockCost& cost : planner.costs()) {
    all.push_back(cost.name);
    ms += cost.ms;
  }
  const std::uint64_t plain = planner.plain_bytes(), least = planner.predict(all);
  to.experiments.recompute =
      doctor::Evidence::Experiments::Recompute{.saved_bytes = plain - std::min(plain, least), .seconds = ms * 1e-3};
}

}  // namespace

Json DoctorTrials::to_json() const {
  Json json = Json::object();
  if (const auto& format = experiments.format) json["format"] = {{"to", format->to}, {"ratio", format->ratio}};
  if (const auto& threads = experiments.threads) json["threads"] = {{"to", threads->cores}, {"ratio", threads->ratio}};
  if (const auto& batch = experiments.batch) json["batch"] = {{"rows", batch->rows}, {"fixed_share", batch->fixed_share}};
  if (const auto& layout = experiments.layout) json["layout"] = {{"to", layout->to}, {"ratio", layout->ratio}};
  if (const auto& recompute = experiments.recompute)
    json["recompute"] = {{"saved_bytes", recompute->saved_bytes}, {"seconds", recompute->seconds}};
  if (census)
    json["census"] = {{"operations", census->operations}, {"host_reads", census->host_reads}, {"copies", census->copies}};
  return json;
}

RemedyTrials::RemedyTrials(Assembly& assembly) : assembly_(assembly) {
  // No trials with several ranks, because all ranks would have to agree on each trial.
  if (!assembly.setup().agreement().alone()) return;
  constexpr double kInTurns = 2.0 * kRounds;  // number of passes of a trial that measures two settings in turns
  const bool threads = has_more_threads_than_cores(assembly);
  all_.push_back({.passes = 1, .make = &count_operations});
  if (may_recompute(assembly)) all_.push_back({.passes = adds_gradients(assembly.config()) ? 3.0 : 2.0, .make = &try_recompute});
  constexpr double kLooksForConvolutions = 1;
  if (may_gain_by_format(assembly)) all_.push_back({.passes = kInTurns + kLooksForConvolutions, .make = &try_format});
  if (threads) all_.push_back({.passes = kInTurns, .make = &try_threads});
  // Left out if there are more threads than cores: the threads then wait for each other, and half of the rows take as long as
  // all.
  if (!threads) all_.push_back({.passes = kInTurns, .make = &try_half});
  if (has_another_layout(assembly)) all_.push_back({.passes = kInTurns + 1, .make = &try_layout});
}

void RemedyTrials::make_next() {
  const Doing task(Doing::Level::task, "the doctor's trials");
  try {
    all_[next_++].make(assembly_, made_);
  } catch (const std::exception&) {
    device::release_cached_memory(assembly_.setup().context().device);
  }
}

std::unique_ptr<RemedyTrials> try_remedies(Assembly& assembly) { return std::make_unique<RemedyTrials>(assembly); }

}  // namespace millrace
