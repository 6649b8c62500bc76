#include "recipes/image_pairs/image_look.h"

#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "recipes/image_pairs/pair_source.h"

namespace millrace::recipes::image_pairs {
namespace {

constexpr std::size_t kMost = 200;
constexpr std::size_t kFewScores = 8;
// a score is far outside if its distance exceeds this multiple of the range of the middle half of the scores
constexpr double kFarOutside = 10;

// A line such as "3 of 20 images WHAT, the first: "a.png"", where WHAT is `what`.
std::string notice_of(const std::vector<const ImageFile*>& odd, std::size_t all, const std::string& what) {
  return std::to_string(odd.size()) + " of " + with_commas(static_cast<std::int64_t>(all)) + " images " + what +
         (odd.size() == 1 ? ": " : ", the first: ") + quoted(odd.front()->name);
}

}  // namespace

std::vector<std::string> look_at_scores(const PairFiles& files) {
  std::vector<std::string> notices;
  std::vector<double> scores;
  for (const ImageFile& image : files.images) scores.push_back(image.score);
  std::ranges::sort(scores);
  const std::size_t quarter = scores.size() / 4;
  if (scores.size() >= kFewScores && scores[scores.size() - 1 - quarter] > scores[quarter]) {
    const double low = scores[quarter], high = scores[scores.size() - 1 - quarter];
    std::vector<const ImageFile*> odd;
    for (const ImageFile& image : files.images) {
      if (image.score < low - kFarOutside * (high - low) || image.score > high + kFarOutside * (high - low))
        odd.push_back(&image);
    }
    if (!odd.empty())
      notices.push_back(notice_of(odd, files.images.size(), "with a score far from all others") + " has " +
                        significant(odd.front()->score, 6) + ", but half of all scores lie between " + significant(low, 6) +
                        " and " + significant(high, 6) + ". Does it mark a missing score, or is it on another scale?");
  }
  std::vector<const ImageFile*> alone;
  for (const auto* pairs : {&files.train, &files.validation}) {
    for (const Pair& pair : *pairs)
      if (pair.first == pair.second) alone.push_back(&files.images[static_cast<std::size_t>(pair.first)]);
  }
  if (!alone.empty())
    notices.push_back(with_commas(std::ssize(alone)) + " of " +
                      with_commas(std::ssize(files.train) + std::ssize(files.validation)) +
                      " pairs are of an image with itself, the first: " + quoted(alone.front()->name));
  return notices;
}

std::vector<std::string> look_at_images(const std::vector<ImageFile>& images, const RecipeConfig& recipe, bool passes) {
  const std::size_t count = std::min(images.size(), kMost);
  std::size_t seen = 0;
  std::vector<const ImageFile*> flat, grey;
  for (std::size_t i = 0; i < count; ++i) {
    const ImageFile& image = images[i * images.size() / count];
    try {
      const std::vector<std::uint8_t> pixels = read_image(image.path, recipe);
      ++seen;
      bool is_flat = true, is_grey = true;
      for (std::size_t k = 0; k < pixels.size() && (is_flat || is_grey); k += 3) {
        is_grey = is_grey && pixels[k] == pixels[k + 1] && pixels[k] == pixels[k + 2];
        is_flat = is_flat && std::equal(pixels.begin(), pixels.begin() + 3, pixels.begin() + static_cast<std::ptrdiff_t>(k));
      }
      if (is_flat) {
        flat.push_back(&image);
      } else if (is_grey) {
        grey.push_back(&image);
      }
    } catch (const DataError&) {
      if (!passes) throw;
    }
  }
  std::vector<std::string> notices;
  if (!flat.empty()) notices.push_back(notice_of(flat, seen, "of a single colour") + ". Next: leave them out");
  if (!grey.empty() && 2 * grey.size() < seen)
    notices.push_back(notice_of(grey, seen, "in grey among coloured ones, so that colour may reveal the answer"));
  return notices;
}

}  // namespace millrace::recipes::image_pairs
