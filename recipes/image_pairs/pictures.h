// Pictures of a validation: the scores found for the images, plotted over their true scores, and the pairs that the network gets
// wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/picture/picture.h"

namespace millrace::recipes::image_pairs {

// Draws a mark for each image. The horizontal axis is its true score, the vertical axis the score found from the network's
// answers. Images whose score is NaN are left out.
[[nodiscard]] Picture draw_scores(const std::vector<double>& known, const std::vector<double>& found, double rank_correlation);

struct HardPair {
  std::vector<std::uint8_t> first, second;  // size * size RGB pixels of each image
  std::string first_name, second_name;
  double first_score = 0, second_score = 0;
  std::string answer;  // the network's answer: "Second 97 %"
  std::string is;      // the right answer: "First"
};
// The pairs side by side, the mistake with the highest confidence first.
[[nodiscard]] Picture draw_hard_pairs(const std::vector<HardPair>& pairs, std::int64_t size, std::int64_t wrong,
                                      std::int64_t all);

}  // namespace millrace::recipes::image_pairs
