// The names that a recipe's own values can't have.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace millrace {

// The keys that Millrace itself puts into a step or validation line of log.jsonl, or into a row of history.csv. A recipe's own
// values are in the same lines under their own names, so a value with such a name would replace Millrace's value, or be
// replaced. The key of the rate is not in the list, because the recipe chooses it (Facts::rate_unit).
inline constexpr std::array<std::string_view, 28> kLogKeys = {
    "kind",        "time",       "step",       "epoch",       "seconds",          "it_per_s",        "metric_versions",
    "samples",     "skipped",    "shares",     "accounts",    "others",           "step_ms_p50",     "step_ms_p95",
    "host_ms",     "lr",         "gpu",        "grad_norm",   "spikes",           "loss_scale",      "absent",
    "cache_bytes", "train_loss", "memory_rss", "memory_peak", "memory_allocated", "memory_reserved", "cache_hit_rate"};

[[nodiscard]] constexpr bool is_log_key(std::string_view name) { return std::ranges::find(kLogKeys, name) != kLogKeys.end(); }

}  // namespace millrace
