// Why a run on these data can't learn, as far as it can be known before the first step: each a line with its number and what to
// change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/nn/pca.h"
#include "recipes/cosmology/sky_source.h"

namespace millrace::recipes::cosmology {

inline constexpr double kHopelessPower = 10;    // times the signal's power, left by the components
inline constexpr double kSaturatedPower = 1e4;  // times the median channel's power
inline constexpr double kDeadPower = 1e-10;     // of it

// Looks at four training samples, spread over all, as a step would get them but for the noise. `pca` null: components of each
// sample. Samples that can't be read are passed over: the loader has a policy for them.
[[nodiscard]] std::vector<std::string> check_training_sky(const RecipeConfig& recipe, const Sky& sky,
                                                          const nn::ForegroundPca* pca, std::uint64_t seed);

// Of the files alone.
[[nodiscard]] std::vector<std::string> check_validation_sky(const Sky& sky);

// Whether validations end at the variance of the target: what a network reaches that answers zero.
class PinnedLoss {
 public:
  // Of one validation: the power of recovered minus truth, and of the truth. True once, when it is the third in a row within
  // three percent of each other. The first call does not count: it is the rehearsal's, of one batch before any step (a resumed
  // run has none, and is told one validation later).
  bool add(double left, double power);

 private:
  int in_a_row_ = -1;
  bool told_ = false;
};

}  // namespace millrace::recipes::cosmology
