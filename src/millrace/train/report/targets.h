// What a run's config asks it to reach, beside what it reached.
#pragma once

#include <optional>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/doctor/evidence.h"
#include "millrace/train/recipe/config.h"

namespace millrace {

// Of a stretch of the loop; nullopt = it had none.
struct Reached {
  std::optional<double> train_it_per_s, validation_it_per_s, samples_per_s, data_wait, gpu_busy;
};

// Those that the config asks for and that the stretch has.
[[nodiscard]] std::vector<doctor::Target> targets_of(const TargetsConfig& config, const Reached& reached);
[[nodiscard]] Json to_json(const std::vector<doctor::Target>& targets);  // [{key, asked, measured, met}]

}  // namespace millrace
