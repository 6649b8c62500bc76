#include "millrace/train/doctor_trials.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "millrace/base/doing.h"
#include "millrace/base/work_clock.h"
#include "millrace/device/device.h"
#include "millrace/device/operation_census.h"
#include "millrace/device/tensor_memory.h"
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
                                 .rebuilt_by = census.rebuilt_by};
  const auto way = [&stepper](const Batch& of, std::optional<at::ScalarType> in) {
    return [&stepper, &of, in] { return stepper.try_precision(of, in, TrialRole::reference); };
  };
  const Way now = way(*batch, format);
  trials.experiments.format = try_format(assembly, now, way(*batch, at::kBFloat16));
  trials.experiments.threads = try_threads(assembly, now);
  // Threads that wait for each other cost as much for half the rows.
  if (micro_batches_of(*batch, 2) < 2 || trials.experiments.threads) return;
  const Batch half = micro_batch(*batch, 0, 2);
  trials.experiments.batch = try_half(*batch, now, way(half, format));
}

}  // namespace

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
