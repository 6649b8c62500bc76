#include "millrace/kernels/product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/few_voxels_conv3d.h"
#include "millrace/kernels/gelu_linear.h"

namespace millrace::kernels {
namespace {

class Products : public EachTable {};
INSTANTIATE_TEST_SUITE_P(Tables, Products, testing::ValuesIn(detail::usable_tables().begin(), detail::usable_tables().end()),
                         table_name);

constexpr std::array<std::array<std::int64_t, 3>, 11> kShapes{{{6, 1, 6},
                                                               {7, 17, 9},
                                                               {13, 64, 70},
                                                               {200, 40, 64},
                                                               {391, 33, 129},
                                                               {12, 513, 16},
                                                               {31, 1100, 81},
                                                               {385, 600, 6},
                                                               {200, 700, 400},  // packed in parts
                                                               {8, 300, 1000},
                                                               {6, 0, 6}}};

TEST_P(Products, Fp32AgreesWithFp64InAllThreeForms) {
  for (const auto& [rows, inner, columns] : kShapes) {
    SCOPED_TRACE(testing::Message() << rows << " " << inner << " " << columns);
    const at::Tensor a = at::randn({rows, inner});
    const at::Tensor b = at::randn({inner, columns});
    const at::Tensor bias = at::randn({columns});
    const at::Tensor expected = a.to(at::kDouble).matmul(b.to(at::kDouble));
    EXPECT_LT(relative_error(product(a, b), expected), 5e-6);
    EXPECT_LT(relative_error(product_with_transposed(a, b.t().contiguous(), {}), expected), 5e-6);
    EXPECT_LT(relative_error(product_with_transposed(a, b.t().contiguous(), bias), expected + bias), 5e-6);
    EXPECT_LT(relative_error(product_of_transposed(a.t().contiguous(), b, {}), expected), 5e-6);
  }
}

TEST_P(Products, Bf16IsSummedInFp32WithColumnSums) {
  for (const auto& [rows, inner, columns] : kShapes) {
    SCOPED_TRACE(testing::Message() << rows << " " << inner << " " << columns);
    for (const std::int64_t height : {rows, std::int64_t{1}}) {
      const at::Tensor y = at::randn({inner, height}).to(at::kBFloat16);
      const at::Tensor x = at::randn({inner, columns}).to(at::kBFloat16);
      const at::Tensor sums = at::empty({height});
      const at::Tensor wide = y.to(at::kDouble);
      EXPECT_LT(relative_error(product_of_transposed(y, x, sums), wide.t().matmul(x.to(at::kDouble))), 5e-6);
      EXPECT_LT(relative_error(sums, wide.sum(0)), 5e-6);
    }
  }
}

TEST_P(Products, OfOperandsThatDoNotFitAnErrorIsThrownAndNothingIsRead) {
  const at::Tensor x = at::randn({32, 10}), weight = at::randn({24, 12}), right = at::randn({24, 10});
  EXPECT_THROW((void)kernels::linear(x, weight, at::Tensor()), c10::Error);
  EXPECT_THROW((void)kernels::linear(x, right, at::randn({8})), c10::Error);
  EXPECT_THROW((void)gelu_linear(x, weight, at::Tensor(), Gelu::tanh), c10::Error);
  EXPECT_THROW((void)gelu_linear(x, right, at::randn({8}), Gelu::tanh), c10::Error);
}

struct FewVoxels {
  std::vector<std::int64_t> x;
  std::int64_t outputs, kernel, stride, padding;
};
const std::vector<FewVoxels> kFewVoxels = {
    {{1, 3, 3, 3, 3}, 27, 3, 1, 1}, {{2, 5, 4, 5, 6}, 40, 4, 2, 1}, {{1, 16, 4, 4, 4}, 32, 4, 1, 1},
    {{3, 2, 5, 2, 7}, 33, 2, 2, 0}, {{1, 7, 4, 3, 5}, 8, 3, 1, 0},  {{1, 1, 2, 2, 2}, 9, 4, 3, 2},
    {{1, 1, 4, 2, 2}, 64, 4, 2, 1}};  // the windows of the last shape are rows of the volume itself

at::Tensor of_few_voxels(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const FewVoxels& shape) {
  const at::Tensor as_x = weight.detach().to(x.scalar_type());
  EXPECT_TRUE(has_few_voxels(x, weight, bias, shape.stride, shape.padding));
  return few_voxels_conv3d(x, weight, as_x, bias, shape.stride, shape.padding);
}
at::Tensor by_library(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const FewVoxels& shape) {
  const std::array<std::int64_t, 3> steps{shape.stride, shape.stride, shape.stride};
  const std::array<std::int64_t, 3> around{shape.padding, shape.padding, shape.padding};
  return at::conv3d(x, weight, bias, steps, around);
}

TEST_P(Products, AConvolutionOfFewVoxelsIsOneInBothLayouts) {
  for (const FewVoxels& shape : kFewVoxels) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast3d}) {
        SCOPED_TRACE(testing::Message() << shape.x << " " << shape.kernel << " " << type << " " << layout);
        const at::Tensor x = at::randn(shape.x).to(type).contiguous(layout);
        const std::int64_t k = shape.kernel;
        const at::Tensor weight =
            at::randn({shape.outputs, shape.x[1], k, k, k}) / std::sqrt(static_cast<double>(shape.x[1] * k * k * k));
        const double tolerance = type == at::kFloat ? 1e-5 : 3e-2;
        for (const bool strided : {false, true}) {  // strided gradients
          expect_agreement([&](const Tensors& in) { return Tensors{of_few_voxels(in[0], in[1], in[2], shape)}; },
                           [&](const Tensors& in) { return Tensors{by_library(in[0], in[1], in[2], shape)}; },
                           {x, weight, at::randn({shape.outputs})}, tolerance, strided);
        }
        expect_agreement([&](const Tensors& in) { return Tensors{of_few_voxels(in[0], in[1], {}, shape)}; },
                         [&](const Tensors& in) { return Tensors{by_library(in[0], in[1], {}, shape)}; }, {x, weight}, tolerance);
        const at::Tensor y = of_few_voxels(x, weight, {}, shape);
        EXPECT_EQ(y.scalar_type(), type);
        EXPECT_TRUE(y.is_contiguous(x.is_contiguous() ? at::MemoryFormat::Contiguous : layout));
      }
    }
  }
}

TEST_P(Products, AConvolutionOfFewVoxelsTakesAPartOfAVolume) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({2, 16, 3, 3, 3}).to(type).narrow(1, 0, 8), weight = at::randn({16, 8, 3, 3, 3}) / 15;
    const FewVoxels shape{{2, 8, 3, 3, 3}, 16, 3, 1, 0};
    expect_agreement([&](const Tensors& in) { return Tensors{of_few_voxels(in[0], in[1], in[2], shape)}; },
                     [&](const Tensors& in) { return Tensors{by_library(in[0], in[1], in[2], shape)}; },
                     {x, weight, at::randn({16})}, type == at::kFloat ? 1e-5 : 3e-2);
  }
}

TEST_P(Products, AConvolutionOfFewVoxelsSumsItsWeightsGradientInFp32) {
  const at::Tensor x = at::randn({1, 8, 4, 4, 4}).to(at::kBFloat16), weight = at::randn({64, 8, 4, 4, 4}).requires_grad_();
  const at::Tensor y = few_voxels_conv3d(x, weight, weight.detach().to(at::kBFloat16), {}, 1, 1);
  const at::Tensor dy = at::randn(y.sizes()).to(at::kBFloat16);
  y.backward(dy);
  EXPECT_FALSE(x.grad().defined());
  const at::Tensor wide = weight.detach().to(at::kDouble).requires_grad_();
  by_library(x.to(at::kDouble), wide, {}, {{}, 64, 4, 1, 1}).backward(dy.to(at::kDouble));
  EXPECT_LT(relative_error(weight.grad(), wide.grad()), 5e-6);
}

TEST_P(Products, AConvolutionOfFewVoxelsSaysWhatItTakes) {
  const at::Tensor x = at::randn({1, 4, 4, 4, 4}), weight = at::randn({64, 4, 3, 3, 3}), bias = at::randn({64});
  EXPECT_TRUE(has_few_voxels(x, weight, bias, 1, 1));
  EXPECT_FALSE(has_few_voxels(at::randn({2, 4, 4, 4, 4}), weight, bias, 1, 1));  // 128 voxels are more than 64 channels
  EXPECT_FALSE(has_few_voxels(at::randn({1, 4, 2, 2, 2}), weight, bias, 1, 0));  // the result has no voxels
  EXPECT_FALSE(has_few_voxels(at::randn({0, 4, 4, 4, 4}), weight, bias, 1, 1));
  EXPECT_FALSE(has_few_voxels(x, at::randn({64, 4, 1, 1, 1}), bias, 1, 0));
  EXPECT_FALSE(has_few_voxels(x, at::randn({64, 4, 3, 3, 1}), bias, 1, 1));
  EXPECT_FALSE(has_few_voxels(x, at::randn({64, 2, 3, 3, 3}), bias, 1, 1));
  EXPECT_FALSE(has_few_voxels(x.to(at::kDouble), weight, bias, 1, 1));
  EXPECT_FALSE(has_few_voxels(x, weight.to(at::kBFloat16), bias, 1, 1));
  EXPECT_FALSE(has_few_voxels(x, weight.contiguous(at::MemoryFormat::ChannelsLast3d), bias, 1, 1));
}

}  // namespace
}  // namespace millrace::kernels
