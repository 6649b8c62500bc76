// Declares the functions of all rules, grouped by source file.
#pragma once

#include <optional>

#include "millrace/doctor/evidence.h"
#include "millrace/doctor/finding.h"

namespace millrace::doctor::detail {

using Found = std::optional<Finding>;

// In rules_input.cpp:
Found bad_samples(const Evidence& evidence);
Found slow_file(const Evidence& evidence);
Found slow_sample(const Evidence& evidence);
Found no_readers(const Evidence& evidence);
Found few_readers(const Evidence& evidence);
Found cache_off(const Evidence& evidence);
Found input_bound(const Evidence& evidence);

// In rules_time.cpp:
Found log_often(const Evidence& evidence);
Found snapshot_often(const Evidence& evidence);
Found validate_often(const Evidence& evidence);
Found small_batch(const Evidence& evidence);
Found precision_unused(const Evidence& evidence);
Found layout(const Evidence& evidence);
Found recompute_unneeded(const Evidence& evidence);
Found rebuilt_tensors(const Evidence& evidence);
Found copy_bound(const Evidence& evidence);
Found host_wait(const Evidence& evidence);
Found oversubscribed(const Evidence& evidence);
Found neighbours(const Evidence& evidence);
Found slowing_down(const Evidence& evidence);
Found slower_than_before(const Evidence& evidence);
Found launch_bound(const Evidence& evidence);
Found gpu_idle(const Evidence& evidence);
Found gpu_held_back(const Evidence& evidence);
Found clock_throttled(const Evidence& evidence);
Found unaccounted(const Evidence& evidence);

// In rules_numbers.cpp:
Found not_finite(const Evidence& evidence);
Found spikes(const Evidence& evidence);
Found loss_flat(const Evidence& evidence);
Found loss_vanished(const Evidence& evidence);
Found loss_spiking(const Evidence& evidence);
Found gradient_norm(const Evidence& evidence);
Found loss_pinned(const Evidence& evidence);
Found saturated_clamp(const Evidence& evidence);
Found overfitting(const Evidence& evidence);
Found recompute_needed(const Evidence& evidence);
Found memory_high(const Evidence& evidence);
Found memory_growing(const Evidence& evidence);

// In rules_device.cpp:
Found wrong_device(const Evidence& evidence);
Found fragmented(const Evidence& evidence);
Found changing_shapes(const Evidence& evidence);
Found uneven_ranks(const Evidence& evidence);

// In rules_wishes.cpp:
Found few_judges(const Evidence& evidence);
Found target_missed(const Evidence& evidence);

// In rules_script.cpp; these rules fire only for a script:
Found workers_respawn(const Evidence& evidence);
Found too_many_workers(const Evidence& evidence);
Found threads_in_workers(const Evidence& evidence);
Found validation_input(const Evidence& evidence);
Found not_pinned(const Evidence& evidence);
Found item_in_loop(const Evidence& evidence);
Found gil_bound(const Evidence& evidence);
Found page_faults(const Evidence& evidence);
Found list_growing(const Evidence& evidence);

// The time that the stretch would have taken with `readers` readers. This is the longest of three times: the loop's own work;
// the reading time divided among the readers; the CPU time of work and reading divided among the cores. If the CPU time of the
// loop's work is unknown, the work counts as using all cores. If a script's step uses all cores, the step hardly progresses
// while one of its threads has no core, because each operation waits for all threads.
[[nodiscard]] double seconds_with(const Evidence& evidence, int readers);
// The smallest number of readers with which steps hardly wait for data.
[[nodiscard]] int enough_readers(const Evidence& evidence);
// Like enough_readers(evidence), but for the given times. `computes`: readers compute most of the time, so more readers than
// cores do not help.
[[nodiscard]] int enough_readers(double work_seconds, double read_seconds, bool computes, int cores);
// The time that the stretch lost because a script starts its workers again in each pass.
[[nodiscard]] double restart_seconds(const Evidence& evidence);
// A finding whose remedy is to set the config key `key` to `value`.
[[nodiscard]] Finding set(std::string what, std::string key, std::string value, std::optional<Finding::Gain> gain);

}  // namespace millrace::doctor::detail
