#include "millrace/doctor/rules.h"

#include <array>

#include "millrace/doctor/detail/rule_list.h"
#include "millrace/doctor/detail/script_words.h"

namespace millrace::doctor {
namespace {

constexpr double kLeastSeconds = 1;  // seconds; in a shorter stretch of the loop, only the rules with `at_once` judge
constexpr std::int64_t kLeastSteps = 10;

constexpr std::array kRules = {
    Rule{"not_finite",
         "steps are skipped, because their gradients are not finite",
         detail::not_finite,
         Stake::run,
         {},
         false,
         true},
    Rule{"spikes", "steps are skipped, because their loss or gradient jumped", detail::spikes, Stake::run},
    Rule{"saturated_clamp", "most values are at the border of a clamp, where no gradient goes through", detail::saturated_clamp,
         Stake::run},
    Rule{"loss_flat", "the loss does not move at all", detail::loss_flat, Stake::run},
    Rule{"loss_vanished", "the loss is nearly 0", detail::loss_vanished, Stake::run},
    Rule{"loss_spiking", "the loss jumps up again and again", detail::loss_spiking, Stake::run},
    Rule{"loss_pinned", "the loss stays at the level of an answer that ignores the input", detail::loss_pinned, Stake::run},
    Rule{"gradient_norm", "gradients vanish or explode", detail::gradient_norm, Stake::run},
    Rule{"overfitting", "the validation loss rises while the training loss falls", detail::overfitting, Stake::run},
    Rule{"few_judges", "a validation has too few samples to be conclusive", detail::few_judges},
    Rule{"recompute_needed", "memory is nearly used up, and recompute is off", detail::recompute_needed, Stake::run},
    Rule{"memory_high", "memory is nearly used up", detail::memory_high, Stake::run, {}, true},
    Rule{"fragmented", "the GPU's allocator keeps much more than tensors ever held", detail::fragmented},
    Rule{"list_growing", "tensors are kept with the graph that made them", detail::list_growing, Stake::run, {}, true},
    Rule{"memory_growing", "tensors use more memory at each log line", detail::memory_growing, Stake::run, {}, true},
    Rule{"bad_samples", "samples can't be read", detail::bad_samples},
    Rule{"slow_file", "single files hold up the loader", detail::slow_file, Stake::time, {"data_wait"}},
    Rule{"slow_sample", "single samples hold up the loader", detail::slow_sample, Stake::time, {"data_wait"}},
    Rule{"no_readers", "batches are read in the loop's thread", detail::no_readers, Stake::time, {"data_wait"}},
    Rule{"few_readers", "data.workers is too small", detail::few_readers, Stake::time, {"data_wait"}},
    Rule{"workers_respawn", "workers are started again in each pass", detail::workers_respawn, Stake::time, {"data_wait"}},
    Rule{"too_many_workers", "workers cost more time than they save", detail::too_many_workers, Stake::time, {"data_wait"}},
    Rule{"threads_in_workers",
         "workers compute with more threads than there are cores",
         detail::threads_in_workers,
         Stake::time,
         {"data_wait"}},
    Rule{"cache_off", "data that would fit into memory is decoded again", detail::cache_off, Stake::time, {"data_wait"}},
    Rule{"input_bound", "the readers can't keep up", detail::input_bound, Stake::time, {"data_wait"}},
    Rule{"log_often", "log lines take a part of the time", detail::log_often, Stake::time, {"log"}},
    Rule{"snapshot_often", "snapshots take a part of the time", detail::snapshot_often, Stake::time, {"snapshot"}},
    Rule{"validate_often", "validations take a large part of the time", detail::validate_often, Stake::time, {"validate"}},
    Rule{"validation_input",
         "validations wait for batches that are read in the loop's thread",
         detail::validation_input,
         Stake::time,
         {"validate"}},
    Rule{"small_batch",
         "most of a step's time does not depend on the number of rows",
         detail::small_batch,
         Stake::time,
         {"forward", "backward", "optimizer"}},
    Rule{"precision_unused", "half precision is faster, but off", detail::precision_unused, Stake::time, {"forward", "backward"}},
    Rule{"layout", "the other memory layout is faster, but ruled out", detail::layout, Stake::time, {"forward", "backward"}},
    Rule{"recompute_unneeded",
         "activations are computed twice, although memory is free",
         detail::recompute_unneeded,
         Stake::time,
         {"backward"}},
    Rule{"rebuilt_tensors",
         "the same tensors are made in every step",
         detail::rebuilt_tensors,
         Stake::time,
         {"forward", "backward", "prepare"}},
    Rule{"not_pinned",
         "batches are copied to the GPU from memory that can be swapped out",
         detail::not_pinned,
         Stake::time,
         {"copy"}},
    Rule{"copy_bound", "copying batches to the device takes long", detail::copy_bound, Stake::time, {"copy"}},
    Rule{"item_in_loop",
         "the loop reads single values of tensors",
         detail::item_in_loop,
         Stake::time,
         {"forward", "backward", "optimizer", "rest"}},
    Rule{"gil_bound",
         "the loop's thread runs Python code, not torch",
         detail::gil_bound,
         Stake::time,
         {"forward", "backward", "optimizer", "rest"}},
    Rule{"page_faults",
         "each step requests its memory from the kernel again",
         detail::page_faults,
         Stake::time,
         {"forward", "backward", "optimizer", "rest"}},
    Rule{"host_wait",
         "steps wait for values of the GPU",
         detail::host_wait,
         Stake::time,
         {"forward", "backward", "optimizer", "metrics"}},
    Rule{"wrong_device",
         "steps copy tensors between host and GPU",
         detail::wrong_device,
         Stake::time,
         {"forward", "backward", "prepare"}},
    Rule{"changing_shapes",
         "batches keep having new shapes",
         detail::changing_shapes,
         Stake::time,
         {"forward", "backward", "prepare"}},
    Rule{"uneven_ranks", "the ranks wait for one slow rank", detail::uneven_ranks, Stake::time, {"reduction"}},
    Rule{"oversubscribed", "more threads than cores", detail::oversubscribed, Stake::time, {"forward", "backward", "optimizer"}},
    Rule{"neighbours", "other programs use the cores", detail::neighbours, Stake::machine, {"others"}},
    Rule{"slowing_down",
         "steps take longer and longer",
         detail::slowing_down,
         Stake::time,
         {"data_wait", "prepare", "forward", "backward"}},
    Rule{"slower_than_before",
         "steps take longer than in earlier runs of this config",
         detail::slower_than_before,
         Stake::time,
         {"data_wait", "prepare", "forward", "backward"}},
    Rule{"launch_bound",
         "the GPU waits for the host to launch its work",
         detail::launch_bound,
         Stake::time,
         {"forward", "backward", "optimizer"}},
    Rule{"gpu_idle",
         "the GPU waits for the host, not for data",
         detail::gpu_idle,
         Stake::time,
         {"forward", "backward", "optimizer"}},
    Rule{"gpu_held_back",
         "the GPU's clock is held down",
         detail::gpu_held_back,
         Stake::machine,
         {"forward", "backward", "optimizer"}},
    Rule{"clock_throttled",
         "the clock of the cores has fallen since the run began",
         detail::clock_throttled,
         Stake::machine,
         {"forward", "backward", "optimizer"}},
    Rule{"target_missed", "a target in the config is not reached", detail::target_missed},
    Rule{"unaccounted", "time that no account explains", detail::unaccounted, Stake::time, {"rest"}},
};

}  // namespace

std::span<const Rule> rules() noexcept { return kRules; }

bool can_judge(const Evidence& evidence) noexcept {
  return evidence.times.steps >= kLeastSteps && evidence.times.loop() >= kLeastSeconds;
}

std::vector<Finding> findings_of(const Evidence& evidence) {
  std::vector<Finding> findings;
  const bool judges = can_judge(evidence);
  for (const Rule& rule : kRules) {
    if (!judges && !rule.at_once) continue;
    if (evidence.script && !detail::is_for_scripts(rule.id)) continue;
    if (auto finding = rule.look(evidence)) {
      finding->id = rule.id;
      if (evidence.script && !finding->change) detail::put_into_words(*finding, *evidence.script);
      finding->stake = rule.stake;
      finding->warned = rule.warned;
      findings.push_back(*std::move(finding));
    }
  }
  sort_findings(findings);
  return findings;
}

}  // namespace millrace::doctor
