// Computes scores of images from answers about pairs of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace::recipes::image_pairs {

// An answer with `image` first and `other` second: 0 First, 1 Second, 2 Similar (loss.h).
struct Answered {
  std::int64_t image = 0, other = 0;
  std::int64_t answer = 0;
};

// Scores on the scale of the known ones. The answers are assumed to follow an ordered logistic model (Y: Second 0, Similar 1,
// First 2):
//   P(Y <= 0) = sig(-d + k (s_other - s)),  P(Y <= 1) = sig(d + k (s_other - s))
// where the score of `other` is known. s is the most likely of 200 values from the lowest to the highest known score; among
// equally likely values it is the middle one. NaN for an image that is first in no pair. `known`: a score for each image.
[[nodiscard]] std::vector<double> scores_beside_known(std::span<const Answered> answers, std::span<const double> known, double d,
                                                      double k);

// The strength of each image if no scores are known, by the model of Bradley and Terry (1952), P(i before j) = p_i / (p_i +
// p_j), fitted by Hunter's algorithm (2004, Annals of Statistics 32:384). A similar pair counts as half a win for both images.
// Returns ln p with mean 0. For the fit, each image also has a draw against an image of strength 1, so that an image that always
// wins has a finite strength.
[[nodiscard]] std::vector<double> bradley_terry(std::span<const Answered> answers, std::int64_t images);

// Pearson's r, Spearman's rank correlation (equal values get the mean of their ranks) and the mean absolute difference of x and
// y. Indices at which x or y is NaN are left out. NaN if fewer than two indices are left, or if all values are equal.
[[nodiscard]] double pearson(std::span<const double> x, std::span<const double> y);
[[nodiscard]] double spearman(std::span<const double> x, std::span<const double> y);
[[nodiscard]] double mean_absolute_difference(std::span<const double> x, std::span<const double> y);

}  // namespace millrace::recipes::image_pairs
