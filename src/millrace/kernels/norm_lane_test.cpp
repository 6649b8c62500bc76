// Compares the devices' layer norm, with residual sum and dropout, with its formula in fp64. The lanes' arithmetic runs on the
// CPU, in the geometry of device/cuda/norm.cu.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <stdexcept>
#include <vector>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/detail/test_launch.h"
#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/dropout_bits.h"

namespace millrace::kernels {
namespace {

constexpr double kNormEpsilon = 1e-5;

struct NormCase {
  std::int64_t rows, width;
  at::ScalarType residual_type, y_type;
  double p;                  // below 0: the norm has no branch
  bool sum_gradient = true;  // the sum has a gradient too
  std::int64_t first = 128 * 5;

  [[nodiscard]] bool branch() const { return p >= 0; }
  [[nodiscard]] Dropout site() const { return {.p = std::max(p, 0.0), .key = 0xABCDEF0123456789ULL, .first = first}; }
};
std::ostream& operator<<(std::ostream& out, const NormCase& of) {
  return out << of.rows << " x " << of.width << ", " << of.residual_type << " to " << of.y_type << ", p " << of.p;
}

at::Tensor garbage(at::IntArrayRef sizes, at::ScalarType type) {
  return at::full(sizes, std::numeric_limits<double>::quiet_NaN(), type);
}

struct NormTensors {
  explicit NormTensors(const NormCase& of)
      : residual((at::randn({of.rows, of.width}) * 2 + 0.5).to(of.residual_type)),
        branch(at::randn({of.rows, of.width}).to(of.y_type)),
        weight(at::randn({of.width})),
        bias(at::randn({of.width})),
        y_gradient(at::randn({of.rows, of.width}).to(of.y_type)),
        sum_gradient(at::randn({of.rows, of.width}).to(of.residual_type)),
        sum(of.branch() ? garbage({of.rows, of.width}, of.residual_type) : residual),
        y(garbage({of.rows, of.width}, of.y_type)),
        statistics(garbage({of.rows, 2}, at::kFloat)),
        residual_gradient(garbage({of.rows, of.width}, of.residual_type)),
        branch_gradient(garbage({of.rows, of.width}, of.y_type)) {}

  at::Tensor residual, branch, weight, bias, y_gradient, sum_gradient;
  at::Tensor sum, y, statistics, residual_gradient, branch_gradient, partial;  // results
};

detail::NormForward forward_arguments(const NormCase& of, const NormTensors& t) {
  return {.residual = t.residual.const_data_ptr(),
          .branch = of.branch() ? t.branch.const_data_ptr() : nullptr,
          .sum = of.branch() ? t.sum.data_ptr() : nullptr,
          .y = t.y.data_ptr(),
          .weight = t.weight.const_data_ptr<float>(),
          .bias = t.bias.const_data_ptr<float>(),
          .statistics = t.statistics.data_ptr<float>(),
          .residual_type = type_of(of.residual_type),
          .y_type = type_of(of.y_type),
          .width = of.width,
          .epsilon = kNormEpsilon,
          .keep = keep_of(of.site())};
}

detail::NormBackward backward_arguments(const NormCase& of, const NormTensors& t) {
  return {.sum = t.sum.const_data_ptr(),
          .y_gradient = t.y_gradient.const_data_ptr(),
          .sum_gradient = of.sum_gradient ? t.sum_gradient.const_data_ptr() : nullptr,
          .residual_gradient = t.residual_gradient.data_ptr(),
          .branch_gradient = of.branch() ? t.branch_gradient.data_ptr() : nullptr,
          .statistics = t.statistics.const_data_ptr<float>(),
          .weight = t.weight.const_data_ptr<float>(),
          .residual_type = type_of(of.residual_type),
          .y_type = type_of(of.y_type),
          .width = of.width,
          .keep = keep_of(of.site())};
}

void run_backward(const NormCase& of, NormTensors& t, std::int64_t blocks, launched::Order order = {}) {
  t.partial = garbage({2, blocks, of.width}, at::kFloat);
  launched::norm_backward(backward_arguments(of, t), of.rows, blocks, nullptr, t.partial.mutable_data_ptr<float>(), order);
}

// True if `result` equals the fp64 numbers up to fp32 arithmetic and the last rounding to its type.
bool is_rounded(const at::Tensor& result, const at::Tensor& exact) {
  const at::ScalarType type = result.scalar_type();
  const double half_step = type == at::kFloat ? 1e-6 : type == at::kHalf ? std::ldexp(1.0, -11) : std::ldexp(1.0, -8);
  return at::allclose(result.to(at::kDouble), exact, half_step, 2e-6 * std::max(1.0, exact.abs().max().item<double>()));
}

void expect_forward(const NormCase& of, const NormTensors& t) {
  at::Tensor sum = t.residual.to(at::kDouble);
  if (of.branch()) {
    const at::Tensor kept = dropout_mask_reference(sum.sizes(), of.site());
    sum = sum + t.branch.to(at::kDouble) * kept * static_cast<double>(dropout_scale(of.site().p));
    EXPECT_TRUE(is_rounded(t.sum, sum)) << of;
  }
  const at::Tensor mean = sum.mean(1, true), off = sum - mean;
  const at::Tensor rate = ((off * off).mean(1, true) + kNormEpsilon).rsqrt();
  EXPECT_TRUE(is_rounded(t.statistics, at::stack({mean, rate}, 1).squeeze(2))) << of;
  EXPECT_TRUE(is_rounded(t.y, off * rate * t.weight + t.bias)) << of;
}

// Uses the sum and the statistics of the forward pass.
void expect_backward(const NormCase& of, const NormTensors& t) {
  const at::Tensor statistics = t.statistics.to(at::kDouble), dy = t.y_gradient.to(at::kDouble),
                   rate = statistics.narrow(1, 1, 1);
  const at::Tensor normed = (t.sum.to(at::kDouble) - statistics.narrow(1, 0, 1)) * rate, weighted = dy * t.weight;
  at::Tensor gradient = rate * (weighted - weighted.mean(1, true) - normed * (weighted * normed).mean(1, true));
  if (of.sum_gradient) gradient = gradient + t.sum_gradient;
  EXPECT_TRUE(is_rounded(t.residual_gradient, gradient)) << of;
  if (of.branch()) {
    const at::Tensor kept = dropout_mask_reference(gradient.sizes(), of.site());
    EXPECT_TRUE(is_rounded(t.branch_gradient, gradient * kept * static_cast<double>(dropout_scale(of.site().p)))) << of;
  }
  EXPECT_TRUE(is_rounded(t.partial.sum(1), at::stack({(dy * normed).sum(0), dy.sum(0)}))) << of << ", " << t.partial.size(1);
}

template <class Body>
void each_norm(const Body& body) {
  at::manual_seed(11);
  for (const std::int64_t width : {128, 384, 768, 1024}) {
    for (const std::int64_t rows : {1, 5, 33}) {
      // For larger tensors ATen would start its threads in each operation; the next test has that size.
      if (rows * width > 32768) continue;
      bool sum_gradient = false;
      for (const auto residual : {at::kFloat, at::kBFloat16, at::kHalf}) {
        for (const auto y : {at::kFloat, at::kBFloat16, at::kHalf}) {
          for (const double p : {-1.0, 0.0, 0.1, 0.5}) {
            sum_gradient = !sum_gradient;
            body({.rows = rows, .width = width, .residual_type = residual, .y_type = y, .p = p, .sum_gradient = sum_gradient});
          }
          sum_gradient = !sum_gradient;
        }
      }
    }
  }
}

TEST(NormLane, GivesTheValuesAndTheGradientsOfItsFormula) {
  each_norm([](const NormCase& of) {
    NormTensors t(of);
    launched::norm_forward(forward_arguments(of, t), of.rows, nullptr);
    expect_forward(of, t);
    run_backward(of, t, (of.rows + 3) / 4);
    expect_backward(of, t);
  });
}

TEST(NormLane, GivesTheSameGradientsWithAnyNumberOfBlocks) {
  for (const std::int64_t width : {640, 1024}) {
    const NormCase of{.rows = 33, .width = width, .residual_type = at::kFloat, .y_type = at::kBFloat16, .p = 0.1};
    NormTensors t(of);
    launched::norm_forward(forward_arguments(of, t), of.rows, nullptr);
    expect_forward(of, t);
    for (const std::int64_t blocks : {1, 2, 13, 40}) {  // the largest number leaves blocks without a row
      run_backward(of, t, blocks);
      expect_backward(of, t);
    }
  }
}

TEST(NormLane, GivesWhatTheKernelsOfTheCpuGive) {
  const NormCase of{.rows = 33, .width = 384, .residual_type = at::kFloat, .y_type = at::kBFloat16, .p = 0.1};
  const NormTensors t(of);
  launched::norm_forward(forward_arguments(of, t), of.rows, nullptr);
  const auto [sum, y] = dropout_add_layer_norm(t.branch, t.residual, t.weight, t.bias, kNormEpsilon, of.site());
  EXPECT_TRUE(equal_bits(t.sum, sum));
  EXPECT_TRUE(at::allclose(t.y.to(at::kFloat), y.to(at::kFloat), std::ldexp(1.0, -7), 1e-5));
}

TEST(NormLane, DropsTheWholeBranchOrNothing) {
  for (const double p : {1.0, 1e-6}) {
    const NormCase of{.rows = 5, .width = 256, .residual_type = at::kFloat, .y_type = at::kFloat, .p = p};
    NormTensors t(of);
    launched::norm_forward(forward_arguments(of, t), of.rows, nullptr);
    expect_forward(of, t);
    run_backward(of, t, 2);
    expect_backward(of, t);
  }
}

TEST(NormLane, FindsARecordedSiteInMemory) {
  const NormCase of{.rows = 33, .width = 640, .residual_type = at::kFloat, .y_type = at::kBFloat16, .p = 0.5};
  at::manual_seed(12);
  NormTensors t(of);
  detail::NormForward forward = forward_arguments(of, t);
  const detail::RecordedSite site{.key = forward.keep.key, .first = forward.keep.first};
  forward.keep.key = 1, forward.keep.first = 0;
  launched::norm_forward(forward, of.rows, &site);
  expect_forward(of, t);
  detail::NormBackward backward = backward_arguments(of, t);
  backward.keep.key = 1, backward.keep.first = 0;
  t.partial = garbage({2, 9, of.width}, at::kFloat);
  launched::norm_backward(backward, of.rows, 9, &site, t.partial.mutable_data_ptr<float>());
  expect_backward(of, t);
}

TEST(NormLane, DoesNotDependOnWhichBlockOrThreadComesFirst) {
  for (const std::int64_t width : {128, 896}) {
    const NormCase of{.rows = 41, .width = width, .residual_type = at::kBFloat16, .y_type = at::kHalf, .p = 0.1};
    at::manual_seed(13);
    NormTensors t(of), other = t;
    other.y = garbage({of.rows, width}, of.y_type);
    launched::norm_forward(forward_arguments(of, t), of.rows, nullptr);
    run_backward(of, t, 7);
    for (const std::uint32_t seed : {1U, 2U, 3U}) {
      launched::norm_forward(forward_arguments(of, other), of.rows, nullptr, launched::Order(seed));
      EXPECT_TRUE(equal_bits(other.y, t.y));
      other.residual_gradient = garbage({of.rows, width}, of.residual_type);
      other.branch_gradient = garbage({of.rows, width}, of.y_type);
      run_backward(of, other, 7, launched::Order(seed));
      EXPECT_TRUE(equal_bits(other.residual_gradient, t.residual_gradient));
      EXPECT_TRUE(equal_bits(other.branch_gradient, t.branch_gradient));
      EXPECT_TRUE(equal_bits(other.partial, t.partial));
    }
  }
}

TEST(NormLane, ATestSeesWhatAGpuRefuses) {
  const NormCase of{.rows = 2, .width = 128, .residual_type = at::kFloat, .y_type = at::kFloat, .p = 0.1};
  const NormTensors t(of);
  detail::NormForward args = forward_arguments(of, t);
  args.keep.first = 64;
  EXPECT_THROW(launched::norm_forward(args, 2, nullptr), std::logic_error);
  args = forward_arguments(of, t);
  args.weight += 1;
  EXPECT_THROW(launched::norm_forward(args, 2, nullptr), std::logic_error);
  args = forward_arguments(of, t);
  args.width = 64;
  EXPECT_THROW(launched::norm_forward(args, 2, nullptr), std::logic_error);
}

}  // namespace
}  // namespace millrace::kernels
