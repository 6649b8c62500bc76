// Tests gradients that are sent while other gradients are computed. The ranks are threads of one process.
#include "millrace/distributed/detail/gradient_buckets.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "millrace/distributed/detail/test_ranks.h"
#include "millrace/distributed/processes.h"

namespace millrace::distributed {
namespace {

constexpr int kWorld = 2;

at::Tensor parameter(at::IntArrayRef sizes) {
  return (at::arange(c10::multiply_integers(sizes), at::kFloat) * 0.37).sin().view(sizes).clone().set_requires_grad(true);
}

at::Tensor scalar(double value) { return at::full({}, value, at::kFloat); }

// Three layers. The weight of one layer is transposed in memory.
struct Model {
  at::Tensor a = parameter({4, 3});
  at::Tensor b = parameter({3, 5}).detach().t().set_requires_grad(true);
  at::Tensor c = parameter({7});
  [[nodiscard]] std::vector<at::Tensor> parameters() const { return {a, b, c}; }
  [[nodiscard]] at::Tensor loss(double factor) const { return factor * ((a.mm(b.t())).sin().sum() + c.mul(c).sum()); }
};

TEST(GradientBuckets, SumsAreThoseOfSeparateGradientsTimesTheirFactors) {
  std::vector<at::Tensor> expected = Model().parameters();
  {
    const Model model;
    (2 * model.loss(1) + 3 * model.loss(2)).backward();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = model.parameters()[i].grad();
  }
  for (const std::int64_t bucket_bytes : {1, 60, 1 << 20}) {
    EXPECT_EQ(on_ranks(kWorld, free_port(),
                       [&](Processes& processes) {
                         const Model model;
                         const auto sums = processes.gradient_sums(model.parameters(), {.bucket_bytes = bucket_bytes});
                         for (int step = 0; step < 3; ++step) {
                           const int rank = processes.ranks().rank;
                           sums->begin(scalar(2 + rank));
                           model.loss(1 + rank).backward();
                           sums->send();
                           const auto all = sums->receive();
                           for (std::size_t i = 0; i < all.size(); ++i) {
                             EXPECT_TRUE(all[i].allclose(expected[i], 1e-6, 1e-6));
                             EXPECT_EQ(all[i].strides(), model.parameters()[i].strides());
                             model.parameters()[i].mutable_grad() = at::Tensor();
                           }
                           EXPECT_FALSE(sums->is_spoiled());
                         }
                         const GradientSums::Traffic traffic = sums->take_traffic();
                         EXPECT_EQ(traffic.bytes, 3 * 4 * (12 + 15 + 7));
                         // All buckets were sent before the backward pass ended.
                         EXPECT_EQ(traffic.early_buckets, traffic.buckets);
                         EXPECT_EQ(traffic.buckets, bucket_bytes == 1 ? 9 : bucket_bytes == 60 ? 6 : 3);
                       }),
              none(kWorld));
  }
}

TEST(GradientBuckets, OfSeveralRanksHaveTheSameBitsInBucketsOfAnySize) {
  constexpr int kRanks = 4;
  std::mutex mutex;
  std::vector<std::vector<at::Tensor>> results;
  for (const std::int64_t bucket_bytes : {1, 60, 1 << 20}) {
    EXPECT_EQ(on_ranks(kRanks, free_port(),
                       [&](Processes& processes) {
                         const Model model;
                         const auto sums = processes.gradient_sums(model.parameters(), {.bucket_bytes = bucket_bytes});
                         for (int step = 0; step < 3; ++step) {
                           sums->begin(scalar(1.1 + processes.ranks().rank));
                           model.loss(0.3 + processes.ranks().rank).backward();
                           sums->send();
                           const auto all = sums->receive();
                           for (const at::Tensor& parameter : model.parameters()) parameter.mutable_grad() = at::Tensor();
                           const std::lock_guard lock(mutex);
                           auto& copies = results.emplace_back();
                           for (const at::Tensor& sum : all) copies.push_back(sum.clone());
                         }
                       }),
              none(kRanks));
  }
  ASSERT_EQ(results.size(), 3U * 3U * kRanks);
  for (const auto& other : results) {
    for (std::size_t i = 0; i < other.size(); ++i) EXPECT_TRUE(other[i].equal(results[0][i])) << i;
  }
}

TEST(GradientBuckets, WhatARankLacksIsZeroAndEarlierMicroBatchesCount) {
  EXPECT_EQ(on_ranks(kWorld, free_port(),
                     [](Processes& processes) {
                       const at::Tensor both = at::ones({3}).set_requires_grad(true), one = at::ones({2}).set_requires_grad(true),
                                        nobody = at::ones({4}).set_requires_grad(true);
                       const auto sums = processes.gradient_sums({both, one, nobody}, {.bucket_bytes = 1});
                       (both.sum() * 10).backward();  // gradients of an earlier micro-batch
                       sums->begin(scalar(1));
                       at::Tensor loss = both.sum();
                       if (processes.ranks().rank == 1) loss = loss + 5 * one.sum();
                       loss.backward();
                       sums->send();
                       const auto all = sums->receive();
                       EXPECT_TRUE(all[0].eq(22).all().item<bool>());
                       EXPECT_TRUE(all[1].eq(5).all().item<bool>());
                       EXPECT_TRUE(all[2].eq(0).all().item<bool>());
                     }),
            none(kWorld));
}

TEST(GradientBuckets, ARankThatHasNothingTakesPart) {
  EXPECT_EQ(on_ranks(kWorld, free_port(),
                     [](Processes& processes) {
                       const Model model;
                       const auto sums = processes.gradient_sums(model.parameters(), {});
                       sums->begin(scalar(1));
                       if (processes.ranks().rank == 0) model.loss(1).backward();
                       sums->send();
                       const auto all = sums->receive();
                       EXPECT_GT(all[0].abs().sum().item<double>(), 0);
                     }),
            none(kWorld));
}

TEST(GradientBuckets, AGradientThatComesAgainIsToldOf) {
  EXPECT_EQ(on_ranks(kWorld, free_port(),
                     [](Processes& processes) {
                       const Model model;
                       const auto sums = processes.gradient_sums(model.parameters(), {});
                       sums->begin(scalar(1));
                       model.loss(1).backward();
                       EXPECT_FALSE(sums->is_spoiled());
                       if (processes.ranks().rank == 1) model.loss(1).backward();
                       EXPECT_EQ(sums->is_spoiled(), processes.ranks().rank == 1);
                       sums->send();
                       (void)sums->receive();
                     }),
            none(kWorld));
}

TEST(GradientBuckets, CompressedGradientsAreThoseOfBf16AndHalfTheBytes) {
  EXPECT_EQ(on_ranks(kWorld, free_port(),
                     [](Processes& processes) {
                       const Model model;
                       const auto sums = processes.gradient_sums(model.parameters(), {.compress = true});
                       sums->begin(scalar(1));
                       model.loss(1).backward();
                       sums->send();
                       const auto all = sums->receive();
                       for (std::size_t i = 0; i < all.size(); ++i) {
                         EXPECT_EQ(all[i].scalar_type(), at::kFloat);
                         const at::Tensor half = model.parameters()[i].grad().to(at::kBFloat16).to(at::kFloat);
                         EXPECT_TRUE(all[i].equal(half * kWorld));
                       }
                       EXPECT_EQ(sums->take_traffic().bytes, 2 * (12 + 15 + 7));
                     }),
            none(kWorld));
}

}  // namespace
}  // namespace millrace::distributed
