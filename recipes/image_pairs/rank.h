// Ranks images by a trained network's answers about pairs of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace millrace::recipes::image_pairs {

// Probabilities (n, 3) of First, Second, Similar on the host, for pairs in the given order and in the exchanged one. In
// `mirrored` First and Second are exchanged back, so that First means the same image in both.
struct BothOrders {
  at::Tensor straight, mirrored;
};
// Answers about the pairs of u8 (n, S, S, 3) first and second images.
using Judge = std::function<BothOrders(const at::Tensor& first, const at::Tensor& second)>;

struct Ranking {
  std::vector<double> strengths;      // see bradley_terry() in ranking.h
  std::vector<std::int64_t> answers;  // for each image: its number of pairs
  double agreement = 0;               // share of the pairs with one answer in both orders
  std::int64_t pairs = 0;
};
// `images` u8 (n, S, S, 3). Each image meets at least `opponents` others in both orders: its neighbours on a ring, in an order
// drawn with `seed`, so that all are connected; 0, or n - 1 and more, means all pairs. `batch` pairs are judged at once. `tell`
// is called with the pairs done and their total.
[[nodiscard]] Ranking rank_images(const at::Tensor& images, const Judge& judge, std::int64_t opponents, std::int64_t batch,
                                  std::uint64_t seed, const std::function<void(std::int64_t, std::int64_t)>& report = nullptr);

}  // namespace millrace::recipes::image_pairs
