// Compares values and gradients of a device's own kernels with the CPU's, and replays a recording with other numbers. Skipped,
// and counted as skipped, without a GPU. The tests of the stand-in run it too (tests/standin).
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "millrace/device/detail/test_kernels.h"
#include "millrace/device/device.h"
#include "millrace/device/recording.h"
#include "millrace/kernels/device_linear.h"
#include "millrace/kernels/device_table.h"
#include "millrace/kernels/dropout_bits.h"
#include "millrace/kernels/kernels.h"
#include "millrace/kernels/lerp.h"
#include "millrace/kernels/plain.h"
#include "millrace/kernels/smooth_leaky.h"

namespace millrace::device {
namespace {

at::TensorOptions there(at::ScalarType type = at::kFloat) { return at::TensorOptions(type).device(at::kCUDA); }

// The results of `function` on a device, and the gradients of its inputs. The gradients of the results are the same on every
// device.
Numbers results_on(c10::Device device, const Computes& function, const Numbers& inputs) {
  Numbers leaves;
  for (const at::Tensor& input : inputs)
    leaves.push_back(input.detach().clone().to(device).requires_grad_(input.is_floating_point()));
  Numbers all = function(leaves);
  at::Tensor sum = at::zeros({}, at::TensorOptions().device(device));
  for (const at::Tensor& result : all) {
    const at::Tensor gradient = at::arange(result.numel()).mul(0.7).sin().view(result.sizes()).to(device);
    if (result.requires_grad()) sum = sum + (result.to(at::kFloat) * gradient).sum();
  }
  sum.backward();
  for (const at::Tensor& leaf : leaves)
    if (leaf.requires_grad()) all.push_back(leaf.grad());
  for (at::Tensor& result : all) result = result.detach().cpu().to(at::kFloat);
  return all;
}

}  // namespace

void CudaKernels::SetUp() {
  std::string reason;
  backend_ = cuda(&reason);
  if (backend_ == nullptr) GTEST_SKIP() << reason;
  if (kernels::device_table(c10::kCUDA) == nullptr) GTEST_SKIP() << "a plugin without kernels of its own";
  at::manual_seed(31);
}

void expect_the_cpu(const Computes& function, const Numbers& inputs, double tolerance, const std::string& what) {
  const Numbers ours = results_on(c10::Device("cuda:0"), function, inputs), theirs = results_on(at::kCPU, function, inputs);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double size = std::max(1.0, theirs[i].abs().max().item<double>());
    EXPECT_LE((ours[i] - theirs[i]).abs().max().item<double>() / size, tolerance) << what << ", result or gradient " << i;
  }
}

double tolerance_of(at::ScalarType type) { return type == at::kFloat ? 1e-5 : std::ldexp(1.0, -7); }

namespace {

// The last site's rows are not in order.
std::vector<kernels::Dropout> sites(std::int64_t width) {
  constexpr std::uint64_t kSiteKey = 0x0123456789ABCDEFULL;
  return {{},
          {.p = 0.1, .key = kSiteKey, .first = 5 * width},
          {.p = 0.5, .key = kSiteKey, .first = 0, .runs = {{30 * width, 10 * width}, {0, 23 * width}}}};
}

TEST_F(CudaKernels, NormsRowsAsTheCpu) {
  for (const std::int64_t width : {128, 384, 1024, 100}) {  // the last one has no kernel: LibTorch rounds its weights to x's type
    for (const auto residual_type : {at::kFloat, at::kBFloat16}) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        const Numbers inputs = {at::randn({33, width}).to(type), at::randn({33, width}).to(residual_type), at::randn({width}),
                                at::randn({width})};
        const double tolerance = (width == 100 ? 4 : 1) * std::max(tolerance_of(type), tolerance_of(residual_type));
        const std::string what = std::to_string(width) + " wide";
        for (const kernels::Dropout& site : sites(width)) {
          const Computes step = [&](const Numbers& in) {
            const auto [sum, y] = kernels::dropout_add_layer_norm(in[0], in[1], in[2], in[3], 1e-5, site);
            return Numbers{sum, y};
          };
          expect_the_cpu(step, inputs, tolerance, what);
        }
        expect_the_cpu([&](const Numbers& in) { return Numbers{kernels::layer_norm(in[0], in[1], in[2], 1e-5, type)}; },
                       {inputs[1], inputs[2], inputs[3]}, tolerance, what + ", no branch");
      }
    }
  }
}

TEST_F(CudaKernels, TakesTensorsThatBeginAnywhere) {  // matters because a thread reads several neighbours at once
  const auto shifted = [](const at::Tensor& x) {
    const at::Tensor more = at::empty({x.numel() + 1}, x.options());
    return more.narrow(0, 1, x.numel()).view(x.sizes()).copy_(x);
  };
  const Computes norm = [&](const Numbers& in) {
    const auto [sum, y] =
        kernels::dropout_add_layer_norm(shifted(in[0]), shifted(in[1]), shifted(in[2]), shifted(in[3]), 1e-5, {});
    return Numbers{sum, y};
  };
  expect_the_cpu(norm, {at::randn({5, 256}), at::randn({5, 256}), at::randn({256}), at::randn({256})}, 1e-5, "norm");
  const Computes gelu = [&](const Numbers& in) { return Numbers{kernels::gelu_dropout(shifted(in[0]), {.p = 0.1, .key = 4})}; };
  expect_the_cpu(gelu, {at::randn({5, 33})}, 1e-5, "gelu");
}

TEST_F(CudaKernels, GeluAndSmoothLeakyAreThoseOfTheCpu) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t n : {1, 129, 5001}) {
      const Numbers inputs = {(at::randn({n}) * 3).to(type)};
      for (const kernels::Dropout& site : {kernels::Dropout{}, kernels::Dropout{.p = 0.3, .key = 8, .first = 77}})
        expect_the_cpu([&](const Numbers& in) { return Numbers{kernels::gelu_dropout(in[0], site)}; }, inputs, tolerance_of(type),
                       "gelu of " + std::to_string(n));
      expect_the_cpu([](const Numbers& in) { return Numbers{kernels::smooth_leaky(in[0])}; }, inputs, tolerance_of(type),
                     "smooth leaky of " + std::to_string(n));
    }
  }
}

TEST_F(CudaKernels, CrossEntropyIsThatOfTheCpu) {
  for (const std::int64_t classes : {7, 1000, 1025, 50304}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      at::Tensor target = at::randint(classes, {9}, at::kLong);
      target[3] = -100;
      const Computes loss = [](const Numbers& in) {
        const auto [sum, count] = kernels::cross_entropy_sum(in[0], in[1]);
        return Numbers{sum.view({1}), count};
      };
      expect_the_cpu(loss, {at::randn({9, classes}).to(type), target}, tolerance_of(type), std::to_string(classes));
    }
  }
  const at::Tensor logits = at::randn({3, 70}), bad = at::full({3}, 70, at::kLong);
  EXPECT_TRUE(kernels::cross_entropy_sum(logits.cuda(), bad.cuda()).first.isnan().item<bool>());
  logits.narrow(1, 0, 40).fill_(-std::numeric_limits<float>::infinity());
  const auto sum = [](const at::Tensor& of, const at::Tensor& target) { return kernels::cross_entropy_sum(of, target).first; };
  const at::Tensor good = at::full({3}, 60, at::kLong);
  EXPECT_NEAR(sum(logits.cuda(), good.cuda()).item<double>(), sum(logits, good).item<double>(), 1e-4);
}

TEST_F(CudaKernels, ALinearLayerSumsTheGradientOfItsBias) {
  for (const std::int64_t rows : {1, 70, 1000}) {
    const Computes layer = [](const Numbers& in) {
      const bool own = !in[0].is_cpu();
      EXPECT_EQ(kernels::has_device_linear(in[0], in[1], in[2]), own);
      return Numbers{own ? kernels::device_linear(in[0], in[1], in[2]) : at::linear(in[0], in[1], in[2])};
    };
    const Numbers inputs = {at::randn({2, rows, 24}), at::randn({40, 24}), at::randn({40})};
    expect_the_cpu(layer, inputs, 1e-5, std::to_string(rows) + " rows");
  }
}

TEST_F(CudaKernels, ARecordingDropsByTheNumbersOfItsReplay) {
  const at::Tensor x = at::randn({24, 128}), residual = at::randn({24, 128}), ones = at::ones({128}), none = at::zeros({128});
  const at::Tensor x_there = x.cuda(), residual_there = residual.cuda(), ones_there = ones.cuda(), none_there = none.cuda();
  using Site = kernels::detail::RecordedSite;
  const at::Tensor memory = at::empty({static_cast<std::int64_t>(sizeof(Site))}, there(at::kByte));
  const kernels::Dropout recorded{.p = 0.5, .key = 1, .on_device = memory.const_data_ptr()};
  const auto compute = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& weight, const at::Tensor& bias,
                          const kernels::Dropout& site) {
    auto [sum, y] = kernels::dropout_add_layer_norm(a, b, weight, bias, 1e-5, site);
    return Numbers{kernels::dropout(a, site), kernels::gelu_dropout(a, site), std::move(sum), std::move(y)};
  };
  (void)compute(x_there, residual_there, ones_there, none_there, {.p = 0.5, .key = 1});
  backend_->synchronize(0);
  Numbers results;
  const auto recording =
      backend_->record(0, [&] { results = compute(x_there, residual_there, ones_there, none_there, recorded); });
  if (recording == nullptr) GTEST_SKIP() << "the device records nothing";
  for (const Site& site : {Site{.key = 77, .first = 0}, Site{.key = 78, .first = 128 * 9}}) {
    kernels::device_table(c10::kCUDA)->write(memory.data_ptr(), &site, sizeof site, 0);
    recording->replay();
    const Numbers expected = compute(x, residual, ones, none, {.p = 0.5, .key = site.key, .first = site.first});
    EXPECT_TRUE(at::equal(results[0].cpu(), expected[0])) << site.key;
    for (std::size_t i = 1; i < results.size(); ++i)
      EXPECT_LE((results[i].cpu() - expected[i]).abs().max().item<double>(), 1e-5) << site.key << ", result " << i;
  }
}

// The replay runs longer than the host needs to drop the recording and to give its memory back to the driver.
TEST_F(CudaKernels, ARecordingThatIsDroppedEndsItsReplayFirst) {
  constexpr std::int64_t kSide = 640, kMany = std::int64_t{1} << 24;
  const at::Tensor start = at::full({kSide, kSide}, 1.0 / kSide, there());
  at::Tensor result = at::zeros({}, there());
  const auto work = [&] {
    at::Tensor x = start;
    for (int i = 0; i < 100; ++i) x = x.matmul(start);
    result.copy_(x.select(0, 0).select(0, 0).add(at::zeros({kMany}, there())).mean());  // in memory of the recording alone
  };
  work();
  const at::Tensor expected = result.cpu();
  result.zero_();
  backend_->release_cached(0);  // otherwise the last call would wait for the memory of the first work
  auto recording = backend_->record(0, work);
  if (recording == nullptr) GTEST_SKIP() << "the device records nothing";
  recording->replay();
  recording.reset();
  backend_->release_cached(0);
  EXPECT_TRUE(at::equal(result.cpu(), expected)) << result.item<float>() << " instead of " << expected.item<float>();
}

TEST_F(CudaKernels, MovesRunningMeansAsTheCpu) {
  std::vector<at::Tensor> averages, values, expected;
  for (std::int64_t i = 0; i < 70; ++i) {  // more than a launch takes
    const at::Tensor average = at::randn({i % 7 + 1, 100 * (i % 5)}), value = at::randn(average.sizes());
    const auto type = i % 9 == 0 ? at::kDouble : at::kFloat;
    expected.push_back(at::lerp(average.to(type), value.to(type), 0.25));
    averages.push_back(average.to(there(type)));
    // Some values lie in another order than the averages.
    values.push_back(i % 4 == 0 ? value.t().contiguous().to(there(type)).t() : value.to(there(type)));
  }
  kernels::lerp(averages, values, at::full({}, 0.25, there(at::kDouble)));
  for (std::size_t i = 0; i < averages.size(); ++i) EXPECT_TRUE(at::allclose(averages[i].cpu(), expected[i], 1e-6, 1e-6)) << i;
}

}  // namespace
}  // namespace millrace::device
