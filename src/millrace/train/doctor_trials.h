// What the doctor tries beside a run: the run's own step in other ways, and a census of its operations.
#pragma once

#include <cstdint>
#include <optional>

#include "millrace/doctor/evidence.h"
#include "millrace/train/assembly.h"

namespace millrace {

struct DoctorTrials {
  doctor::Experiments experiments;
  std::optional<doctor::Census> census;  // nullopt: there was no batch
};

// Steps that try_remedies() makes at most, each about as long as one of the run's.
inline constexpr std::int64_t kDoctorTrialSteps = 14;

// Between two steps, in the loop's thread; changes no bit of the run. What goes wrong leaves a trial out.
[[nodiscard]] DoctorTrials try_remedies(Assembly& assembly);

}  // namespace millrace
