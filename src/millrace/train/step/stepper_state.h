// What of a stepper is saved, and how it is put back.
#pragma once

#include <vector>

#include "millrace/optim/average.h"
#include "millrace/train/step/stepper.h"

namespace millrace {

// Optimisers, plateaus, counts, scales; not the averaged weights. Collective where ranks keep a part of the optimisers' state
// each.
[[nodiscard]] State state_of(const Stepper& stepper);
// `average`: as averaged_weights() gave it; empty: averages begin with the model's weights as they are now. SnapshotError where
// the state does not fit.
void load_state(Stepper& stepper, const State& state, const Tensors& average = {});

// The averaged weights by name, empty where optim.ema_decay is 0; and the model with them until the result is destroyed.
[[nodiscard]] Tensors averaged_weights(const Stepper& stepper);
[[nodiscard]] std::vector<optim::AverageInUse> use_average(const Stepper& stepper);

}  // namespace millrace
