// Pictures of a validation: found scores of images against true ones, and the pairs that the network gets wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/picture/picture.h"

namespace millrace::recipes::image_pairs {

// A mark for each image: its true score across, the score found from its answers up. Images whose score is NaN are left out.
[[nodiscard]] Picture draw_scores(const std::vector<double>& known, const std::vector<double>& found, double rank_correlation);

struct HardPair {
  std::vector<std::uint8_t> first, second;  // size * size RGB pixels
  std::string first_name, second_name;
  double first_score = 0, second_score = 0;
  std::string answer;  // "Second 97 %"
  std::string is;      // "First"
};
// Pairs side by side, the most confident mistakes first.
[[nodiscard]] Picture draw_hard_pairs(const std::vector<HardPair>& pairs, std::int64_t size, std::int64_t wrong,
                                      std::int64_t all);

}  // namespace millrace::recipes::image_pairs
