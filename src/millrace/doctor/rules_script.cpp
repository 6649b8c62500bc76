// Rules about training scripts, for faults around a DataLoader and in Python.
#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/doctor/detail/rule_list.h"
#include "millrace/doctor/detail/script_words.h"

namespace millrace::doctor::detail {
namespace {

using telemetry::Phase;

constexpr double kRespawns = 0.03;  // if starting workers takes at least this share of the loop's time, it is reported
constexpr double kWorthAChange = 0.05;
constexpr double kAllBusy = 0.85;  // if more than this share of the cores is busy, workers wait for cores
constexpr double kInWay = 0.10;    // share of the loop's time in which the loop waits for data or for a core
// kCopiesUnpinned: share of the time spent on copies; kPinnedSaves: the part of this share that pinned memory saves
constexpr double kCopiesUnpinned = 0.03, kPinnedSaves = 0.7;
constexpr double kItems = 0.03;
// number of threads in a worker that computes in a single thread: its own, its queue's and the allocator's
constexpr int kOwnTasks = 3;
constexpr double kInPython = 0.4;  // share of the samples that found the loop's thread in Python's own code
constexpr std::int64_t kEnoughLooks = 50;
// kFaultsPerStep: page faults in a step; kInKernel: share of the CPU time that is spent in the kernel
constexpr double kFaultsPerStep = 1000, kInKernel = 0.04;
constexpr double kFaultSeconds = 1.4e-6;  // seconds that a page fault costs a step, including evicted caches

const Script::Loader* loader_of(const Evidence& e) { return e.script && e.script->loader ? &*e.script->loader : nullptr; }

double work_seconds(const Evidence& e) { return e.times.loop() - e.times.of(Phase::data_wait); }

Found changed(std::string what, Finding::Change change, std::string where, std::optional<Finding::Gain> gain) {
  Finding finding{.id = {}, .what = std::move(what), .remedy = remedy_of(change, where), .key = {}, .value = {}, .gain = gain};
  finding.where = std::move(where);
  finding.change = std::move(change);
  return finding;
}

std::string at(const std::string& where) { return where.empty() ? "" : " (" + where + ")"; }

// The line, with `to` in place of each `from`.
std::string rewritten(std::string line, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = line.find(from, at)) != std::string::npos; at += to.size()) line.replace(at, from.size(), to);
  return line;
}

std::string short_duration(double seconds) {
  return seconds < 1 ? significant(seconds * 1e3, 3) + " ms" : human_duration(seconds);
}

std::string workers_text(int workers) { return std::to_string(workers) + (workers == 1 ? " worker" : " workers"); }

// The time that the stretch would have taken if the loop read its batches itself, without processes that compete for its cores.
// While all cores are busy, workers also wait for a core, and that wait does not count as reading.
double seconds_without_workers(const Evidence& e) {
  const double work = work_seconds(e), loop = e.times.loop();
  const double waited = std::max(0.0, e.core_wait_seconds.value_or(0) - e.others.value_or(0) * loop);
  const double busy = e.work_cpu_seconds.value_or(work * e.cores) + e.input.read_cpu_seconds;
  const double read = busy > kAllBusy * e.cores * loop ? e.input.read_cpu_seconds : e.input.read_seconds;
  return work - std::min(waited, work / 2) + read;
}

// Fires if the script has far more workers than the loop needs and the loop waits in each pass until all have started.
Found many_starts(const Evidence& e, const Script::Loader& loader) {
  const int enough = enough_readers(e);
  const double lost = restart_seconds(e);
  if (lost < kWorthAChange * e.times.loop() || loader.workers <= std::max(e.cores, 2 * enough)) return std::nullopt;
  return changed(workers_text(loader.workers) + " take " + human_duration(lost / (loader.epochs - 1)) +
                     " to start in each pass, " + percent(lost / e.times.loop()) + " of the time, and " + workers_text(enough) +
                     (enough == 1 ? " reads" : " read") + " as fast as the steps need data",
                 change_of(*e.script, {{"data.workers", enough}, {"loader.persistent", true}}), loader.where,
                 gain_of(lost / e.times.loop()));
}

}  // namespace

double restart_seconds(const Evidence& e) {
  const Script::Loader* const loader = loader_of(e);
  if (loader == nullptr || loader->workers == 0 || loader->persistent || loader->epochs < 2) return 0;
  const double first_read = loader->sample_seconds * static_cast<double>(loader->batch_size);
  const double usual = (loader->epochs - 1) * std::max(loader->usual_batch_seconds, first_read);
  const double waited = std::clamp(loader->first_batch_seconds - usual, 0.0, e.times.of(Phase::data_wait));
  return waited + std::clamp(loader->slow_start_seconds, 0.0, work_seconds(e) / 2);
}

Found workers_respawn(const Evidence& e) {
  const double lost = restart_seconds(e);
  if (lost <= 0 || lost < kRespawns * e.times.loop() || many_starts(e, *loader_of(e))) return std::nullopt;
  const Script::Loader& loader = *loader_of(e);
  return changed(workers_text(loader.workers) + (loader.workers == 1 ? " is" : " are") + " started again in each of " +
                     significant(loader.epochs, 3) + " passes over the data: the first batch of a pass comes after " +
                     short_duration(loader.first_batch_seconds / (loader.epochs - 1)) + ", others after " +
                     short_duration(loader.usual_batch_seconds),
                 change_of(*e.script, {{"loader.persistent", true}}), loader.where, gain_of(lost / e.times.loop()));
}

// Fires if workers cost more time than they save. Workers cost time when they start, and they compete with the loop for cores
// while they hand over batches. This can be measured only if no other program uses the cores.
Found too_many_workers(const Evidence& e) {
  const Script::Loader* const loader = loader_of(e);
  if (loader == nullptr || loader->workers == 0 || e.input.read_seconds <= 0) return std::nullopt;
  if (Found starts = many_starts(e, *loader)) return starts;
  const double loop = e.times.loop(), without = seconds_without_workers(e);
  const double gain = 1 - without / loop;
  if (gain < kInWay || without > loop - restart_seconds(e) || !e.others || *e.others >= kInWay) return std::nullopt;
  ScriptSettings settings = {{"data.workers", 0}};
  if (loader->persistent) settings.emplace_back("loader.persistent", false);
  return changed("reading in " + workers_text(loader->workers) + " costs more than it saves: steps wait for data " +
                     percent(e.share(Phase::data_wait)) + " of the time, but the loop itself could read the same data in " +
                     percent(std::max(0.0, without - work_seconds(e)) / loop) + " of the time",
                 change_of(*e.script, settings), loader->where, gain_of(gain, 0.25));
}

// Fires if workers use several threads. Predicts no gain, because the cost of more threads depends on what the threads do.
// Threads that are not torch's belong to OpenCV or to a BLAS.
Found threads_in_workers(const Evidence& e) {
  const Script::Loader* const loader = loader_of(e);
  if (loader == nullptr || loader->workers == 0) return std::nullopt;
  const bool of_torch = loader->worker_threads > 1;
  const int threads = of_torch ? loader->worker_threads : loader->worker_tasks - kOwnTasks;
  const bool waits = e.share(Phase::data_wait) >= kInWay || e.core_wait_seconds.value_or(0) >= kInWay * e.times.loop();
  if (threads < 2 || loader->workers * threads <= e.cores || !waits) return std::nullopt;
  const bool is_one = loader->workers == 1;
  const std::string what = workers_text(loader->workers) + (is_one ? " computes with " : " compute with ") +
                           std::to_string(threads) + (is_one ? " threads on " : " threads each on ") + std::to_string(e.cores) +
                           (e.cores == 1 ? " core" : " cores") + ", and steps wait for data " +
                           percent(e.share(Phase::data_wait)) + " of the time";
  if (!of_torch)
    return changed(what, {.text = "cv2.setNumThreads(0) or threadpoolctl.threadpool_limits(1) in worker_init_fn"}, loader->where,
                   std::nullopt);
  const Json one_thread = {{"code", "lambda worker: torch.set_num_threads(1)"}};
  return changed(what, change_of(*e.script, {{"loader.worker_init", one_thread}}), loader->where, std::nullopt);
}

// Fires if validations wait for data. The workers of a validation read its next batches while the loop computes, so they need
// cores in addition to those of the loop's threads.
Found validation_input(const Evidence& e) {
  if (!e.script || !e.script->validation_input || e.script->validation_input->workers > 0) return std::nullopt;
  const Script::ValidationInput& input = *e.script->validation_input;
  const double loop = e.times.loop(), all = e.times.of(Phase::validate), waits = std::min(input.wait_seconds, all);
  if (waits < kInWay * loop) return std::nullopt;
  const double work = all - waits, cpu = std::min(input.read_cpu_seconds, waits);
  const double threads = std::clamp(e.work_cpu_seconds.value_or(e.cores * loop) / std::max(work_seconds(e), 1e-9), 1.0,
                                    static_cast<double>(e.cores));
  const int workers = enough_readers(work, waits, cpu > waits / 2, e.cores);
  const double gain = (all - std::max({work, waits / workers, (cpu + work * threads) / e.cores})) / loop;
  if (gain < kWorthAChange) return std::nullopt;
  return changed(
      "validations wait for data " + percent(waits / loop) + " of the time: their DataLoader reads in the loop's own thread",
      change_of(*e.script, {{"data.workers", workers}, {"loader.persistent", true}}), input.where, gain_of(gain));
}

// Fires if copies to the GPU take long and the batches are in host memory that is not pinned. The GPU can copy by itself only
// from pinned memory.
Found not_pinned(const Evidence& e) {
  const Script::Loader* const loader = loader_of(e);
  if (loader == nullptr || loader->pinned || !e.on_gpu || e.share(Phase::copy) < kCopiesUnpinned) return std::nullopt;
  return changed(
      "copying batches to the GPU takes " + percent(e.share(Phase::copy)) +
          " of the time, because their memory is not pinned: the driver copies each batch once more, and the loop waits for that",
      change_of(*e.script, {{"loader.pinned", true}}), loader->where, gain_of(kPinnedSaves * e.share(Phase::copy), 0.4));
}

// Fires if the loop often reads single values. On a GPU, such a read makes the host wait for all work that was launched before.
// Only the time in which the GPU then waits for the host is lost.
Found item_in_loop(const Evidence& e) {
  if (!e.script || !e.script->item_calls) return std::nullopt;
  const Script::ItemCalls& calls = *e.script->item_calls;
  const double share = calls.seconds / e.times.loop();
  std::optional<double> gain;
  if (!e.on_gpu)
    gain = share;
  else if (e.launches && e.launches->device_ms > 0 && e.times.step_ms_p50 > 0)
    gain = std::max(0.0, 1 - std::max(e.launches->host_ms, e.launches->device_ms) / e.times.step_ms_p50) *
           (work_seconds(e) / e.times.loop());
  else if (e.gpu)
    gain = std::min(share, (1 - e.gpu->utilisation) * (work_seconds(e) / e.times.loop()));
  // With fewer reads than steps, values are read only at log lines, so the rule does not fire.
  if (calls.count > 0 && e.on_gpu && calls.count < e.times.steps) return std::nullopt;
  if (gain.value_or(share) < kItems) return std::nullopt;
  Finding::Change change{.text = e.on_gpu ? "detach() in the loop, and item() every 50 steps"
                                          : "computing with whole tensors instead of single values"};
  const std::string line = e.on_gpu ? rewritten(calls.line, ".item()", ".detach()") : calls.line;
  if (line != calls.line) {
    change.text = line;
    change.replace = {{calls.line, line}};
  }
  const double in_a_step = static_cast<double>(calls.count) / static_cast<double>(std::max<std::int64_t>(e.times.steps, 1));
  return changed("the loop reads single values of tensors" + at(calls.where) +
                     (calls.count > 0 ? ", " + significant(in_a_step, 2) + " in a step," : "") + " and waits for them " +
                     percent(share) + " of the time" +
                     (e.gpu ? "; the GPU computes " + percent(e.gpu->utilisation) + " of the time" : ""),
                 std::move(change), calls.where, gain ? std::optional(gain_of(*gain, 0.3)) : std::nullopt);
}

// Fires if Python's own code takes much of the loop's time. A sample names the line at which a stretch of Python code ended.
// Samples of the same stretch may name different lines, so the gain counts all lines. Reading is excluded, because its time is
// in data_wait or in the workers.
Found gil_bound(const Evidence& e) {
  if (!e.script || !e.script->python || e.script->python->samples < kEnoughLooks || item_in_loop(e)) return std::nullopt;
  const Script::PythonLooks& looks = *e.script->python;
  if (looks.gil_share < kInPython) return std::nullopt;
  const double work = work_seconds(e) / e.times.loop();
  const bool has_line = looks.where_share > 0.25 * looks.gil_share;
  return Finding{
      .id = {},
      .what = "the loop's thread runs Python code at " + percent(looks.gil_share) + " of " + with_commas(looks.samples) +
              " random moments" + (has_line ? ", and the line " + looks.where + " at " + percent(looks.where_share) : "") +
              ": torch has nothing to do then",
      .remedy = has_line
                    ? "rewrite " + looks.where + " with operations on whole tensors, or move it out of the loop"
                    : "use fewer and larger operations, for which Python has less to do: torch.compile(model), or optimisers "
                      "with foreach=True or fused=True",
      .key = {},
      .value = {},
      .gain = has_line
                  ? std::optional(gain_of(looks.gil_share * work, 0.25))
                  : std::optional(Finding::Gain{.likely = looks.gil_share * work / 2, .low = 0, .high = looks.gil_share * work}),
      .where = has_line ? looks.where : ""};
}

// Fires if page faults take much of a step. The time in the kernel is a lower bound of their cost, because a new page must also
// be cleared, and it evicts other pages from the caches.
Found page_faults(const Evidence& e) {
  if (!e.script || !e.script->faults || e.script->faults->below_headrace_run || e.times.steps <= 0) return std::nullopt;
  const Script::Faults& faults = *e.script->faults;
  if (faults.minor_per_step < kFaultsPerStep || faults.system_cpu_share < kInKernel) return std::nullopt;
  const double work = work_seconds(e);
  const double by_count = faults.minor_per_step * kFaultSeconds * static_cast<double>(e.times.steps);
  const double gain = std::clamp(std::max(by_count / e.times.loop(), faults.system_cpu_share * work / e.times.loop()), 0.0, 0.9);
  if (gain < kWorthAChange) return std::nullopt;
  Finding::Change change{.text =
                             "headrace run -- " + (e.script->command.empty() ? "python " + e.script->path : e.script->command)};
  change.command = change.text;
  return changed("a step requests " + with_commas(std::llround(faults.minor_per_step)) +
                     " new pages of memory from the kernel, which takes " + percent(faults.system_cpu_share) +
                     " of the CPU time: malloc has returned memory that the next step needs again",
                 std::move(change), "", gain_of(gain, 0.35));
}

Found list_growing(const Evidence& e) {
  if (!e.script || !e.script->kept_graphs || e.script->kept_graphs->growth_bytes_per_step <= 0) return std::nullopt;
  const Script::KeptGraphs& kept = *e.script->kept_graphs;
  std::string what = (kept.list.empty() ? std::string("something") : kept.list) + at(kept.where) +
                     " keeps tensors with the graph that made them, " + human_bytes(kept.growth_bytes_per_step) +
                     " more in each step";
  if (e.memory.room > e.memory.used) {
    const double steps = static_cast<double>(e.memory.room - e.memory.used) / kept.growth_bytes_per_step;
    if (steps < 1e7) what += ": memory is used up after " + with_commas(std::llround(steps)) + " more steps";
  }
  Finding::Change change{.text = "keep item() or detach() of the tensors"};
  const std::size_t open = kept.line.find(".append("), close = kept.line.rfind(')');
  if (open != std::string::npos && close != std::string::npos && close > open) {
    std::string line = kept.line;
    line.insert(close, ".detach()");
    change.text = line;
    change.replace = {{kept.line, line}};
  }
  return changed(std::move(what), std::move(change), kept.where, std::nullopt);
}

}  // namespace millrace::doctor::detail
