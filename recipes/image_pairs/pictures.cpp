#include "recipes/image_pairs/pictures.h"

#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/picture/draw.h"

namespace millrace::recipes::image_pairs {

Picture draw_scores(const std::vector<double>& known, const std::vector<double>& found, double rank_correlation) {
  picture::Series marks{.name = "an image", .x = {}, .y = {}, .points = true};
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (!std::isfinite(found[i])) continue;
    marks.x.push_back(known[i]);
    marks.y.push_back(found[i]);
  }
  if (marks.x.empty()) {  // true if there was no pair to judge
    marks.x = {0};
    marks.y = {std::nan("")};
  }
  const auto [low, high] = std::ranges::minmax(known);
  const double margin = 0.05 * std::max(high - low, 1e-6);
  const picture::Range limits{low - margin, high + margin};
  return picture::curves({.name = "scores",
                          .title = "Scores from the network's answers against the true scores",
                          .caption = "Rank correlation " + figure(rank_correlation) + " over " +
                                     with_commas(std::ssize(marks.x)) +
                                     " images. A score is the most likely one given all answers about the image.",
                          .x = {.label = "true score", .limits = limits},
                          .y = {.label = "score from answers", .limits = limits},
                          .series = {marks, {.name = "equal", .x = {low, high}, .y = {low, high}}}});
}

Picture draw_hard_pairs(const std::vector<HardPair>& pairs, std::int64_t size, std::int64_t wrong, std::int64_t all) {
  picture::Images what{
      .name = "hard_pairs",
      .title = "Pairs that the network gets wrong, the surest mistakes first",
      .caption = with_commas(wrong) + " of " + with_commas(all) +
                 " answers are wrong. First and second image of a pair stand side by side, with their true scores.",
      .columns = 4};
  for (const HardPair& pair : pairs) {
    what.images.push_back({.caption = pair.first_name + " " + significant(pair.first_score, 4),
                           .height = size,
                           .width = size,
                           .pixels = pair.first});
    what.images.push_back({.caption = significant(pair.second_score, 4) + ": said " + pair.answer + ", is " + pair.is,
                           .height = size,
                           .width = size,
                           .pixels = pair.second});
  }
  return picture::images(what);
}

}  // namespace millrace::recipes::image_pairs
