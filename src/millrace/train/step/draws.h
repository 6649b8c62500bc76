// Random numbers of LibTorch's own operations in a recipe (at::dropout, at::randn): they depend on the run's seed and a position
// in the run. Our own layers draw by counter (core/random.h).
#pragma once

#include <cstdint>

#include "millrace/core/batch.h"
#include "millrace/train/step/plan.h"

namespace millrace {

enum class Draws : std::uint64_t { prepare = 1, loss, samples, predict };

// From here on the default generators, the host's and the device's, start with numbers that depend on these arguments alone. So
// their state need not be saved or restored, or kept clear of earlier use: a trial, a validation, a step that was undone.
void seed_draws(at::Device device, std::uint64_t seed, Draws by, std::uint64_t number = 0);
// The same for a micro-batch: depends on its split and epoch, and on its first row's position in the epoch's order.
void seed_draws(at::Device device, std::uint64_t seed, Draws by, const Batch& batch, std::uint64_t number = 0);

// The plan's row for a device that is not the CPU: which operations drop there, and which of them drop the same elements as the
// CPU.
[[nodiscard]] Choice dropout_choice(at::Device device);

}  // namespace millrace
