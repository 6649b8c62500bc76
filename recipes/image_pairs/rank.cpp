#include "recipes/image_pairs/rank.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "millrace/base/philox.h"
#include "recipes/image_pairs/ranking.h"

namespace millrace::recipes::image_pairs {
namespace {

constexpr std::uint64_t kRing = 61;  // makes this draw's random numbers differ from those of other uses of the seed

std::vector<std::pair<std::int64_t, std::int64_t>> pairs_of(std::int64_t images, std::int64_t opponents, std::uint64_t seed) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  if (opponents <= 0 || opponents >= images - 1) {
    for (std::int64_t i = 0; i < images; ++i) {
      for (std::int64_t j = i + 1; j < images; ++j) pairs.emplace_back(i, j);
    }
    return pairs;
  }
  std::vector<std::int64_t> ring(static_cast<std::size_t>(images));
  std::iota(ring.begin(), ring.end(), 0);
  Philox random(make_key(seed, kRing));
  for (std::size_t i = ring.size(); i > 1; --i) std::swap(ring[i - 1], ring[random.below(i)]);
  // The distances on the ring are spread over all sizes. With the distances 1, 2 and 3 only, images would be compared only with
  // near neighbours, which orders them badly.
  const std::int64_t steps = (opponents + 1) / 2, half = (images - 1) / 2;
  std::vector<std::int64_t> taken;
  for (std::int64_t k = 0; k < steps; ++k) {
    const std::int64_t step = 1 + (half > 1 ? k * (half - 1) / std::max<std::int64_t>(steps - 1, 1) : 0);
    if (!taken.empty() && taken.back() == step) continue;
    taken.push_back(step);
    for (std::int64_t i = 0; i < images; ++i)
      pairs.emplace_back(ring[static_cast<std::size_t>(i)], ring[static_cast<std::size_t>((i + step) % images)]);
  }
  return pairs;
}

}  // namespace

Ranking rank_images(const at::Tensor& images, const Judge& judge, std::int64_t opponents, std::int64_t batch, std::uint64_t seed,
                    const std::function<void(std::int64_t, std::int64_t)>& report) {
  const std::int64_t count = images.size(0);
  const auto pairs = pairs_of(count, opponents, seed);
  const auto all = static_cast<std::int64_t>(pairs.size());
  Ranking ranking{.strengths = {}, .answers = std::vector<std::int64_t>(static_cast<std::size_t>(count)), .pairs = all};
  std::vector<Answered> answers;
  std::int64_t agreed = 0;
  for (std::int64_t begin = 0; begin < all; begin += batch) {
    const std::int64_t rows = std::min(batch, all - begin);
    std::vector<std::int64_t> first, second;
    for (std::int64_t row = 0; row < rows; ++row) {
      first.push_back(pairs[static_cast<std::size_t>(begin + row)].first);
      second.push_back(pairs[static_cast<std::size_t>(begin + row)].second);
    }
    const BothOrders both = judge(images.index_select(0, at::tensor(first)), images.index_select(0, at::tensor(second)));
    const at::Tensor straight = both.straight.argmax(1), mirrored = both.mirrored.argmax(1);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t a = first[static_cast<std::size_t>(row)], b = second[static_cast<std::size_t>(row)];
      const auto one = straight[row].item<std::int64_t>(), other = mirrored[row].item<std::int64_t>();
      answers.push_back({a, b, one});
      answers.push_back({a, b, other});  // the answer to the mirrored pair, in terms of the given order
      agreed += one == other ? 1 : 0;
      ++ranking.answers[static_cast<std::size_t>(a)];
      ++ranking.answers[static_cast<std::size_t>(b)];
    }
    if (report) report(begin + rows, all);
  }
  ranking.strengths = bradley_terry(answers, count);
  ranking.agreement = all == 0 ? 0 : static_cast<double>(agreed) / static_cast<double>(all);
  return ranking;
}

}  // namespace millrace::recipes::image_pairs
