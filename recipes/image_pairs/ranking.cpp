#include "recipes/image_pairs/ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace millrace::recipes::image_pairs {
namespace {

constexpr std::int64_t kFirst = 0, kSecond = 1;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The log-probability of an answer about an image with the score `s` and another image with the score `other`.
double log_probability(std::int64_t answer, double s, double other, double d, double k) {
  constexpr double kFloor = 1e-12;
  const double at_most_second = sigmoid(-d + k * (other - s)), at_most_similar = sigmoid(d + k * (other - s));
  const double p = answer == kFirst ? 1 - at_most_similar : answer == kSecond ? at_most_second : at_most_similar - at_most_second;
  return std::log(std::max(p, kFloor));
}

// The middle index among those at which `values` is greatest, within rounding.
std::size_t middle_of_greatest(const std::vector<double>& values) {
  const double greatest = *std::ranges::max_element(values);
  const auto is_greatest = [greatest](double value) { return value >= greatest - 1e-9 * std::max(1.0, std::abs(greatest)); };
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_greatest(values[i])) places.push_back(i);
  }
  return places[places.size() / 2];
}

struct Both {
  std::vector<double> x, y;
};

Both numbers_of(std::span<const double> x, std::span<const double> y) {
  Both both;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) continue;
    both.x.push_back(x[i]);
    both.y.push_back(y[i]);
  }
  return both;
}

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = (static_cast<double>(begin) + static_cast<double>(end) - 1) / 2;
    begin = end;
  }
  return ranks;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double correlation_of(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.size() < 2) return kNone;
  const double mean_x = mean_of(x), mean_y = mean_of(y);
  double xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : kNone;
}

}  // namespace

std::vector<double> scores_beside_known(std::span<const Answered> answers, std::span<const double> known, double d, double k) {
  constexpr std::size_t kGrid = 200;
  if (known.empty()) return {};
  const auto [low, high] = std::ranges::minmax(known);
  std::vector<std::vector<double>> likelihoods(known.size());
  for (const Answered& one : answers) {
    std::vector<double>& of_image = likelihoods[static_cast<std::size_t>(one.image)];
    of_image.resize(kGrid);
    for (std::size_t i = 0; i < kGrid; ++i) {
      const double s = low + (high - low) * static_cast<double>(i) / static_cast<double>(kGrid - 1);
      of_image[i] += log_probability(one.answer, s, known[static_cast<std::size_t>(one.other)], d, k);
    }
  }
  std::vector<double> scores(known.size(), kNone);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (likelihoods[i].empty()) continue;
    scores[i] = low + (high - low) * static_cast<double>(middle_of_greatest(likelihoods[i])) / static_cast<double>(kGrid - 1);
  }
  return scores;
}

std::vector<double> bradley_terry(std::span<const Answered> answers, std::int64_t images) {
  constexpr int kRounds = 500;
  constexpr double kClose = 1e-10;
  const auto n = static_cast<std::size_t>(images);
  std::vector<double> wins(n, 0.5), strength(n, 1.0);
  for (const Answered& one : answers) {
    const double of_first = one.answer == kFirst ? 1.0 : one.answer == kSecond ? 0.0 : 0.5;
    wins[static_cast<std::size_t>(one.image)] += of_first;
    wins[static_cast<std::size_t>(one.other)] += 1 - of_first;
  }
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> against(n);
    for (std::size_t i = 0; i < n; ++i) against[i] = 1 / (strength[i] + 1);
    for (const Answered& one : answers) {
      const auto i = static_cast<std::size_t>(one.image), j = static_cast<std::size_t>(one.other);
      const double both = 1 / (strength[i] + strength[j]);
      against[i] += both;
      against[j] += both;
    }
    double moved = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double now = wins[i] / against[i];
      moved = std::max(moved, std::abs(std::log(now / strength[i])));
      strength[i] = now;
    }
    if (moved < kClose) break;
  }
  std::vector<double> scores(n);
  std::ranges::transform(strength, scores.begin(), [](double p) { return std::log(p); });
  const double middle = n == 0 ? 0 : mean_of(scores);
  for (double& score : scores) score -= middle;
  return scores;
}

double pearson(std::span<const double> x, std::span<const double> y) {
  const Both both = numbers_of(x, y);
  return correlation_of(both.x, both.y);
}

double spearman(std::span<const double> x, std::span<const double> y) {
  const Both both = numbers_of(x, y);
  return correlation_of(ranks_of(both.x), ranks_of(both.y));
}

double mean_absolute_difference(std::span<const double> x, std::span<const double> y) {
  const Both both = numbers_of(x, y);
  if (both.x.empty()) return kNone;
  double sum = 0;
  for (std::size_t i = 0; i < both.x.size(); ++i) sum += std::abs(both.x[i] - both.y[i]);
  return sum / static_cast<double>(both.x.size());
}

}  // namespace millrace::recipes::image_pairs
