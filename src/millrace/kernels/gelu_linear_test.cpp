#include "millrace/kernels/gelu_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/kernels.h"

namespace millrace::kernels {
namespace {

class GeluLinear : public EachTable {};
INSTANTIATE_TEST_SUITE_P(Tables, GeluLinear, testing::ValuesIn(detail::usable_tables().begin(), detail::usable_tables().end()),
                         table_name);

TEST_P(GeluLinear, AgreesWithAten) {
  for (const std::int64_t rows : {1, 7, 90}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(testing::Message() << rows << " " << type);
      const auto reference = [](const Tensors& x) { return Tensors{at::linear(at::gelu(x[0], "tanh"), x[1], x[2])}; };
      const auto kernel = [](const Tensors& x) { return Tensors{gelu_linear(x[0], x[1], x[2])}; };
      const Tensors inputs{at::randn({2, rows, 24}).to(type), at::randn({17, 24}) / 5, at::randn({17})};
      expect_agreement(kernel, reference, inputs, type == at::kFloat ? 2e-5 : 2e-2, true);
    }
  }
}

// What is computed again has the bits of what would have been kept.
TEST_P(GeluLinear, HasTheBitsOfBothApart) {
  for (const bool frozen : {false, true}) {
    const auto results = [&](bool together) {
      at::manual_seed(3);
      const at::Tensor x = at::randn({50, 24}).requires_grad_(), weight = at::randn({17, 24}).requires_grad_(!frozen),
                       bias = at::randn({17}).requires_grad_(!frozen);
      const at::Tensor y = together ? gelu_linear(x, weight, bias) : linear(at::gelu(x, "tanh"), weight, bias);
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
