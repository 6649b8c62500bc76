#include "recipes/image_pairs/baseline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

namespace millrace::recipes::image_pairs {

double noise_of(std::span<const std::uint8_t> pixels, std::int64_t side) {
  constexpr std::int64_t kChannels = 3;
  const std::int64_t row = side * kChannels;
  std::int64_t sum = 0;
  for (std::int64_t y = 1; y + 1 < side; ++y) {
    for (std::int64_t i = kChannels; i < row - kChannels; ++i) {
      const std::uint8_t* at = pixels.data() + y * row + i;
      const auto across = [&](const std::uint8_t* of) { return of[-kChannels] - 2 * of[0] + of[kChannels]; };
      sum += std::abs(across(at - row) - 2 * across(at) + across(at + row));
    }
  }
  const double places = 6.0 * static_cast<double>((side - 2) * (side - 2) * kChannels);
  return std::sqrt(std::numbers::pi / 2) * static_cast<double>(sum) / places;
}

double baseline_accuracy(std::span<const Pair> pairs, std::span<const ImageFile> images, double theta, std::int64_t side,
                         const std::function<std::vector<std::uint8_t>(std::int64_t image)>& read) {
  std::vector<double> known;
  for (const ImageFile& image : images) known.push_back(image.score);
  std::ranges::sort(known);
  const auto nearest_known = [&](double score) {
    const auto above = std::ranges::lower_bound(known, score);
    if (above == known.begin()) return known.front();
    if (above == known.end()) return known.back();
    return *above - score < score - *(above - 1) ? *above : *(above - 1);
  };
  std::map<std::int64_t, double> scores;
  const auto score_of = [&](std::int64_t image) {
    const auto [found, is_new] = scores.try_emplace(image);
    if (is_new) found->second = nearest_known(-noise_of(read(image), side));
    return found->second;
  };
  std::int64_t right = 0;
  for (const Pair& pair : pairs) right += answer_of(score_of(pair.first), score_of(pair.second), theta) == pair.label ? 1 : 0;
  return pairs.empty() ? 0 : static_cast<double>(right) / static_cast<double>(pairs.size());
}

}  // namespace millrace::recipes::image_pairs
