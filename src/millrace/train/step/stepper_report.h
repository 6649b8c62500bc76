// What logs, plans and accounts of memory say of a stepper.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "millrace/train/step/stepper.h"

namespace millrace {

// One objective, as the last update left it.
struct ObjectiveReport {
  std::string name;
  double learning_rate = 0;
  double gradient_norm = 0;
  double spikes = 0;                 // steps left out because this objective's loss or gradient jumped, so far
  std::optional<double> loss_scale;  // in fp16
  bool present = true;               // it had a loss in that step
};

// Waits for the device. RecipeError where a term's counts are not what it says of them (LossTerm::per_row).
[[nodiscard]] std::vector<ObjectiveReport> reports_of(const Stepper& stepper);
[[nodiscard]] GradientTraffic traffic_of(const Stepper& stepper);  // of all objectives to the other ranks, so far
// Bytes of a part of the state: "parameters", "buffers", "gradients" (those there are), "optimizer".
[[nodiscard]] std::map<std::string, std::uint64_t> state_bytes_of(const Stepper& stepper);

}  // namespace millrace
