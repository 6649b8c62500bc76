// A stepper's values for logs, plans and accounts of memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "millrace/train/step/stepper.h"

namespace millrace {

// Values of one objective after the last update.
struct ObjectiveReport {
  std::string name;
  double learning_rate = 0;
  double gradient_norm = 0;
  double spikes = 0;                 // number of steps so far that were skipped because this objective's loss or gradient jumped
  std::optional<double> loss_scale;  // nullopt except in fp16
  bool present = true;               // the objective had a loss in the last step
};

// The values of all objectives. Waits for the device. Throws RecipeError if a term's counts contradict LossTerm::per_row.
[[nodiscard]] std::vector<ObjectiveReport> reports_of(const Stepper& stepper);
[[nodiscard]] GradientSums::Traffic traffic_of(
    const Stepper& stepper);  // bytes that all objectives together have exchanged with the other ranks so far
// Bytes of each part of the state: "parameters", "buffers", "gradients" (those that exist), "optimizer".
[[nodiscard]] std::map<std::string, std::uint64_t> state_bytes_of(const Stepper& stepper);

}  // namespace millrace
