#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "millrace/metrics/board.h"

namespace millrace::metrics {
namespace {

TEST(BitsPerEvent, WhatTheMaskLeavesOutMayBeAnyNumber) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const at::Tensor mask = at::tensor({1.0, 1.0, 1.0, 0.0, 0.0}).unsqueeze(1);
  const at::Tensor counts = at::tensor({0.0, 2.0, 1.0, 3.0, 4.0}).unsqueeze(1), rates = counts * 0.8 + 0.3;
  Board plain, broken;
  plain.add_bits_per_event("bps/a", counts, rates, mask, "bps");
  broken.add_bits_per_event("bps/a", counts + at::tensor({0.0, 0.0, 0.0, nan, inf}).unsqueeze(1),
                            rates + at::tensor({0.0, 0.0, 0.0, inf, nan}).unsqueeze(1), mask, "bps");
  EXPECT_TRUE(std::isfinite(plain.means().at("bps")));
  EXPECT_EQ(broken.means().at("bps"), plain.means().at("bps"));
  // A number that counts still shows.
  Board bad;
  bad.add_bits_per_event("bps/a", counts, rates * nan, at::ones_like(mask), "bps");
  EXPECT_TRUE(std::isnan(bad.means().at("bps")));
}

}  // namespace
}  // namespace millrace::metrics
