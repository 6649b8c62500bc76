// The targets in a run's config, with the values it reached.
#pragma once

#include <optional>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/doctor/evidence.h"
#include "millrace/train/recipe/config.h"

namespace millrace {

// What a part of a run achieved; nullopt = no result.
struct Reached {
  std::optional<double> train_it_per_s, validation_it_per_s, samples_per_s, data_wait, gpu_busy;
};

// The targets that the config sets and for which `reached` has a result.
[[nodiscard]] std::vector<doctor::Evidence::Target> targets_of(const TargetsConfig& config, const Reached& reached);
// [{key, asked, measured, met}] of all targets that the config sets; one that is not among `measured` has measured null and is
// not met.
[[nodiscard]] Json to_json(const TargetsConfig& config, const std::vector<doctor::Evidence::Target>& measured);

}  // namespace millrace
