// Looks for reasons why a run on this data can't learn, as far as such reasons are visible before the first step. Each reason is
// a line with a figure and the remedy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/nn/pca.h"
#include "recipes/cosmology/sky_source.h"

namespace millrace::recipes::cosmology {

inline constexpr double kHopelessPower = 10;    // largest power that may be left after the components are removed, as a multiple
                                                // of the signal's power
inline constexpr double kSaturatedPower = 1e4;  // a channel with more power than this is saturated; as a multiple of the median
                                                // channel's power
inline constexpr double kDeadPower = 1e-10;     // a channel with less power than this is dead; as a share of the median
                                                // channel's power

// Examines four training samples, spread over all samples and prepared as for a step, but without noise. If `pca` is null, the
// components of each sample are computed from the sample itself. Samples that can't be read are skipped, because the loader has
// a policy for them.
[[nodiscard]] std::vector<std::string> check_training_sky(const RecipeConfig& recipe, const Sky& sky,
                                                          const nn::ForegroundPca* pca, std::uint64_t seed);

// Returns a line if the validation has only one sample. Does not look at values.
[[nodiscard]] std::vector<std::string> check_validation_sky(const Sky& sky);

// Detects that the validation loss stays at the variance of the target, which is the loss of a network that always answers zero.
class PinnedLoss {
 public:
  // Takes the results of a validation after training step `step` (0-based): the power of recovered minus truth, and the power of
  // the truth. Returns true, once in a run, if the two powers were within three per cent of each other in three validations in a
  // row. Validations at step 0 do not count, because the rehearsal also validates at step 0, with only one batch.
  bool add(std::int64_t step, double left, double power);

 private:
  int in_a_row_ = 0;
  bool noted_ = false;
};

}  // namespace millrace::recipes::cosmology
