// Compares layer norm, cross-entropy and linear layers with ATen.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/dropout_bits.h"
#include "millrace/kernels/plain.h"

namespace millrace::kernels {
namespace {

constexpr std::uint64_t kKernelsKey = 0x55AA55AA12345678ULL;

class Kernels : public EachTable {};
INSTANTIATE_TEST_SUITE_P(Tables, Kernels, testing::ValuesIn(detail::usable_tables().begin(), detail::usable_tables().end()),
                         table_name);

TEST_P(Kernels, LayerNormAgreesWithAten) {
  for (const std::int64_t width : {1, 7, 16, 17, 129, 384}) {
    for (const auto in : {at::kFloat, at::kBFloat16}) {
      for (const auto out : {at::kFloat, at::kBFloat16}) {
        const auto kernel = [&](const Tensors& x) { return Tensors{layer_norm(x[0], x[1], x[2], 1e-5, out)}; };
        const auto reference = [&](const Tensors& x) { return Tensors{at::layer_norm(x[0], {width}, x[1], x[2], 1e-5)}; };
        const bool exact = in == at::kFloat && out == at::kFloat;
        SCOPED_TRACE(testing::Message() << width << " " << in << " " << out);
        expect_agreement(kernel, reference, {strided_randn({70, width}, in), at::randn({width}), at::randn({width})},
                         exact        ? 2e-5
                         : width == 1 ? 2e-2
                                      : 1e-2,
                         true);
      }
    }
  }
}

TEST_P(Kernels, DropoutAddLayerNormAgreesWithItsParts) {
  for (const std::int64_t width : {1, 7, 17, 129, 384}) {
    for (const double p : {0.0, 0.3}) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        const at::Tensor mask = dropout_mask_reference({2, 35, width}, {p, kKernelsKey});
        const auto kernel = [&](const Tensors& x) {
          const auto [sum, y] = dropout_add_layer_norm(x[0], x[1], x[2], x[3], 1e-5, {p, kKernelsKey});
          return Tensors{sum, y};
        };
        const auto reference = [&](const Tensors& x) {
          const at::Tensor sum = x[1] + dropout_with_mask(x[0], mask, p);
          return Tensors{sum, at::layer_norm(sum, {width}, x[2], x[3], 1e-5)};
        };
        SCOPED_TRACE(testing::Message() << width << " " << p << " " << type);
        const double tolerance = type == at::kFloat ? (width == 1 ? 1e-3 : 5e-5) : 1.5e-2;
        expect_agreement(kernel, reference,
                         {at::randn({2, 35, width}).to(type), strided_randn({2, 35, width}, at::kFloat), at::randn({width}),
                          at::randn({width})},
                         tolerance);
      }
    }
  }
}

TEST_P(Kernels, DropoutAddLayerNormDrawsTheBitsOfDropoutAdd) {
  const at::Tensor x = at::randn({13, 77}).to(at::kBFloat16);
  const at::Tensor residual = at::randn({13, 77});
  const at::Tensor sum = dropout_add_layer_norm(x, residual, at::ones({77}), at::zeros({77}), 1e-5, {0.4, kKernelsKey}).first;
  EXPECT_TRUE(equal_bits(sum, dropout_add(x, residual, {0.4, kKernelsKey})));
}

TEST_P(Kernels, NormTakesAGradientOfOneOutputOnly) {
  for (const bool of_sum : {true, false}) {
    const at::Tensor x = at::randn({5, 20}).requires_grad_();
    const at::Tensor residual = at::randn({5, 20}).requires_grad_();
    const at::Tensor weight = at::ones({20}).requires_grad_();
    const auto [sum, y] = dropout_add_layer_norm(x, residual, weight, at::zeros({20}), 1e-5, {0.5, kKernelsKey});
    const at::Tensor gradient = at::randn({5, 20});
    (of_sum ? sum : y).backward(gradient);
    EXPECT_EQ(equal_bits(residual.grad(), gradient), of_sum);
    const at::Tensor mask = dropout_mask_reference({5, 20}, {0.5, kKernelsKey});
    EXPECT_TRUE(equal_bits(x.grad(), dropout_with_mask(residual.grad(), mask, 0.5)));
  }
}

TEST_P(Kernels, NormGivesTheSameBitsForAnyThreadCount) {
  const int threads = at::get_num_threads();
  const at::Tensor x = at::randn({1000, 130});
  Tensors results;
  for (const int n : {1, 2, 3}) {
    at::set_num_threads(n);
    const at::Tensor weight = at::ones({130}).requires_grad_();
    layer_norm(x, weight, at::zeros({130}), 1e-5).pow(3).sum().backward();
    results.push_back(weight.grad());
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(equal_bits(results[0], results[1]));
  EXPECT_TRUE(equal_bits(results[0], results[2]));
}

TEST_P(Kernels, NormTakesFp64AndEmptyInput) {
  const at::Tensor wide = at::randn({4, 10}, at::kDouble);
  EXPECT_EQ(layer_norm(wide, at::ones({10}), at::zeros({10}), 1e-5).scalar_type(), at::kDouble);
  EXPECT_EQ(layer_norm(at::randn({0, 10}), at::ones({10}), at::zeros({10}), 1e-5).size(0), 0);
}

at::Tensor plain_cross_entropy(const at::Tensor& logits, const at::Tensor& target, std::int64_t ignore) {
  return at::nll_loss(at::log_softmax(logits, 1), target, {}, at::Reduction::Sum, ignore);
}

TEST_P(Kernels, CrossEntropyAgreesWithAten) {
  for (const std::int64_t classes : {1, 7, 16, 43, 70, 1001, 50257}) {
    const std::int64_t rows = classes > 10000 ? 3 : 67;
    const at::Tensor target = at::randint(0, classes, {rows}, at::kLong);
    target[1].fill_(-100);
    const auto kernel = [&](const Tensors& in) { return Tensors{cross_entropy_sum(in[0], target).first}; };
    const auto reference = [&](const Tensors& in) { return Tensors{plain_cross_entropy(in[0], target, -100)}; };
    SCOPED_TRACE(classes);
    expect_agreement(kernel, reference, {strided_randn({rows, classes}, at::kFloat) * 4}, 1e-5);
    expect_agreement(kernel, reference, {at::randn({rows, classes}).to(at::kBFloat16)}, 5e-3);
    EXPECT_EQ(cross_entropy_sum(at::randn({rows, classes}), target).second.item<float>(), static_cast<float>(rows - 1));
  }
}

TEST_P(Kernels, CrossEntropyIgnoresRowsAndRefusesBadTargets) {
  const at::Tensor logits = at::randn({4, 5}).requires_grad_();
  const at::Tensor ignored = at::full({4}, 0, at::kLong);
  const auto [sum, count] = cross_entropy_sum(logits, ignored, 0);
  EXPECT_EQ(sum.item<float>(), 0.0F);
  EXPECT_EQ(count.item<float>(), 0.0F);
  EXPECT_FALSE(count.requires_grad());
  sum.backward();
  EXPECT_EQ(logits.grad().abs().sum().item<float>(), 0.0F);
  for (const std::int64_t bad : {5, -1}) {
    const at::Tensor target = at::full({4}, 1, at::kLong);
    target[2].fill_(bad);
    try {
      cross_entropy_sum(logits, target);
      ADD_FAILURE() << "target " << bad << " was accepted";
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(), testing::HasSubstr("of row 2 is not in [0, 5)"));
    }
  }
  EXPECT_THROW(cross_entropy_sum(logits, at::full({3}, 1, at::kLong)), c10::Error);
}

TEST_P(Kernels, CrossEntropyOfNanIsNan) {
  const at::Tensor logits = at::randn({2, 40});
  logits[1][3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(cross_entropy_sum(logits, at::zeros({2}, at::kLong)).first.isnan().item<bool>());
}

Tensors linear_inputs(std::int64_t rows, std::int64_t in, std::int64_t out) {
  return {at::randn({rows, in}).to(at::kBFloat16), at::randn({out, in}), at::randn({out})};
}

TEST_P(Kernels, LinearAgreesWithAten) {
  const std::vector<std::array<std::int64_t, 3>> shapes{{1, 1, 1}, {7, 17, 5}, {33, 129, 70}, {64, 64, 192}, {130, 40, 200}};
  for (const auto& [rows, in, out] : shapes) {
    const auto kernel = [](const Tensors& x) { return Tensors{linear(x[0], x[1], x[2])}; };
    // The reference also gets weights rounded to bf16, so that only the product's arithmetic is compared.
    const auto reference = [](const Tensors& x) { return Tensors{at::linear(x[0], x[1], x[2])}; };
    Tensors inputs = linear_inputs(rows, in, out);
    inputs[1] = inputs[1].to(at::kBFloat16).to(at::kFloat);
    SCOPED_TRACE(testing::Message() << rows << " " << in << " " << out);
    expect_agreement(kernel, reference, inputs, 1e-2, true);
  }
}

TEST_P(Kernels, WeightGradientsAreSummedInFp32) {
  const Tensors in = linear_inputs(257, 65, 50);
  const at::Tensor weight = in[1].clone().requires_grad_();
  const at::Tensor bias = in[2].clone().requires_grad_();
  const at::Tensor gradient = at::randn({257, 50}).to(at::kBFloat16);
  linear(in[0], weight, bias).backward(gradient);
  const at::Tensor wide = gradient.to(at::kDouble);
  EXPECT_LT(relative_error(weight.grad(), wide.t().matmul(in[0].to(at::kDouble))), 2e-6);
  EXPECT_LT(relative_error(bias.grad(), wide.sum(0)), 2e-6);
}

TEST_P(Kernels, LinearWithoutBiasAndWithFrozenParts) {
  const Tensors in = linear_inputs(9, 20, 30);
  const at::Tensor x = in[0].clone().requires_grad_();
  const at::Tensor weight = in[1].clone().requires_grad_();
  linear(x, weight, at::Tensor()).sum().backward();
  EXPECT_TRUE(x.grad().defined() && weight.grad().defined());
  const at::Tensor other = in[0].clone().requires_grad_();
  linear(other, in[1], in[2]).sum().backward();  // the weight is frozen
  EXPECT_TRUE(equal_bits(other.grad(), x.grad()));
  EXPECT_FALSE(in[1].grad().defined());
}

TEST_P(Kernels, LinearPackedEqualsSeparateLayers) {
  const at::Tensor x = at::randn({2, 11, 24}).to(at::kBFloat16);
  Tensors weights;
  Tensors biases;
  for (const std::int64_t out : {5, 32, 16}) {
    weights.push_back(at::randn({out, 24}).requires_grad_());
    biases.push_back(at::randn({out}).requires_grad_());
  }
  const at::Tensor y = linear_packed(x, weights, biases);
  const at::Tensor gradient = at::randn(y.sizes()).to(at::kBFloat16);
  y.backward(gradient);
  std::int64_t column = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t out = weights[i].size(0);
    const at::Tensor weight = weights[i].detach().clone().requires_grad_();
    const at::Tensor bias = biases[i].detach().clone().requires_grad_();
    const at::Tensor alone = linear(x, weight, bias);
    EXPECT_LT(relative_error(y.narrow(2, column, out), alone), 1e-2);
    alone.backward(gradient.narrow(2, column, out));
    EXPECT_LT(relative_error(weights[i].grad(), weight.grad()), 1e-6);
    EXPECT_LT(relative_error(biases[i].grad(), bias.grad()), 1e-6);
    column += out;
  }
}

TEST_P(Kernels, LinearTakesFp32) {
  const std::vector<std::array<std::int64_t, 3>> shapes{{1, 3, 2}, {7, 17, 5}, {33, 129, 70}, {130, 40, 200}};
  for (const auto& [rows, in, out] : shapes) {
    const auto kernel = [](const Tensors& x) {
      return Tensors{linear(x[0], x[1], x[2]), linear_packed(x[0], {x[1], x[1]}, {}), linear(x[0], x[1], at::Tensor())};
    };
    const auto reference = [](const Tensors& x) {
      const at::Tensor y = at::linear(x[0], x[1]);
      return Tensors{y + x[2], at::cat({y, y}, -1), y};
    };
    expect_agreement(kernel, reference, {at::randn({rows, in}), at::randn({out, in}), at::randn({out})}, 1e-5);
    const auto alone = [](const Tensors& x) { return Tensors{linear(x[0], x[1].t(), x[2])}; };  // a weight that is a view
    const auto plain = [](const Tensors& x) { return Tensors{at::linear(x[0], x[1].t(), x[2])}; };
    expect_agreement(alone, plain, {strided_randn({2, rows, in}, at::kFloat), at::randn({in, out}), at::randn({out})}, 1e-5,
                     true);
  }
}

TEST(WeightCopies, FollowEveryWayAWeightChanges) {
  const at::Tensor x = at::ones({1, 4}).to(at::kBFloat16);
  const at::Tensor weight = at::ones({1, 4}).requires_grad_();
  const at::NoGradGuard no_grad;
  const auto value = [&] { return linear(x, weight, at::Tensor()).item<float>(); };
  EXPECT_EQ(value(), 4.0F);
  weight.add_(1.0);
  EXPECT_EQ(value(), 8.0F);
  weight.copy_(at::full({1, 4}, 0.5));
  EXPECT_EQ(value(), 2.0F);
  weight.set_data(at::full({1, 4}, 3.0));
  EXPECT_EQ(value(), 12.0F);
  at::_foreach_add_(weight, 1.0);
  EXPECT_EQ(value(), 16.0F);
  Tensors gradients{at::ones({1, 4})};
  Tensors means{at::zeros({1, 4})};
  Tensors squares{at::zeros({1, 4})};
  Tensors steps{at::ones({})};
  at::_fused_adamw_(weight, gradients, means, squares, {}, steps, 1.0, 0.9, 0.999, 0.0, 1e-8, false, false);
  weights_changed(weight);
  EXPECT_EQ(value(), 12.0F);
}

TEST(WeightCopies, AreRemadeAfterAFusedStepThatDidNotSaySo) {
  const at::Tensor x = at::ones({1, 4}).to(at::kBFloat16);
  at::Tensor weight = at::ones({1, 4}).requires_grad_();
  linear(x, weight, at::Tensor()).backward();
  weight.mutable_data_ptr<float>()[0] = 5.0F;  // has the effect of a step of a fused optimiser
  EXPECT_EQ(linear(x, weight, at::Tensor()).item<float>(), 8.0F);
}

TEST(WeightCopies, LeaveAGraphItsOwnCopy) {
  const at::Tensor x = at::ones({1, 2}).to(at::kBFloat16).requires_grad_();
  const at::Tensor weight = at::ones({1, 2}).requires_grad_();
  const at::Tensor y = linear(x, weight, at::Tensor());
  {
    const at::NoGradGuard no_grad;
    weight.fill_(5.0);
    EXPECT_EQ(linear(x, weight, at::Tensor()).item<float>(), 10.0F);
  }
  y.backward();
  EXPECT_EQ(x.grad().sum().item<float>(), 2.0F);
}

TEST(WeightCopies, GoWithTheirWeights) {
  const at::Tensor x = at::ones({1, 8}).to(at::kBFloat16);
  linear(x, at::ones({3, 8}), at::Tensor());  // frees the copies that earlier tests left
  const std::size_t before = weight_copies();
  for (int i = 0; i < 100; ++i) linear(x, at::ones({3, 8}), at::Tensor());
  EXPECT_LE(weight_copies(), before);
}

}  // namespace
}  // namespace millrace::kernels
