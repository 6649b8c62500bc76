#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "millrace/doctor/detail/rule_list.h"

namespace millrace::doctor::detail {
namespace {

using telemetry::Phase;

// Each line has two shares of the loop's time: the rule fires from the first share on, and the second share should remain after
// the remedy.
constexpr double kLogs = 0.03, kFewLogs = 0.005;
constexpr double kWriter = 0.05;  // share of the time in which the thread that writes log lines has the loop's core
constexpr double kSaves = 0.05, kFewSaves = 0.01;
constexpr double kValidates = 0.40, kFewValidations = 0.10;
constexpr double kFixed = 0.6;  // share of a step's time that does not depend on the number of rows
constexpr double kFasterFormat = 1.25;
constexpr double kFasterLayout = 1.10;
constexpr double kRecomputes = 0.03;
constexpr double kRebuilds = 0.03;
constexpr double kNeighbours = 0.10;
// if other programs use the cores for at least this share of the time, fewer threads are faster than threads that wait for each
// other
constexpr double kManyNeighbours = 0.30;
// kCopies: share of the time spent on copies; kCopyLess: the part of that time saved by sending bytes instead of floats, because
// a float has four bytes
constexpr double kCopies = 0.10, kCopyLess = 0.75;
constexpr std::int64_t kTimesRows = 4;  // the remedy enlarges a batch at most by this factor
constexpr double kSlower = 1.25;        // time of the latest steps / time of the first steps
constexpr std::size_t kEarlierRuns = 3;
constexpr double kSlowerBeside = 1.5;  // like kSlower, but used while other programs use the cores, and therefore caches and
                                       // memory too
// Shares of the time in which the GPU computes; vendors' guides ask for kGpuBusy.
constexpr double kGpuBusy = 0.8, kGpuIdle = 0.5;
constexpr double kLaunches = 0.9;     // if host's time / GPU's time for a step is at least this, launching limits the GPU
constexpr double kBehind = 0.1;       // how far the GPU is behind the host, as a share of a step's time
constexpr double kEnoughData = 0.1;   // if the loop waits for data for more than this share of the time, another rule applies
constexpr double kLowClock = 0.9;     // clock as a share of the GPU's maximum clock
constexpr double kFallenClock = 0.8;  // clock as a share of the clock in the first minute
constexpr std::size_t kLines = 9;     // number of log lines that is needed to distinguish a trend from noise
// kUnaccounted: share of the stretch; kUnaccountedAfter: seconds of the run before the rule judges
constexpr double kUnaccounted = 0.10, kUnaccountedAfter = 60;
constexpr std::int64_t kOften = 3;  // an action counts as too frequent only if it happened at least this often

// The next number of the series 1, 2, 5, 10, 20, 50 ... that is at least `value`.
std::int64_t round_up(double value) {
  for (std::int64_t power = 1;; power *= 10) {
    for (const std::int64_t digit : {1, 2, 5}) {
      if (static_cast<double>(digit * power) >= value) return digit * power;
    }
  }
}

struct Limit {
  double much, little;  // shares of the time: the rule fires from `much` on, and the remedy should reduce the share to `little`
};

// Fires if an action such as saving takes at least `limit.much` of the time. Suggests an interval with which it takes
// `limit.little`.
Found too_often(const Evidence& e, Phase phase, const Evidence::Often& often, const Limit& limit, const std::string& what,
                const std::string& key_of_steps, const std::string& key_of_epochs) {
  const double share = e.share(phase);
  if (share < limit.much || often.count < kOften) return std::nullopt;
  const bool by_steps = often.every_steps > 0;
  const std::int64_t now = by_steps ? often.every_steps : often.every_epochs;
  if (now <= 0) return std::nullopt;
  const std::int64_t then = round_up(static_cast<double>(now) * share / limit.little);
  const double each_ms = e.times.of(phase) / static_cast<double>(often.count) * 1e3;
  const double gain = share * (1 - static_cast<double>(now) / static_cast<double>(then));
  return set(what + " take " + percent(share) + " of the time, " + significant(each_ms, 3) + " ms each, every " +
                 (now == 1 ? std::string() : with_commas(now) + " ") + (by_steps ? "step" : "epoch") + (now == 1 ? "" : "s"),
             by_steps ? key_of_steps : key_of_epochs, std::to_string(then), gain_of(gain));
}

// How often a script does something. If the script's interval is unknown, uses the mean interval in the stretch.
Evidence::Often often_of(const Evidence& e, const std::optional<Script::Deed>& deed) {
  if (!deed || deed->count <= 0) return {};
  const std::int64_t mean = std::max<std::int64_t>(1, e.times.steps / deed->count);
  return {.count = deed->count, .every_steps = deed->every_steps > 0 ? deed->every_steps : mean};
}

// The largest number from 2 to kTimesRows that divides `pieces`; `pieces` if there is no such number.
std::int64_t fewer_by(std::int64_t pieces) {
  for (std::int64_t times = std::min(kTimesRows, pieces); times > 1; --times) {
    if (pieces % times == 0) return times;
  }
  return pieces;
}

// Fires if a script uses more threads than cores. Predicts no gain, because no trial has run the script's step with fewer
// threads.
Found too_many_threads(const Evidence& e) {
  const int threads = e.script->threads;
  if (threads <= e.cores || e.on_gpu) return std::nullopt;
  return set("torch computes with " + std::to_string(threads) + " threads on " + std::to_string(e.cores) +
                 (e.cores == 1 ? " core" : " cores"),
             "device.threads", std::to_string(e.cores), std::nullopt);
}

// How many of torch's threads fit on the cores that other programs leave free; 0 if fewer threads would not help the script.
int threads_beside_others(const Evidence& e) {
  if (!e.script || e.on_gpu || e.script->threads < 2 || e.others.value_or(0) < kManyNeighbours) return 0;
  const int threads = std::max(1, static_cast<int>(std::lround(e.cores * (1 - *e.others))));
  return threads < e.script->threads ? threads : 0;
}

// The change that sets the number of threads by an environment variable. The variable also works in a script that sets no number
// of threads, and in libraries that have separate threads.
Finding::Change with_threads(const Script& script, int threads) {
  const std::string count = std::to_string(threads);
  return {.text = "OMP_NUM_THREADS=" + count + " " + (script.command.empty() ? "python " + script.path : script.command),
          .environment = {{"OMP_NUM_THREADS", count}}};
}

double work_share(const Evidence& e) { return e.share(Phase::forward) + e.share(Phase::backward); }
double core_share(const Evidence& e) {
  return work_share(e) + e.share(Phase::prepare) + e.share(Phase::optimizer) + e.share(Phase::metrics) + e.share(Phase::validate);
}

}  // namespace

// Fires if log lines take too much time. A script's event writer has a thread that takes cores from the loop's threads. Without
// workers and other programs, this thread is the only one that the loop waits for. A wait longer than the log lines themselves
// has another cause.
Found log_often(const Evidence& e) {
  Found finding =
      too_often(e, Phase::log, e.script ? often_of(e, e.script->logs) : e.log, {kLogs, kFewLogs}, "log lines", "log.every", "");
  if (!finding || !e.script || e.input.readers > 0 || !e.others || *e.others >= kNeighbours) return finding;
  const double waited = (e.core_wait_seconds.value_or(0) - *e.others * e.times.loop()) / e.times.loop();
  const double taken = std::min(waited, e.share(Phase::log));
  if (taken < kWriter) return finding;
  finding->what +=
      "; for another " + percent(taken) + " of the time the loop waits for a core that the thread of the event writer uses";
  finding->gain = gain_of(finding->gain->likely * (1 + taken / e.share(Phase::log)));
  return finding;
}

Found snapshot_often(const Evidence& e) {
  return too_often(e, Phase::snapshot, e.script ? often_of(e, e.script->saves) : e.snapshot, {kSaves, kFewSaves}, "snapshots",
                   "snapshot.every_steps", "snapshot.every_epochs");
}

Found validate_often(const Evidence& e) {
  return too_often(e, Phase::validate, e.script ? often_of(e, e.script->validations) : e.validation,
                   {kValidates, kFewValidations}, "validations", "train.validate_every", "train.validate_epochs");
}

// Fires if most of a step's time does not depend on the number of rows. A step on b rows takes a + c b, so with k times as many
// rows, b rows take a / k + c b. Remedies that do not change the training come first.
Found small_batch(const Evidence& e) {
  const auto& batch = e.experiments.batch;
  if (!batch || batch->fixed_share < kFixed) return std::nullopt;
  const std::string what = percent(batch->fixed_share) +
                           " of a step's time does not depend on its number of rows (tried with half of the " +
                           with_commas(batch->rows) + " rows): the machine has little work at a time";
  const auto gain_by = [&](std::int64_t times) {
    return gain_of((1 - 1 / static_cast<double>(times)) * batch->fixed_share * work_share(e), 0.25);
  };
  if (batch->accumulate > 1 && batch->batch_size > 0) {
    const std::int64_t times = fewer_by(batch->accumulate);
    return Finding{
        .id = {},
        .what = what,
        .remedy =
            "try --data.batch_size=" + std::to_string(batch->batch_size * times) +
            " --optim.accumulate=" + std::to_string(batch->accumulate / times) +
            ", the same global batch in fewer pieces (a batch norm then averages over more rows, which changes the training)",
        .key = {},
        .value = {},
        .gain = gain_by(times)};
  }
  if (batch->micro_batches > 1) {
    const std::int64_t times = fewer_by(batch->micro_batches);
    Finding finding = set(what, "memory.micro_batches", std::to_string(batch->micro_batches / times), gain_by(times));
    finding.remedy +=
        " where memory allows: the same batch in fewer pieces (a batch norm then averages over more rows, which changes the "
        "training)";
    return finding;
  }
  if (batch->batch_size <= 0) {
    return Finding{.id = {},
                   .what = what,
                   .remedy = "use larger batches, whose size the recipe sets, and tune the learning rate",
                   .key = {},
                   .value = {},
                   .gain = gain_by(kTimesRows)};
  }
  Finding finding = set(what, "data.batch_size", std::to_string(kTimesRows * batch->batch_size), gain_by(kTimesRows));
  finding.remedy += ", which changes the training: tune the learning rate too";
  return finding;
}

Found precision_unused(const Evidence& e) {
  const auto& format = e.experiments.format;
  if (!format || format->ratio < kFasterFormat) return std::nullopt;
  return set("the config says " + format->from + ", but a trial of this run's step was " + significant(format->ratio, 3) +
                 " times as fast in " + format->to,
             "precision.dtype", format->to, gain_of((1 - 1 / format->ratio) * work_share(e)));
}

Found layout(const Evidence& e) {
  const auto& layout = e.experiments.layout;
  if (!layout || layout->ratio < kFasterLayout) return std::nullopt;
  return set("the config says " + layout->from + ", but a trial of this run's step was " + significant(layout->ratio, 3) +
                 " times as fast in " + layout->to,
             "device.layout", layout->to, gain_of((1 - 1 / layout->ratio) * work_share(e)));
}

Found recompute_unneeded(const Evidence& e) {
  const double share = e.memory.recompute_seconds / std::max(e.times.loop(), 1e-9);
  const std::uint64_t free = e.memory.room - std::min(e.memory.room, e.memory.used);
  // tensors that are kept instead of recomputed seldom take more than this multiple of the peak
  constexpr std::uint64_t kTimes = 8;
  if (share < kRecomputes || !e.memory.recompute_by_user || free < kTimes * e.memory.step_peak) return std::nullopt;
  return set("recomputing blocks takes " + percent(share) + " of the time, although a step holds only " +
                 human_bytes(static_cast<double>(e.memory.step_peak)) + ", and " + human_bytes(static_cast<double>(free)) +
                 " of memory are free",
             "memory.recompute", "none", gain_of(share));
}

Found rebuilt_tensors(const Evidence& e) {
  if (!e.census || e.census->seconds <= 0) return std::nullopt;
  const double share = e.census->rebuilt_seconds / e.census->seconds * work_share(e);
  if (share < kRebuilds) return std::nullopt;
  return Finding{.id = {},
                 .what = "tensors that depend neither on parameters nor on the batch are made again in every step, which takes " +
                         percent(share) + " of the time, mostly in " + e.census->rebuilt_by,
                 .remedy = "make them once, in the constructor of the recipe or its module, and register them as buffers",
                 .key = {},
                 .value = {},
                 .gain = gain_of(share)};
}

// Fires if copies to the device take long. Only floats can be sent as fewer bytes, so the gain depends on their share.
Found copy_bound(const Evidence& e) {
  if (not_pinned(e)) return std::nullopt;
  const double share = e.share(Phase::copy), floats = e.copied_floats.value_or(0);
  if (share < kCopies) return std::nullopt;
  const bool can_shrink = !e.copied_floats || floats > 0;
  return Finding{.id = {},
                 .what = "copying batches to the device takes " + percent(share) + " of the time" +
                         (e.copied_floats ? "; " + percent(floats) + " of their bytes are floats" : ""),
                 .remedy = can_shrink
                               ? "send fewer bytes: give fields as they are stored (uint8, fp16) and convert them to floats in "
                                 "prepare(), or use smaller crops"
                               : "use smaller crops, or leave out fields that no step needs",
                 .key = {},
                 .value = {},
                 .gain = floats > 0 ? std::optional(gain_of(share * kCopyLess * floats, 0.5)) : std::nullopt};
}

// Fires if steps on a GPU copy values to the host. On a CPU nothing is copied.
Found host_wait(const Evidence& e) {
  if (!e.on_gpu || !e.census || e.census->host_reads == 0 || item_in_loop(e)) return std::nullopt;
  return Finding{.id = {},
                 .what = "a step asks the GPU for " + with_commas(e.census->host_reads) +
                         " values, and waits each time until all earlier work is done",
                 .remedy = "keep values on the device (no item(), no comparison in an if); log lines read them",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

Found oversubscribed(const Evidence& e) {
  if (e.script && !e.experiments.threads) return too_many_threads(e);
  const auto& threads = e.experiments.threads;
  if (!threads || threads->ratio < 1.05) return std::nullopt;
  return set((e.script ? "the number of torch's threads is " : "device.threads is ") + std::to_string(threads->asked) + " on " +
                 std::to_string(threads->cores) + (threads->cores == 1 ? " core" : " cores") +
                 ": with as many threads as cores a step was " + significant(threads->ratio, 3) + " times as fast",
             "device.threads", std::to_string(threads->cores), gain_of((1 - 1 / threads->ratio) * core_share(e), 0.25));
}

// Fires if other programs use the cores. `one`: the wait if one thread loses its core. `either`: the wait if two threads lose
// their cores independently, because a step waits for the last of its threads. The real wait is between `one` and `either`. A
// script's step may sleep, and needs no core while it sleeps.
Found neighbours(const Evidence& e) {
  if (!e.others || *e.others < kNeighbours) return std::nullopt;
  double one = *e.others * core_share(e);
  if (e.script && e.core_wait_seconds) one = std::min(one, *e.core_wait_seconds / std::max(e.times.loop(), 1e-9));
  const double either = e.cores > 1 ? one * (2 - *e.others) : one;
  Finding finding{
      .id = {},
      .what = "other programs used the cores for " + percent(*e.others) + " of the time in which this run needed them",
      .remedy = "end them, or give the run its own cores (taskset, the batch system)",
      .key = {},
      .value = {},
      .gain = Finding::Gain{.likely = (one + either) / 2, .low = 0.75 * one, .high = either}};
  if (const int threads = threads_beside_others(e)) {
    finding.change = with_threads(*e.script, threads);
    finding.what += ", and torch's " + std::to_string(e.script->threads) + " threads then wait for the thread that has no core";
    finding.remedy += "; else try " + finding.change->text;
  }
  return finding;
}

// Fires if the median time of a step rises from the first third of the run to the second, and again to the last. Then it is a
// trend, not a short disturbance.
Found slowing_down(const Evidence& e) {
  const std::vector<double>& ms = e.step_ms;
  if (ms.size() < kLines) return std::nullopt;
  const bool beside_others = e.others.value_or(0) >= kNeighbours;
  if (e.script && beside_others) return std::nullopt;  // it is not known how much other programs slow a script's step
  const double slower = beside_others ? kSlowerBeside : kSlower;
  const auto third = static_cast<std::ptrdiff_t>(ms.size() / 3);
  const double first = median({ms.begin(), ms.begin() + third});
  const double middle = median({ms.begin() + third, ms.end() - third});
  const double last = median({ms.end() - third, ms.end()});
  if (last < slower * first || middle < first * 1.05 || last < middle * 1.05) return std::nullopt;
  const double all = std::accumulate(ms.begin(), ms.end(), 0.0) / static_cast<double>(ms.size());
  const double begin = median({ms.begin(), ms.begin() + 3});
  return Finding{.id = {},
                 .what = "steps take longer and longer: " + significant(first, 3) + " ms at first, " + significant(middle, 3) +
                         " ms then, " + significant(last, 3) + " ms now",
                 .remedy =
                     "something grows from step to step, in the recipe or its data, such as a list, a graph that is kept, or a "
                     "file that is opened again; --profile shows which operation takes longer",
                 .key = {},
                 .value = {},
                 .gain = gain_of((1 - begin / all) * work_share(e), 0.25)};
}

// Fires if steps take longer than in earlier runs. Does not fire while other programs use the cores, because during the earlier
// runs the cores may have been free.
Found slower_than_before(const Evidence& e) {
  if (e.earlier.step_ms.size() < kEarlierRuns || e.step_ms.size() < kLines) return std::nullopt;
  if (e.others && *e.others >= kNeighbours) return std::nullopt;
  const double before = median(e.earlier.step_ms), now = median(e.step_ms);
  if (now < kSlower * before) return std::nullopt;
  return Finding{.id = {},
                 .what = "a step takes " + significant(now, 3) + " ms, but took " + significant(before, 3) +
                         " ms in the median of " + std::to_string(e.earlier.step_ms.size()) + " earlier runs of this " +
                         (e.script ? "script" : "config") + " on this machine",
                 .remedy = "see what differs: millrace compare " + e.earlier.newest + " " + e.run,
                 .key = {},
                 .value = {},
                 .gain = gain_of((1 - before / now) * work_share(e), 0.25)};
}

// Fires if launching limits the GPU. If launching does not limit it, the GPU is behind the host at a log line, by a step or by
// the length of its queue.
Found launch_bound(const Evidence& e) {
  if (!e.on_gpu || !e.launches || e.share(Phase::data_wait) >= kEnoughData) return std::nullopt;
  const Evidence::Launches& step = *e.launches;
  if (step.device_ms <= 0 || step.host_ms < kLaunches * step.device_ms || step.behind_ms > kBehind * step.device_ms)
    return std::nullopt;
  std::string what = "the GPU waits for launches: the host takes " + significant(step.host_ms, 3) +
                     " ms to launch a step, and the GPU finishes it " + significant(step.behind_ms, 3) + " ms later";
  if (e.gpu) what += "; it computes " + percent(e.gpu->utilisation) + " of the time";
  return Finding{.id = {},
                 .what = std::move(what),
                 .remedy =
                     "use larger batches (data.batch_size; tune the learning rate too), and fewer, larger operations in the "
                     "model; --profile shows the small ones",
                 .key = {},
                 .value = {},
                 .gain = e.gpu ? std::optional(gain_of(std::max(0.0, 1 - e.gpu->utilisation / kGpuBusy) * work_share(e), 0.5))
                               : std::nullopt};
}

// Fires if the GPU is idle for much of the time. The gain assumes that the remedy makes the GPU busy for the share of time that
// vendors' guides ask for.
Found gpu_idle(const Evidence& e) {
  if (launch_bound(e)) return std::nullopt;  // launch_bound explains why the GPU is idle
  if (!e.gpu || e.gpu->utilisation >= kGpuIdle || e.share(Phase::data_wait) >= kEnoughData) return std::nullopt;
  return Finding{.id = {},
                 .what = "the GPU computes " + percent(e.gpu->utilisation) + " of the time (vendors' guides ask for " +
                         percent(kGpuBusy) + ") although batches are ready: the host gives it too little work at a time",
                 .remedy =
                     "use larger batches (data.batch_size; tune the learning rate too), and fewer, larger operations; "
                     "--profile shows what the host does meanwhile",
                 .key = {},
                 .value = {},
                 .gain = gain_of((1 - e.gpu->utilisation / kGpuBusy) * work_share(e), 0.5)};
}

Found gpu_held_back(const Evidence& e) {
  if (!e.gpu || e.gpu->held_back.empty() || e.gpu->mhz <= 0 || e.gpu->mhz >= kLowClock * e.gpu->most_mhz) return std::nullopt;
  return Finding{.id = {},
                 .what = "the GPU's clock fell to " + significant(e.gpu->mhz, 4) + " of " + significant(e.gpu->most_mhz, 4) +
                         " MHz: " + joined(e.gpu->held_back, ", "),
                 .remedy = "look at cooling and at the power limit (nvidia-smi -q -d PERFORMANCE,POWER)",
                 .key = {},
                 .value = {},
                 .gain = gain_of((1 - e.gpu->mhz / e.gpu->most_mhz) * work_share(e), 0.5)};
}

// Fires if the CPU's clock has fallen in a run on a CPU; steps on a GPU hardly depend on the host's clock. Work that waits for
// memory gains less from a faster clock, but all other work of the process gains too.
Found clock_throttled(const Evidence& e) {
  if (e.on_gpu || !e.clock || e.clock->now_mhz > kFallenClock * e.clock->before_mhz) return std::nullopt;
  const double likely = e.clock->lost * (work_share(e) + e.share(Phase::optimizer));
  return Finding{.id = {},
                 .what = "the clock of the cores fell from " + significant(e.clock->before_mhz, 4) +
                         " MHz in the run's first minute to " + significant(e.clock->now_mhz, 4) + " MHz under the same load",
                 .remedy =
                     "look at cooling, at the power limit of the machine or the batch system (cpupower frequency-info), and at "
                     "other jobs in the same socket",
                 .key = {},
                 .value = {},
                 .gain = Finding::Gain{.likely = likely, .low = likely / 2, .high = std::max(likely, e.clock->lost)}};
}

// Fires if much time belongs to no account. One cause, which the rule `neighbours` reports, is that the loop lost its core
// between two accounts.
Found unaccounted(const Evidence& e) {
  const double share = e.share(Phase::rest);
  if (share < kUnaccounted || e.run_seconds < kUnaccountedAfter) return std::nullopt;
  if (e.others && *e.others >= std::max(kNeighbours, share)) return std::nullopt;
  return Finding{.id = {},
                 .what = percent(share) + " of the time is in no account: neither in data, nor in the step, nor in logging",
                 .remedy = "run with --profile to see what runs in that time, and please report it",
                 .key = {},
                 .value = {},
                 .gain = Finding::Gain{share / 2, 0, share}};
}

}  // namespace millrace::doctor::detail
