// Random numbers of LibTorch's own operations in a recipe (at::dropout, at::randn). These numbers depend on the run's seed and a
// position in the run. Millrace's own layers draw by counter (core/random.h).
#pragma once

#include <cstdint>

#include "millrace/core/batch.h"
#include "millrace/train/step/plan.h"

namespace millrace {

enum class Draws : std::uint64_t { prepare = 1, loss, samples, predict };

// Seeds the default generators of the host and the device from these arguments alone. So the generators' state need not be saved
// or restored, and earlier draws (in a trial, a validation or an undone step) have no effect.
void seed_draws(at::Device device, std::uint64_t seed, Draws by, std::uint64_t number = 0);
// Like the seed_draws() above, for a micro-batch: the seed also depends on the batch's split and epoch, and on the position of
// its first row in the epoch's order.
void seed_draws(at::Device device, std::uint64_t seed, Draws by, const Batch& batch, std::uint64_t number = 0);

// The plan's row about dropout on a device other than the CPU. The row says which operations draw the dropped elements, and
// which of these operations drop the same elements as on the CPU.
[[nodiscard]] Choice dropout_choice(at::Device device);

}  // namespace millrace
