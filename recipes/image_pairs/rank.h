// Ranks images by a trained network's answers about pairs of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace millrace::recipes::image_pairs {

// The probabilities (n, 3) of First, Second and Similar, on the host, for pairs in the given order (`straight`) and in the
// exchanged order (`mirrored`). In `mirrored` the columns of First and Second are exchanged, so that First means the same image
// in both tensors.
struct BothOrders {
  at::Tensor straight, mirrored;
};
// Answers pairs of first and second images, both u8 (n, S, S, 3).
using Judge = std::function<BothOrders(const at::Tensor& first, const at::Tensor& second)>;

struct Ranking {
  std::vector<double> strengths;      // see bradley_terry() in ranking.h
  std::vector<std::int64_t> answers;  // for each image, the number of pairs that contain it
  double agreement = 0;               // share of the pairs whose answer is the same in both orders
  std::int64_t pairs = 0;
};
// Ranks `images`, u8 (n, S, S, 3). The images are put on a ring, whose order is drawn with `seed`. Each image is compared, in
// both orders, with at least `opponents` others: with its neighbours at several distances on the ring, so that all images are
// connected. If `opponents` is 0, or n - 1 or more, all pairs are compared. `batch`: the number of pairs that are judged at
// once. `report` gets the number of pairs done and of all pairs.
[[nodiscard]] Ranking rank_images(const at::Tensor& images, const Judge& judge, std::int64_t opponents, std::int64_t batch,
                                  std::uint64_t seed, const std::function<void(std::int64_t, std::int64_t)>& report = nullptr);

}  // namespace millrace::recipes::image_pairs
