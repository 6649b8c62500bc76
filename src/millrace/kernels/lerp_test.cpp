// The running mean of many tensors: by the CPU, and a device's lanes on the CPU, in the geometry of device/cuda/lerp.cu.
#include "millrace/kernels/lerp.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "millrace/kernels/detail/test_launch.h"

namespace millrace::kernels {
namespace {

TEST(Lerp, OfTensorsOfEachTypeIsThatOfAten) {
  at::manual_seed(3);
  const at::Tensor weight = at::scalar_tensor(0.125, at::kDouble);
  std::vector<at::Tensor> averages, values, expected;
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    averages.push_back(at::randn({5, 3}).to(type));
    values.push_back(at::randn({3, 5}).to(type).t());
    expected.push_back(at::lerp(averages.back(), values.back(), 0.125));
  }
  lerp(averages, values, weight);
  for (std::size_t i = 0; i < averages.size(); ++i) EXPECT_TRUE(at::equal(averages[i], expected[i])) << averages[i].scalar_type();
}

// Tensors of a launch begin `place` elements after the start of their memory; the rest of that memory must not change.
TEST(LerpLane, MovesManyTensorsInAnyOrderOfThreads) {
  constexpr float kUnwritten = std::numeric_limits<float>::infinity();
  at::manual_seed(5);
  for (const double weight : {0.0, 0.01, 0.75, 1.0}) {
    const at::Tensor by = at::full({1}, weight, at::kFloat);
    detail::Lerp args{};
    args.weight = by.const_data_ptr<float>();
    std::vector<at::Tensor> blocks, values, expected;
    for (const std::int64_t count : {1, 3, 4, 1023, 4100}) {
      for (const std::int64_t place : {0, 1}) {
        blocks.push_back(at::full({count + 2}, kUnwritten));
        const at::Tensor average = blocks.back().narrow(0, place, count);
        average.copy_(at::randn({count}));
        values.push_back(at::randn({count}));
        expected.push_back(at::lerp(average, values.back(), weight));
        args.pairs[static_cast<std::size_t>(args.count++)] = {
            .average = average.data_ptr<float>(), .value = values.back().const_data_ptr<float>(), .count = count};
      }
    }
    launched::lerp(args, launched::Order(7));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::int64_t count = values[i].numel(), place = static_cast<std::int64_t>(i % 2);
      EXPECT_LE((blocks[i].narrow(0, place, count) - expected[i]).abs().max().item<float>(), 1e-6F) << count << " by " << weight;
      EXPECT_TRUE(blocks[i][place == 0 ? count : 0].isinf().item<bool>());
      EXPECT_TRUE(blocks[i][count + 1].isinf().item<bool>());
    }
  }
}

}  // namespace
}  // namespace millrace::kernels
