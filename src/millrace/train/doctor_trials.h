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
  [[nodiscard]] Json to_json() const;    // what was tried, for summary.json
};

// Steps that try_remedies() makes at most in a run of this config, each about as long as one of the run's.
[[nodiscard]] std::int64_t doctor_trial_steps(const RunConfig& config);

// Between two steps, in the loop's thread; changes no bit of the run. What goes wrong leaves a trial out.
[[nodiscard]] DoctorTrials try_remedies(Assembly& assembly);

}  // namespace millrace
