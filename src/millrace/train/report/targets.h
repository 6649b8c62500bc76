// The speed targets in a run's config, compared with the values that the run reached.
#pragma once

#include <optional>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/doctor/evidence.h"
#include "millrace/train/recipe/config.h"

namespace millrace {

// The values that a part of a run reached; nullopt = not measured.
struct Reached {
  std::optional<double> train_it_per_s, validation_it_per_s, samples_per_s, data_wait, gpu_busy;
};

// Of the targets that the config sets, those whose value was measured, with that value.
[[nodiscard]] std::vector<doctor::Evidence::Target> targets_of(const TargetsConfig& config, const Reached& reached);
// [{key, asked, measured, met}] of all targets that the config sets. A target that is not among `measured` gets measured = null
// and is not met.
[[nodiscard]] Json to_json(const TargetsConfig& config, const std::vector<doctor::Evidence::Target>& measured);

}  // namespace millrace
