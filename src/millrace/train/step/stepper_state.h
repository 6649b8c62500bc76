// Saves and loads the state of a stepper.
#pragma once

#include <vector>

#include "millrace/optim/average.h"
#include "millrace/train/step/stepper.h"

namespace millrace {

// The state of optimisers and plateaus, counts and scales, but not the averaged weights. Collective if each rank keeps a part of
// the optimisers' state.
[[nodiscard]] State state_of(const Stepper& stepper);
// Loads what state_of() returned. `average`: the result of averaged_weights(); if it is empty, averages start with the model's
// present weights. Throws SnapshotError if the state does not fit.
void load_state(Stepper& stepper, const State& state, const Tensors& average = {});

// averaged_weights() returns the averaged weights by name; the result is empty if optim.ema_decay is 0. use_average() puts the
// averaged weights into the model until the object that it returns is destroyed.
[[nodiscard]] Tensors averaged_weights(const Stepper& stepper);
[[nodiscard]] std::vector<optim::AverageInUse> use_average(const Stepper& stepper);

}  // namespace millrace
