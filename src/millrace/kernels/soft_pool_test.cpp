// Compares the blurred soft pooling and the RMS norm with ATen in fp64: values and gradients, both layouts, every remainder of a
// vector.
#include "millrace/kernels/soft_pool.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/rms_norm.h"

namespace millrace::kernels {
namespace {

using Sizes = std::vector<std::int64_t>;

class Residual : public EachTable {};
INSTANTIATE_TEST_SUITE_P(Tables, Residual, testing::ValuesIn(detail::usable_tables().begin(), detail::usable_tables().end()),
                         table_name);

TEST_P(Residual, SoftPoolingAgreesWithAten) {
  const std::vector<Sizes> shapes = {{1, 1, 1, 2, 2}, {2, 5, 3, 7, 6}, {1, 16, 2, 5, 4}, {2, 33, 1, 9, 13}, {1, 40, 2, 3, 17}};
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const auto layout : kLayouts) {
      for (const Sizes& sizes : shapes) {
        for (const std::int64_t stride : {1, 2, 3}) {
          const at::Tensor x = (at::randn(sizes) * 2).to(type).contiguous(layout);
          for (const bool strided : {false, true}) {
            expect_agreement([=](const Tensors& in) { return Tensors{blurred_soft_pool(in[0], stride)}; },
                             [=](const Tensors& in) { return Tensors{blurred_soft_pool_plain(in[0], stride)}; }, {x},
                             type == at::kFloat ? 1e-5 : 1e-2, strided);
          }
          EXPECT_TRUE(blurred_soft_pool(x, stride).is_contiguous(layout));
        }
      }
    }
  }
}

TEST_P(Residual, SoftPoolingOfLargeNumbersIsTheirMean) {
  const at::Tensor x = at::full({1, 3, 1, 8, 8}, 200.0F).requires_grad_();  // every weight is e^30
  const at::Tensor y = blurred_soft_pool(x, 1);
  EXPECT_NEAR(y[0][0][0][3][3].item<double>(), 200.0, 1e-3);
  y[0][0][0][3][3].backward();
  EXPECT_NEAR(x.grad().sum().item<double>(), 1.0, 1e-5);
  EXPECT_EQ(blurred_soft_pool(at::zeros({0, 3, 1, 8, 8}), 1).numel(), 0);
}

TEST_P(Residual, RmsNormAgreesWithAten) {
  const std::vector<Sizes> shapes = {{1, 2, 1, 1, 1}, {2, 3, 2, 5, 7}, {1, 16, 1, 8, 8}, {2, 37, 3, 4, 11}, {1, 8, 2, 10, 13}};
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const double tolerance = type == at::kFloat ? 1e-4 : 1e-2;  // sums over few channels cancel
    const auto kernel = [](const Tensors& in) { return Tensors{rms_norm_silu(in[0], 1e-5)}; };
    const auto reference = [](const Tensors& in) { return Tensors{rms_norm_silu_plain(in[0], 1e-5)}; };
    for (const bool strided : {false, true}) {
      for (const auto layout : kLayouts) {
        for (const Sizes& sizes : shapes) {
          const at::Tensor x = (at::randn(sizes) * 3).to(type).contiguous(layout);
          expect_agreement(kernel, reference, {x}, tolerance, strided);
          EXPECT_TRUE(rms_norm_silu(x, 1e-5).is_contiguous(layout));
        }
      }
      expect_agreement(kernel, reference, {at::randn({5, 19}).to(type)}, tolerance, strided);
    }
  }
  const at::Tensor zero = at::zeros({1, 4, 1, 2, 2}).requires_grad_();
  rms_norm_silu(zero, 1e-5).sum().backward();
  EXPECT_NEAR(zero.grad()[0][0][0][0][0].item<double>(), 0.5 / std::sqrt(1e-5), 1e-2);
}

TEST_P(Residual, ThreadsChangeNoBit) {
  const int threads = at::get_num_threads();
  const at::Tensor input = at::randn({3, 20, 2, 9, 9});
  const auto gradient = [&](int count) {
    at::set_num_threads(count);
    const at::Tensor x = input.clone().requires_grad_();
    blurred_soft_pool(rms_norm_silu(x, 1e-5), 2).square().sum().backward();
    return x.grad();
  };
  const at::Tensor one = gradient(1);
  for (const int count : {2, 3, 8}) EXPECT_TRUE(equal_bits(one, gradient(count)));
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace millrace::kernels
