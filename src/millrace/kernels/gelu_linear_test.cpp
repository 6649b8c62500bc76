#include "millrace/kernels/gelu_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/kernels.h"

namespace millrace::kernels {
namespace {

constexpr std::array<Gelu, 3> kKinds = {Gelu::exact, Gelu::tanh, Gelu::quick};

at::Tensor by_formula(const at::Tensor& x, Gelu kind) {
  if (kind == Gelu::quick) return x * at::sigmoid(x * 1.702);
  return at::gelu(x, kind == Gelu::tanh ? "tanh" : "none");
}

class GeluLinear : public EachTable {};
INSTANTIATE_TEST_SUITE_P(Tables, GeluLinear, testing::ValuesIn(detail::usable_tables().begin(), detail::usable_tables().end()),
                         table_name);

TEST_P(GeluLinear, AgreesWithAten) {
  for (const std::int64_t rows : {1, 7, 90}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      for (const Gelu kind : kKinds) {
        SCOPED_TRACE(testing::Message() << rows << " " << type << " " << static_cast<int>(kind));
        const auto reference = [kind](const Tensors& x) { return Tensors{at::linear(by_formula(x[0], kind), x[1], x[2])}; };
        const auto kernel = [kind](const Tensors& x) { return Tensors{gelu_linear(x[0], x[1], x[2], kind)}; };
        const Tensors inputs{at::randn({2, rows, 24}).to(type), at::randn({17, 24}) / 5, at::randn({17})};
        expect_agreement(kernel, reference, inputs, type == at::kFloat ? 2e-5 : 2e-2, true);
      }
    }
  }
}

TEST_P(GeluLinear, QuickAgreesWithAtenEverywhere) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t width : {1, 17, 300}) {
      const auto reference = [](const Tensors& x) { return Tensors{by_formula(x[0], Gelu::quick)}; };
      const auto kernel = [](const Tensors& x) { return Tensors{gelu(x[0], Gelu::quick)}; };
      const Tensors inputs{(at::randn({3, width}) * 4).to(type)};
      expect_agreement(kernel, reference, inputs, type == at::kFloat ? 1e-6 : 2e-2, true);
    }
  }
  const float inf = std::numeric_limits<float>::infinity();
  const at::Tensor ends = at::tensor({-1e6F, -200.0F, 0.0F, 200.0F, inf, std::numeric_limits<float>::quiet_NaN()});
  const at::Tensor y = gelu(ends, Gelu::quick);
  EXPECT_TRUE(at::allclose(y.narrow(0, 0, 5), at::tensor({0.0F, 0.0F, 0.0F, 200.0F, inf}), 1e-6, 1e-5)) << y;
  EXPECT_TRUE(y[5].isnan().item<bool>());
}

// A recomputed result has the same bits as a stored result.
TEST_P(GeluLinear, HasTheBitsOfBothApart) {
  for (const bool frozen : {false, true}) {
    const auto results = [&](bool together) {
      at::manual_seed(3);
      const at::Tensor x = at::randn({50, 24}).requires_grad_(), weight = at::randn({17, 24}).requires_grad_(!frozen),
                       bias = at::randn({17}).requires_grad_(!frozen);
      const at::Tensor y = together ? gelu_linear(x, weight, bias, Gelu::tanh) : linear(gelu(x, Gelu::tanh), weight, bias);
      y.square().sum().backward();
      EXPECT_EQ(weight.grad().defined(), !frozen);
      return frozen ? Tensors{y.detach(), x.grad()} : Tensors{y.detach(), x.grad(), weight.grad(), bias.grad()};
    };
    const Tensors one = results(true), two = results(false);
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(equal_bits(one[i], two[i])) << i;
  }
}

}  // namespace
}  // namespace millrace::kernels
