// The reasons why a run on these data can't learn, as far as they show before the first step: one line each, with its number and
// the remedy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/nn/pca.h"
#include "recipes/cosmology/sky_source.h"

namespace millrace::recipes::cosmology {

inline constexpr double kHopelessPower = 10;    // times the signal's power, left after removal of the components
inline constexpr double kSaturatedPower = 1e4;  // times the median channel's power
inline constexpr double kDeadPower = 1e-10;     // times the median channel's power

// Checks four training samples, spread over all, as a step would get them but without noise. A null `pca` means components of
// each sample. Unreadable samples are skipped: the loader has a policy for them.
[[nodiscard]] std::vector<std::string> check_training_sky(const RecipeConfig& recipe, const Sky& sky,
                                                          const nn::ForegroundPca* pca, std::uint64_t seed);

// Checks the files alone.
[[nodiscard]] std::vector<std::string> check_validation_sky(const Sky& sky);

// Whether validations end at the variance of the target, which a network reaches by answering zero.
class PinnedLoss {
 public:
  // Takes one validation's power of recovered minus truth, and of the truth. Returns true once, at the third in a row within
  // three percent of each other. The first call does not count: it is the rehearsal's, of one batch before any step (a resumed
  // run has no rehearsal and is warned one validation later).
  bool add(double left, double power);

 private:
  int in_a_row_ = -1;
  bool noted_ = false;
};

}  // namespace millrace::recipes::cosmology
