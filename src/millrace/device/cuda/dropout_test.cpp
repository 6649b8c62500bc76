// Compares dropout on a GPU with the CPU's: it drops the same elements, and its numbers are the same to the bit. Skipped, and
// counted as skipped, without a GPU.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <string>

#include "millrace/device/device.h"
#include "millrace/kernels/attention_draws.h"
#include "millrace/kernels/default_generator.h"
#include "millrace/kernels/dropout_bits.h"
#include "millrace/kernels/plain.h"

namespace millrace::device {
namespace {

constexpr std::uint64_t kKey = 0x0F1E2D3C4B5A6978ULL;

class CudaDropout : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (cuda(&reason) == nullptr) GTEST_SKIP() << reason;
  }
};

kernels::Dropout site_of(double p, std::int64_t first) { return {.p = p, .key = kKey, .first = first, .runs = {}}; }

TEST_F(CudaDropout, DropsTheElementsOfTheCpu) {
  for (const std::int64_t n : {0, 1, 127, 1000, 300007}) {
    for (const double p : {0.0, 0.1, 0.5, 1.0}) {
      for (const std::int64_t first : {std::int64_t{0}, std::int64_t{77}, (std::int64_t{1} << 40) + 131}) {
        const kernels::Dropout site = site_of(p, first);
        const at::Tensor mask = kernels::dropout_mask_reference({n}, site);
        EXPECT_TRUE(at::equal(kernels::composed_mask({n}, site, at::kCUDA).cpu(), mask)) << n << " " << p << " " << first;
        EXPECT_TRUE(at::equal(kernels::dropout_mask({n}, site, at::kCUDA).cpu(), mask)) << n << " " << p << " " << first;
        for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
          const at::Tensor x = at::randn({n}).to(type), residual = at::randn({n});
          EXPECT_TRUE(at::equal(kernels::dropout(x.cuda(), site).cpu(), kernels::dropout(x, site))) << n << " " << type;
          EXPECT_TRUE(at::equal(kernels::dropout_add(x.cuda(), residual.cuda(), site).cpu(),
                                residual + kernels::dropout_with_mask(x.to(at::kFloat), mask, p)))
              << n << " " << type;
        }
      }
    }
  }
}

TEST_F(CudaDropout, TakesRowsInAnyOrderAndGivesTheGradientsOfTheCpu) {
  kernels::Dropout site = site_of(0.3, 0);
  // More runs than fit into one launch.
  for (std::int64_t row = 0; row < 40; ++row) site.runs.push_back({(row * 7 % 40) * 77, 77});
  const at::Tensor values = at::randn({40, 77}), gradient = at::randn({40, 77});
  const at::Tensor host = values.clone().requires_grad_(), there = values.cuda().requires_grad_();
  const at::Tensor y = kernels::dropout(host, site), same = kernels::dropout(there, site);
  EXPECT_TRUE(at::equal(same.cpu(), y));
  y.backward(gradient);
  same.backward(gradient.cuda());
  EXPECT_TRUE(at::equal(there.grad().cpu(), host.grad()));
}

TEST_F(CudaDropout, AttentionDropsTheSameAgainAndCountedTheWeightsOfTheCpu) {
  const at::Tensor q = at::randn({2, 40, 3, 16}), k = at::randn({2, 40, 3, 16}), v = at::randn({2, 40, 3, 16});
  const kernels::Dropout site = site_of(0.3, 2 * 3 * 40 * 40);
  const auto half = [](const at::Tensor& x) { return x.cuda().to(at::kHalf); };
  const auto fused = [&] {
    kernels::seed_default_generator(at::Device("cuda:0"), kKey);  // as step/draws.h does before each forward pass
    return kernels::causal_attention(half(q), half(k), half(v), site);
  };
  const at::Tensor first = fused();
  (void)at::randn({100}, at::TensorOptions().device(at::kCUDA));  // advances the generator
  EXPECT_TRUE(at::equal(fused(), first));
  kernels::set_counted_attention(true);
  const at::Tensor counted = kernels::causal_attention(q.cuda(), k.cuda(), v.cuda(), site).cpu();
  kernels::set_counted_attention(false);
  EXPECT_TRUE(at::allclose(counted, kernels::causal_attention(q, k, v, site), 1e-4, 1e-5));
}

}  // namespace
}  // namespace millrace::device
