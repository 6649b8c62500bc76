// Scores of images from answers about pairs of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace::recipes::image_pairs {

// The answer with `image` first and `other` second: 0 First, 1 Second, 2 Similar (loss.h).
struct Answered {
  std::int64_t image = 0, other = 0;
  std::int64_t answer = 0;
};

// Scores on the scale of known ones, by an ordered logistic model of the answers (Y: Second 0, Similar 1, First 2):
//   P(Y <= 0) = sig(-d + k (s_other - s)),  P(Y <= 1) = sig(d + k (s_other - s))
// with a known score of `other`. s is the most likely of 200 values from the least to the greatest known score; of equally likely
// values the middle one. NaN for an image that is first in no pair. `known`: a score for each image.
[[nodiscard]] std::vector<double> scores_beside_known(std::span<const Answered> answers, std::span<const double> known, double d,
                                                      double k);

// Strengths of images without known scores: Bradley and Terry 1952, P(i before j) = p_i / (p_i + p_j), fitted by Hunter's
// algorithm (2004, Annals of Statistics 32:384); a similar pair is half a win of each. Returns ln p with mean 0. Each image also
// draws once with an image of strength 1, so that an image that always wins has a finite score.
[[nodiscard]] std::vector<double> bradley_terry(std::span<const Answered> answers, std::int64_t images);

// Over values that are numbers in both: Pearson's r; Spearman's rank correlation (equal values share their ranks' mean); mean
// absolute difference. NaN for fewer than two values, or without variation.
[[nodiscard]] double pearson(std::span<const double> x, std::span<const double> y);
[[nodiscard]] double spearman(std::span<const double> x, std::span<const double> y);
[[nodiscard]] double mean_absolute_difference(std::span<const double> x, std::span<const double> y);

}  // namespace millrace::recipes::image_pairs
