#include "millrace/train/recipe/stray_leaves.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "millrace/base/error.h"

namespace millrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct ModelImpl : torch::nn::Module {
  ModelImpl() : layer(register_module("layer", torch::nn::Linear(4, 4))) {}
  torch::nn::Linear layer;
};

Batch rows(const at::Tensor& x) { return Batch(Tensors{{"x", x}}); }

// The error for a loss that `values` computes from four numbers in each of two rows; "" = no error.
template <class Values>
std::string told(const Values& values, at::Tensor x = at::ones({2, 4})) {
  ModelImpl model;
  StrayLeaves strays(model);
  const Batch batch = rows(x);
  {
    const Loss loss{.terms = {{.sum = values(model.layer(batch["x"])).sum(), .count = at::full({}, 8.0)}}};
    strays.look("loss", loss);
    loss.terms[0].sum.backward();
  }
  try {
    strays.refuse(batch);
  } catch (const RecipeError& error) {
    return error.what();
  }
  return "";
}

TEST(StrayLeaves, AreLayersThatTheModelDoesNotHold) {
  torch::nn::Linear linear(4, 3);
  EXPECT_THAT(told([&](const at::Tensor& y) { return linear(y); }),
              AllOf(HasSubstr("depends on tensors that model() does not hold: "), HasSubstr("f32 [3,4]"), HasSubstr("f32 [3]"),
                    HasSubstr("register_module(\"layer\", torch::nn::Linear(4, 3))")));
  torch::nn::Conv2d filter(torch::nn::Conv2dOptions(1, 2, {1, 3}));
  EXPECT_THAT(told([&](const at::Tensor& y) {
                return filter(y.view({1, 1, 2, 4}));
              }),
              HasSubstr("torch::nn::Conv2d(1, 2, {1, 3})"));
  torch::nn::Embedding table(5, 4);
  EXPECT_THAT(told([&](const at::Tensor& y) { return y + table(at::ones({2}, at::kLong)); }),
              HasSubstr("torch::nn::Embedding(5, 4)"));
  const at::Tensor scale = at::ones({4}).set_requires_grad(true);
  EXPECT_THAT(told([&](const at::Tensor& y) { return y * scale; }),
              AllOf(HasSubstr("depends on a tensor that"), HasSubstr("register_parameter(\"values\", at::zeros({4}))")));
}

TEST(StrayLeaves, AreNeitherFrozenNorMadeByTheLossNorFieldsOfTheBatch) {
  EXPECT_EQ(told([](const at::Tensor& y) { return y; }), "");
  torch::nn::Linear frozen(4, 3);
  for (at::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  EXPECT_EQ(told([&](const at::Tensor& y) { return frozen(y); }), "");
  EXPECT_EQ(told([](const at::Tensor& y) { return y * at::ones({4}).set_requires_grad(true); }), "");
  EXPECT_EQ(told([](const at::Tensor& y) { return y; }, at::ones({2, 4}).set_requires_grad(true)), "");
}

}  // namespace
}  // namespace millrace
