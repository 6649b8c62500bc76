#include "recipes/neural_response/sessions/transforms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <numeric>

#include "millrace/base/philox.h"

namespace millrace::recipes::neural_response {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

Series column(std::vector<float> values) {
  const auto rows = static_cast<std::int64_t>(values.size());
  return {rows, 1, std::move(values)};
}

Series random_series(std::int64_t rows, std::int64_t columns) {
  Series series{rows, columns, {}};
  Philox random(11);
  for (std::int64_t i = 0; i < rows * columns; ++i) series.values.push_back(static_cast<float>(random.normal()));
  return series;
}

std::vector<float> applied(const Operation& operation, std::vector<float> values) {
  const std::vector<Operation> operations{operation};
  return apply_operations(operations, column(std::move(values))).values;
}

const op::TemporalBasis kOriginal{
    .num_cosine_funcs = 10, .history_bins = 50, .log_spacing = false, .peak_range_ms = {30, 200}, .causal = false};

TEST(Transforms, DoWhatTheirNamesSay) {
  EXPECT_THAT(applied(op::PixelNorm{}, {0, 127, 255}),
              ElementsAre(FloatNear(-127 / 255.0F, 1e-7F), 0.0F, FloatNear(128 / 255.0F, 1e-7F)));
  EXPECT_THAT(applied(op::Diff{}, {3, 5, 4}), ElementsAre(0, 2, -1));
  EXPECT_THAT(applied(op::Mul{240}, {1, -2}), ElementsAre(240, -480));
  EXPECT_THAT(applied(op::MaxNorm{}, {1, -4, 2}), ElementsAre(0.25F, -1, 0.5F));
  EXPECT_THAT(applied(op::MaxNorm{}, {0, 0}), ElementsAre(0, 0));
  EXPECT_THAT(applied(op::SymLog{}, {0, 1, -3}),
              ElementsAre(0.0F, FloatNear(std::log(2.0F), 1e-6F), FloatNear(-std::log(4.0F), 1e-6F)));
  EXPECT_THAT(applied(op::SplitRelu{}, {2, -3}), ElementsAre(2, 0, 0, 3));
  const std::vector<Operation> split{op::SplitRelu{}};
  EXPECT_THAT(apply_operations(split, {1, 2, {2, -3}}).values, ElementsAre(2, 0, 0, 3))
      << "relu(x) of all columns, then relu(-x)";
  EXPECT_THAT(applied(op::Cast{"uint8"}, {1.9F, -4, 300}), ElementsAre(1, 0, 255));
  EXPECT_THAT(applied(op::Cast{"float16"}, {1.0004F, 70000, 2049}), ElementsAre(1, HUGE_VALF, 2048));
  EXPECT_THAT(applied(op::Cast{"bool"}, {0, 0.5F}), ElementsAre(0, 1));
}

TEST(Transforms, SmoothIsAGaussianReflectedAtTheEnds) {
  const std::vector<float> out = applied(op::Smooth{0.5}, {1, 0, 0, 0, 2});  // the size int(3) + 1 = 4 becomes 5
  const double one = std::exp(-2.0);
  const double two = std::exp(-8.0);
  const double sum = 1 + 2 * one + 2 * two;
  EXPECT_NEAR(out[0], 1 / sum, 1e-6);
  EXPECT_NEAR(out[1], (one + two * 0) / sum, 1e-6);
  EXPECT_NEAR(out[2], (two + 2 * two) / sum, 1e-6);
  EXPECT_NEAR(out[4], 2 / sum, 1e-6);
  EXPECT_THAT(applied(op::Smooth{0}, {1, 5}), ElementsAre(1, 5));
  EXPECT_THAT(applied(op::Smooth{3}, {4}), ElementsAre(FloatNear(4, 1e-5F)));
}

TEST(Transforms, TheBasisHasTenUnitRowsOfFiftyOneTaps) {
  const Series basis = cosine_basis(kOriginal);
  EXPECT_EQ(basis.rows, 10);
  EXPECT_EQ(basis.columns, 51);
  for (std::int64_t j = 0; j < basis.rows; ++j) {
    EXPECT_EQ(basis.row(j)[0], 0.0F);
    EXPECT_NEAR(std::inner_product(basis.row(j), basis.row(j) + 51, basis.row(j), 0.0), 1, 1e-6);
  }
  // Row 0 has its centre at 30 ms and w = 2 * 170 / 9. Tap 1 + 6 is the peak; one bin away a is 5 pi / w.
  EXPECT_NEAR(basis.row(0)[6] / basis.row(0)[7], (1 + std::cos(5 * std::numbers::pi * 9 / 340)) / 2, 1e-6);
  EXPECT_EQ(basis.row(9)[1], 0.0F);

  // The response to an impulse consists of the mirrored taps, from 25 bins before to 25 bins after it.
  std::vector<float> impulse(101, 0.0F);
  impulse[50] = 1;
  const std::vector<Operation> operations{kOriginal};
  const Series out = apply_operations(operations, column(impulse));
  ASSERT_EQ(out.columns, 10);
  for (std::int64_t k = 0; k < 51; ++k) EXPECT_EQ(out.row(50 + 25 - k)[3], basis.row(3)[k]);
  EXPECT_EQ(out.row(76)[3], 0.0F);

  op::TemporalBasis causal = kOriginal;
  causal.causal = true;
  causal.num_delta_funcs = 1;
  const std::vector<Operation> backwards{causal};
  const Series later = apply_operations(backwards, column(impulse));
  for (std::int64_t k = 0; k < 51; ++k) EXPECT_EQ(later.row(50 + k)[4], basis.row(3)[k]);
  EXPECT_EQ(later.row(51)[0], 1.0F);
  EXPECT_EQ(later.row(49)[4], 0.0F);
}

TEST(Transforms, ConesAdaptByTheDynamicModel) {
  const op::DaCones cones{.sampling_rate = 100,
                          .alpha = 2,
                          .beta = 3,
                          .gamma = 0.25,
                          .tau_y_ms = 10,
                          .tau_z_ms = 20,
                          .n_y = 1,
                          .n_z = 2,
                          .filter_length = 3};
  const std::vector<float> out = applied(cones, {1, 0, 0, 0});
  for (int t = 0; t < 4; ++t) {
    const double quick = t < 3 ? t * std::exp(-t / 1.0) : 0;                   // tau is 1 bin, 1! = 1
    const double slow = t < 3 ? t * t * std::exp(-t / 2.0) / (8.0 * 2.0) : 0;  // tau is 2 bins, 2! = 2
    EXPECT_NEAR(out[static_cast<std::size_t>(t)], 2 * quick / (1 + 3 * (0.25 * quick + 0.75 * slow)), 1e-6);
  }
}

// Computes the definition term by term.
std::vector<double> whitened_slowly(const Series& series, Plane plane, const op::FftWhitening& options) {
  const std::array<std::int64_t, 3> size{series.rows, plane.height, plane.width};
  const auto count = static_cast<std::size_t>(size[0] * size[1] * size[2]);
  const auto place = [&](std::size_t i) {
    const auto n = static_cast<std::int64_t>(i);
    return std::array<std::int64_t, 3>{n / (size[1] * size[2]), n / size[2] % size[1], n % size[2]};
  };
  const auto phase = [&](std::size_t i, std::size_t f) {
    double turns = 0;
    for (std::size_t axis = 0; axis < 3; ++axis)
      turns += static_cast<double>(place(i)[axis] * place(f)[axis]) / static_cast<double>(size[axis]);
    return 2 * std::numbers::pi * turns;
  };
  std::vector<double> out(count);
  for (std::size_t f = 0; f < count; ++f) {
    double radius = 0;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::int64_t k = place(f)[axis];
      const double cycles = static_cast<double>(2 * k < size[axis] ? k : k - size[axis]) / static_cast<double>(size[axis]);
      radius += cycles * cycles;
    }
    radius = std::sqrt(radius);
    std::complex<double> sum;
    for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(series.values[i]) * std::polar(1.0, -phase(i, f));
    sum *= radius * std::exp(-std::pow(radius / options.f_0, options.n)) / static_cast<double>(count);
    for (std::size_t i = 0; i < count; ++i) out[i] += (sum * std::polar(1.0, phase(i, f))).real();
  }
  return out;
}

TEST(Transforms, WhiteningWeighsTheFrequenciesOfTheWholeMovie) {
  for (const auto& [rows, plane] : {std::pair{std::int64_t{7}, Plane{3, 5}}, std::pair{std::int64_t{8}, Plane{4, 2}},
                                    std::pair{std::int64_t{6}, Plane{1, 3}}, std::pair{std::int64_t{1}, Plane{2, 2}}}) {
    const Series series = random_series(rows, plane.height * plane.width);
    const op::FftWhitening options{.f_0 = 0.4, .n = 4};
    const std::vector<Operation> operations{options};
    const Series out = apply_operations(operations, series, plane);
    const std::vector<double> expected = whitened_slowly(series, plane, options);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(out.values[i], expected[i], 1e-6) << rows << " frames, " << i;
  }
}

TEST(Transforms, DownsamplingConservesSpikes) {
  Series counts = random_series(101, 3);
  for (float& value : counts.values) value = std::floor(std::abs(value) * 3);
  const Series sums = sum_bins(counts, 4);
  EXPECT_EQ(sums.rows, 25);
  for (std::int64_t c = 0; c < 3; ++c) {
    float before = 0;
    float after = 0;
    for (std::int64_t t = 0; t < 100; ++t) before += counts.row(t)[c];
    for (std::int64_t t = 0; t < 25; ++t) after += sums.row(t)[c];
    EXPECT_EQ(before, after);
  }
  EXPECT_THAT(average_bins(column({1, 3, 5, 8, 9}), 2).values, ElementsAre(2, 6.5F));
}

TEST(Filters, ValidNlagsLooksBackInsideTheTrial) {
  const std::vector<std::int64_t> trials{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1};
  const std::vector<float> dpi{1, 1, 1, 1, 1, 1, 1, 1, 0, 0.5F, 1, 1};
  EXPECT_THAT(valid_nlags(trials, dpi, 3), ElementsAre(0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1));
  EXPECT_THAT(valid_nlags(trials, dpi, 1), ElementsAre(0, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1));
  EXPECT_THAT(valid_nlags(trials, dpi, 6), testing::Each(0));
}

}  // namespace
}  // namespace millrace::recipes::neural_response
