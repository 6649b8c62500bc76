// What LibTorch's own random operations draw for a recipe (at::dropout, at::randn): numbers of the run's seed and of a place in
// it. Layers of ours draw by counter (core/random.h).
#pragma once

#include <cstdint>

#include "millrace/core/batch.h"
#include "millrace/train/step/plan.h"

namespace millrace {

enum class Draws : std::uint64_t { prepare = 1, loss, samples, predict };

// From here on the default generators, the host's and the device's, begin with the numbers of these words alone. So there is no
// state of theirs to save, to put back, or to keep from what came before: a trial, a validation, a step that was taken back.
void seed_draws(at::Device device, std::uint64_t seed, Draws by, std::uint64_t number = 0);
// The same for a micro-batch: of its split and epoch, and its first row's position in the epoch's order.
void seed_draws(at::Device device, std::uint64_t seed, Draws by, const Batch& batch, std::uint64_t number = 0);

// The plan's row of a device that is not the CPU: what drops there, and where it drops what the CPU drops.
[[nodiscard]] Choice dropout_choice(at::Device device);

}  // namespace millrace
