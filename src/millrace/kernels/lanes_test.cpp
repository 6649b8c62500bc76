// Compares the devices' GELU with dropout, cross-entropy, functions of one number and sums of columns with ATen in fp64. The
// lanes' arithmetic runs on the CPU, in the geometry of device/cuda/*.cu.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/detail/test_launch.h"
#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/dropout_bits.h"
#include "millrace/kernels/smooth_leaky.h"

namespace millrace::kernels {
namespace {

constexpr auto kLaneTypes = {at::kFloat, at::kBFloat16, at::kHalf};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

// n numbers that begin `place` elements after the start of a block of memory. The rest of the block must stay NaN.
struct Placed {
  Placed(std::int64_t n, std::int64_t place, at::ScalarType type)
      : all(at::full({n + 32}, kNoNumber, type)), numbers(all.narrow(0, 8 + place, n)) {}
  [[nodiscard]] bool leaves_the_rest() const {
    const std::int64_t begin = numbers.storage_offset(), end = begin + numbers.numel();
    return all.narrow(0, 0, begin).isnan().all().item<bool>() && all.narrow(0, end, all.numel() - end).isnan().all().item<bool>();
  }
  at::Tensor all, numbers;
};

at::Tensor placed_randn(std::int64_t n, std::int64_t place, at::ScalarType type) {
  const Placed x(n, place, type);
  x.numbers.copy_(at::randn({n}) * 3);
  return x.numbers;
}

// The error may be that of fp32 arithmetic, in relation to `size`, and of one rounding to the type of `result`.
void expect_rounded(const at::Tensor& result, const at::Tensor& exact, const std::string& what, double size = 1.0) {
  const at::ScalarType type = result.scalar_type();
  const double half_step = type == at::kFloat ? 1e-6 : type == at::kHalf ? std::ldexp(1.0, -11) : std::ldexp(1.0, -8);
  EXPECT_TRUE(at::allclose(result.to(at::kDouble), exact, half_step, 1e-6 * size, /*equal_nan=*/true))
      << what << " " << type << ": " << (result.to(at::kDouble) - exact).abs().max().item<double>();
}

// Equal; NaN counts as equal to NaN.
void expect_the_same(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  EXPECT_TRUE(at::allclose(a, b, 0, 0, /*equal_nan=*/true)) << what;
}

// ---- GELU with dropout

void expect_gelu(std::int64_t n, std::int64_t place, at::ScalarType type, const Dropout& site) {
  const at::Tensor x = placed_randn(n, place, type), gradient = placed_randn(n, place, type);
  const at::Tensor factor = dropout_mask_reference({n}, site).to(at::kDouble) * static_cast<double>(dropout_scale(site.p));
  const std::string what = std::to_string(n) + " at " + std::to_string(site.first) + ", p " + std::to_string(site.p);
  for (const bool backward : {false, true}) {
    Placed out(n, place, type), again(n, place, type);
    detail::GeluArgs args{.x = x.const_data_ptr(),
                          .gradient = backward ? gradient.const_data_ptr() : nullptr,
                          .out = out.numbers.mutable_data_ptr(),
                          .type = type_of(type),
                          .count = n,
                          .keep = keep_of(site)};
    launched::gelu(args, nullptr);
    const at::Tensor wide = x.to(at::kDouble);
    const at::Tensor exact = (backward ? at::gelu_backward(gradient.to(at::kDouble), wide) : at::gelu(wide)) * factor;
    expect_rounded(out.numbers, exact, what, 4 / (1 - site.p));
    EXPECT_TRUE(out.leaves_the_rest());
    const detail::RecordedSite recorded{.key = args.keep.key, .first = args.keep.first};
    args.keep.key = 3, args.keep.first = 17, args.out = again.numbers.mutable_data_ptr();
    launched::gelu(args, &recorded, launched::Order(5));
    EXPECT_TRUE(equal_bits(again.numbers, out.numbers)) << what;
    EXPECT_TRUE(again.leaves_the_rest());
  }
}

TEST(GeluLane, GivesTheValuesAndTheGradientsOfAten) {
  at::manual_seed(21);
  for (const std::int64_t n : {1, 2, 31, 127, 128, 129, 1000, 4099})
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{1}, std::int64_t{77}, (std::int64_t{1} << 40) + 131})
      for (const double p : {0.0, 0.1, 0.5})
        for (const auto type : kLaneTypes)
          expect_gelu(n, (n + first) % 3, type, {.p = p, .key = 0x1234567890ABCDEFULL, .first = first});
}

// ---- Cross-entropy

struct Losses {
  at::Tensor losses, log_sums, gradient;
};

Losses losses_of(const at::Tensor& logits, const at::Tensor& target, float upstream, launched::Order order = {}) {
  const std::int64_t rows = logits.size(0), classes = logits.size(1);
  const Losses all{at::full({rows}, kNoNumber), at::full({rows}, kNoNumber), at::full_like(logits, kNoNumber)};
  detail::CrossEntropy args{.logits = logits.const_data_ptr(),
                            .targets = target.const_data_ptr<std::int64_t>(),
                            .log_sums = all.log_sums.data_ptr<float>(),
                            .gradient = nullptr,
                            .upstream = nullptr,
                            .type = type_of(logits),
                            .classes = classes,
                            .ignore_index = -100};
  launched::cross_entropy_forward(args, rows, all.losses.data_ptr<float>(), order);
  args.gradient = all.gradient.data_ptr();
  args.upstream = &upstream;
  launched::cross_entropy_backward(args, rows, order);
  return all;
}

// `size` is the size of the logits, to which the error of log sums is relative.
void expect_losses(const at::Tensor& logits, const at::Tensor& target, double size) {
  const std::string what = std::to_string(logits.size(0)) + " x " + std::to_string(logits.size(1));
  const Losses all = losses_of(logits, target, 0.5F);
  const at::Tensor chances = at::log_softmax(logits.to(at::kDouble), 1), counts = target.ne(-100);
  const at::Tensor place = at::where(counts, target, 0);
  const at::Tensor losses = at::where(counts, -chances.gather(1, place.unsqueeze(1)).squeeze(1), 0.0);
  expect_rounded(all.losses, losses, what + " losses", 2 * size);
  const at::Tensor gradient = (chances.exp() - at::one_hot(place, logits.size(1))) * 0.5 * counts.unsqueeze(1);
  expect_rounded(all.gradient, gradient, what + " gradient", size);
  const Losses again = losses_of(logits, target, 0.5F, launched::Order(3));
  expect_the_same(again.losses, all.losses, what);
  expect_the_same(again.gradient, all.gradient, what);
}

TEST(CrossEntropyLane, GivesTheLossesAndTheGradientsOfAten) {
  at::manual_seed(22);
  for (const std::int64_t classes : {1, 7, 70, 1000, 1024, 1025, 50304}) {
    for (const std::int64_t rows : {1, 5, 33}) {
      if (rows * classes > 300000) continue;
      const at::Tensor target = at::randint(classes, {rows}, at::kLong);
      if (rows > 1) target[1] = -100;
      for (const auto type : kLaneTypes) {
        const at::Tensor logits = placed_randn(rows * classes, rows % 2, type).view({rows, classes});
        expect_losses(logits, target, 12);
      }
    }
  }
}

TEST(CrossEntropyLane, TakesLogitsOfAnySize) {
  at::manual_seed(23);
  for (const std::int64_t classes : {3, 70, 1000, 4096}) {
    const at::Tensor target = at::full({4}, classes - 1, at::kLong);
    at::Tensor logits = at::randn({4, classes});
    expect_losses(logits * 1e4, target, 4e4);
    expect_losses(logits - 1e4, target, 1e4);
    logits.narrow(1, 0, classes - 1).masked_fill_(at::randn({4, classes - 1}) > 0, -kInfinity);
    logits.narrow(1, 0, classes / 2) = -kInfinity;
    expect_losses(logits, target, 12);
    logits.narrow(1, 0, classes - 1).fill_(-kInfinity);
    expect_losses(logits, target, 12);
    EXPECT_TRUE(losses_of(at::full({4, classes}, -3e38F), target, 1.0F).losses.isfinite().all().item<bool>());
    expect_losses(at::full({4, classes}, -kInfinity), target, 12);  // NaN, as in ATen
    logits = at::randn({4, classes});
    logits.narrow(1, classes - 2, 1) = kNoNumber;
    expect_losses(logits, target, 12);
  }
}

TEST(CrossEntropyLane, ATargetThatIsNoClassGivesNaN) {
  for (const std::int64_t classes : {8, 2000}) {
    const at::Tensor target = at::full({4}, 1, at::kLong);
    target[1] = -1;
    target[2] = classes;
    const at::Tensor losses = losses_of(at::randn({4, classes}), target, 1.0F).losses;
    EXPECT_TRUE(at::equal(losses.isnan(), at::arange(4).eq(1).logical_or(at::arange(4).eq(2))));
  }
}

TEST(CrossEntropyLane, ARowThatDoesNotCountGivesNothingWhateverItsLogitsAre) {
  const at::Tensor logits = at::full({3, 300}, kNoNumber), target = at::full({3}, -100, at::kLong);
  const Losses all = losses_of(logits, target, 1.0F);
  EXPECT_TRUE(at::equal(all.losses, at::zeros({3})));
  EXPECT_TRUE(at::equal(all.gradient, at::zeros({3, 300})));
}

// ---- Functions of one number

at::Tensor quick_gelu_of_aten(const at::Tensor& x) { return x * at::sigmoid(x * 1.702); }

at::Tensor by_pointwise(Pointwise function, const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& out) {
  launched::pointwise(function, {.x = x.const_data_ptr(),
                                 .gradient = gradient.defined() ? gradient.const_data_ptr() : nullptr,
                                 .out = out.data_ptr(),
                                 .type = type_of(x),
                                 .count = x.numel()});
  return out;
}

void expect_pointwise(Pointwise function, std::int64_t n, std::int64_t place, at::ScalarType type) {
  const at::Tensor x = placed_randn(n, place, type), gradient = placed_randn(n, place / 2, type);
  const Placed y(n, place, type), dx(n, place, type);
  const at::Tensor exact_x = x.to(at::kDouble).detach().requires_grad_();
  const at::Tensor exact = function == Pointwise::smooth_leaky ? smooth_leaky_plain(exact_x) : quick_gelu_of_aten(exact_x);
  exact.backward(gradient.to(at::kDouble));
  const std::string what = std::to_string(n) + " numbers";
  expect_rounded(by_pointwise(function, x, {}, y.numbers), exact.detach(), what, 4);
  expect_rounded(by_pointwise(function, x, gradient, dx.numbers), exact_x.grad(), what, 10);
  EXPECT_TRUE(y.leaves_the_rest() && dx.leaves_the_rest());
  EXPECT_TRUE(equal_bits(by_pointwise(function, x, gradient, gradient), dx.numbers));  // in place
  EXPECT_TRUE(equal_bits(by_pointwise(function, x, {}, x), y.numbers));
}

TEST(PointwiseLane, GivesTheValuesAndTheGradientsOfAten) {
  at::manual_seed(24);
  for (const Pointwise function : {Pointwise::smooth_leaky, Pointwise::quick_gelu})
    for (const std::int64_t n : {1, 3, 7, 8, 9, 256, 1000, 4099})
      for (const std::int64_t place : {0, 1, 2})
        for (const auto type : kLaneTypes) expect_pointwise(function, n, place, type);
}

TEST(PointwiseLane, NaNStaysAndInfinityIsMet) {
  const at::Tensor x = at::full({8}, kNoNumber), ones = at::ones({8}), y = at::zeros({8}), dx = at::zeros({8});
  for (const Pointwise function : {Pointwise::smooth_leaky, Pointwise::quick_gelu}) {
    EXPECT_TRUE(by_pointwise(function, x, {}, y).isnan().all().item<bool>());
    EXPECT_TRUE(by_pointwise(function, x, ones, dx).isnan().all().item<bool>());
  }
  for (const float end : {kInfinity, -kInfinity}) {
    x.fill_(end);
    EXPECT_EQ(by_pointwise(Pointwise::smooth_leaky, x, {}, y)[0].item<float>(), end);
    EXPECT_FLOAT_EQ(by_pointwise(Pointwise::smooth_leaky, x, ones, dx)[0].item<float>(), end > 0 ? 3 / 3.5F : 1 / 3.5F);
    expect_rounded(by_pointwise(Pointwise::quick_gelu, x, {}, y), quick_gelu_of_aten(x.to(at::kDouble)), "infinity");
  }
}

// ---- Sums of columns

at::Tensor parts_of(const at::Tensor& matrix, std::int64_t blocks, launched::Order order = {}) {
  at::Tensor parts = at::full({blocks, matrix.size(1)}, kNoNumber);
  launched::column_sums(matrix.const_data_ptr(), type_of(matrix), matrix.size(0), matrix.size(1), blocks,
                        parts.mutable_data_ptr<float>(), order);
  return parts;
}

TEST(ColumnSums, GivesTheSumsOfAtenInAnyOrderOfBlocksAndThreads) {
  at::manual_seed(25);
  for (const std::int64_t rows : {1, 5, 33, 1000}) {
    for (const std::int64_t columns : {8, 40, 256, 264, 1000}) {
      for (const std::int64_t blocks : {1, 3, 17}) {  // 17 blocks are more than there are rows
        for (const auto type : kLaneTypes) {
          const at::Tensor matrix = at::randn({rows, columns}).to(type), wide = matrix.to(at::kDouble);
          const at::Tensor parts = parts_of(matrix, blocks);
          expect_rounded(parts.to(at::kDouble).sum(0).to(at::kFloat), wide.sum(0), std::to_string(rows),
                         wide.abs().sum(0).max().item<double>());
          EXPECT_TRUE(equal_bits(parts_of(matrix, blocks, launched::Order(7)), parts));
        }
      }
    }
  }
  EXPECT_THROW((void)parts_of(at::randn({3, 6}), 1), std::logic_error);  // a row has no whole pieces
}

}  // namespace
}  // namespace millrace::kernels
