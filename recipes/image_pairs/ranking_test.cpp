#include "recipes/image_pairs/ranking.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "millrace/base/philox.h"
#include "recipes/image_pairs/rank.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

namespace millrace::recipes::image_pairs {
namespace {

// The answer of a perfect judge: the greater score, or Similar if the scores differ by at most `theta`.
std::int64_t exact(double a, double b, double theta) { return std::abs(a - b) <= theta ? 2 : a > b ? 0 : 1; }

std::vector<Answered> answers_of(const std::vector<double>& scores, double theta) {
  std::vector<Answered> answers;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    for (std::size_t j = 0; j < scores.size(); ++j) {
      if (i != j)
        answers.push_back({static_cast<std::int64_t>(i), static_cast<std::int64_t>(j), exact(scores[i], scores[j], theta)});
    }
  }
  return answers;
}

TEST(Ranking, AnExactJudgePutsImagesOnTheirPlaces) {
  const std::vector<double> known = {0, -5, -10, -10, -25, -50, -35, -15};
  const auto answers = answers_of(known, 0.2);
  const std::vector<double> found = scores_beside_known(answers, known, 1, 1);
  EXPECT_GT(spearman(known, found), 0.99);
  EXPECT_GT(spearman(known, bradley_terry(answers, 8)), 0.99);
  EXPECT_LT(mean_absolute_difference(known, found), 3);
}

TEST(Ranking, AnImageThatIsNeverFirstHasNoScore) {
  const std::vector<double> known = {1, 2, 3};
  const std::vector<Answered> answers = {{0, 1, 1}, {0, 2, 1}};
  const std::vector<double> found = scores_beside_known(answers, known, 1, 1);
  EXPECT_TRUE(std::isfinite(found[0]));
  EXPECT_TRUE(std::isnan(found[1]));
  EXPECT_TRUE(scores_beside_known({}, {}, 1, 1).empty());
}

// An image that is compared with two of known score gets the score at which the answers are most likely.
TEST(Ranking, TheMostLikelyScoreIsFound) {
  const std::vector<double> known = {0, -10, -20};
  const std::vector<Answered> answers = {{1, 0, 1}, {1, 2, 0}};
  EXPECT_NEAR(scores_beside_known(answers, known, 1, 1)[1], -10, 0.2);
}

// From wins that are drawn with P(i before j) = p_i / (p_i + p_j), the strengths p must be found again.
TEST(Ranking, StrengthsOfDrawnWinsComeBack) {
  const std::vector<double> truth = {-1.2, -0.4, 0.1, 0.5, 1.0};
  std::vector<Answered> answers;
  Philox random(make_key(7));
  for (int round = 0; round < 4000; ++round) {
    for (std::int64_t i = 0; i < 5; ++i) {
      for (std::int64_t j = i + 1; j < 5; ++j) {
        const double p = 1 / (1 + std::exp(truth[static_cast<std::size_t>(j)] - truth[static_cast<std::size_t>(i)]));
        answers.push_back({i, j, random.uniform() < p ? 0 : 1});
      }
    }
  }
  const std::vector<double> found = bradley_terry(answers, 5);
  for (std::size_t i = 0; i < truth.size(); ++i) EXPECT_NEAR(found[i], truth[i], 0.08);
  EXPECT_NEAR(std::accumulate(found.begin(), found.end(), 0.0), 0, 1e-9);
}

TEST(Ranking, AllWinsAndNoWinsAreFinite) {
  const std::vector<Answered> answers = {{0, 1, 0}, {0, 2, 0}, {1, 2, 0}};
  const std::vector<double> found = bradley_terry(answers, 4);
  EXPECT_GT(found[0], found[1]);
  EXPECT_GT(found[1], found[2]);
  for (const double score : found) EXPECT_TRUE(std::isfinite(score));
}

TEST(Ranking, CorrelationsAreThoseOfTheBooks) {
  const std::vector<double> x = {1, 2, 3, 4, 5}, y = {2, 1, 4, 3, 5}, flat(5, 1.0);
  EXPECT_NEAR(spearman(x, y), 0.8, 1e-12);
  EXPECT_NEAR(pearson(x, y), 0.8, 1e-12);
  EXPECT_TRUE(std::isnan(pearson(x, flat)));
  const std::vector<double> ties = {1, 1, 2, std::nan("")}, others = {3, 3, 9, 7};
  EXPECT_NEAR(spearman(ties, others), 1, 1e-12) << "a value that is none is left out";
  EXPECT_NEAR(mean_absolute_difference(x, y), 0.8, 1e-12);
}

// A folder of images whose brightness is their score, and a judge that sees the brightness.
TEST(Ranking, AFolderIsRankedFromAFewComparisonsOfEach) {
  constexpr std::int64_t kImages = 41;
  const at::Tensor images = at::arange(kImages, at::kByte).view({kImages, 1, 1, 1}).expand({kImages, 2, 2, 3});
  std::int64_t asked = 0;
  const Judge judge = [&](const at::Tensor& first, const at::Tensor& second) {
    asked += first.size(0);
    const at::Tensor a = first.select(1, 0).select(1, 0).select(1, 0).to(at::kFloat);
    const at::Tensor b = second.select(1, 0).select(1, 0).select(1, 0).to(at::kFloat);
    const at::Tensor told = at::stack({a - b, b - a, at::full({a.size(0)}, -1.0F)}, 1);
    return BothOrders{told, told};
  };
  std::vector<double> truth(kImages);
  std::iota(truth.begin(), truth.end(), 0.0);
  const Ranking few = rank_images(images, judge, 12, 7, 3);
  EXPECT_EQ(few.pairs, asked);
  EXPECT_EQ(few.pairs, 6 * kImages);
  EXPECT_GT(spearman(truth, few.strengths), 0.95);
  EXPECT_EQ(few.agreement, 1);
  const Ranking all = rank_images(images, judge, 0, 64, 3);
  EXPECT_EQ(all.pairs, kImages * (kImages - 1) / 2);
  EXPECT_NEAR(spearman(truth, all.strengths), 1, 1e-12);
  EXPECT_EQ(rank_images(images.narrow(0, 0, 2), judge, 0, 64, 3).pairs, 1);
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
