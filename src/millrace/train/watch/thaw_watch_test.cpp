#include "millrace/train/watch/thaw_watch.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>

#include "millrace/base/error.h"

namespace millrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct TwoLayersImpl : torch::nn::Module {
  torch::nn::Linear body{register_module("body", torch::nn::Linear(2, 3))},
      head{register_module("head", torch::nn::Linear(3, 1))};
};
TORCH_MODULE(TwoLayers);

std::string refusal(const ThawWatch& watch) {
  try {
    watch.look(20);
  } catch (const RecipeError& error) {
    return error.what();
  }
  return "";
}

TEST(ThawWatch, NamesWhatWasFrozenAndIsThawed) {
  const TwoLayers model;
  for (const at::Tensor& parameter : model->body->parameters()) parameter.set_requires_grad(false);
  const ThawWatch watch(*model);
  EXPECT_EQ(refusal(watch), "");
  model->body->weight.set_requires_grad(true);
  EXPECT_THAT(refusal(watch),
              AllOf(HasSubstr("parameter \"body.weight\" was frozen when the run began and requires a gradient now"),
                    HasSubstr("before the log line of step 20"), HasSubstr("detach()"), Not(HasSubstr("bias"))));
  model->body->bias.set_requires_grad(true);
  EXPECT_THAT(refusal(watch), HasSubstr("parameters \"body.weight\", \"body.bias\" were frozen"));
}

TEST(ThawWatch, WhatLearnsFromTheBeginningMayBeFrozenAndThawed) {
  const TwoLayers model;
  const ThawWatch watch(*model);
  model->head->weight.set_requires_grad(false);
  EXPECT_EQ(refusal(watch), "");
  model->head->weight.set_requires_grad(true);
  EXPECT_EQ(refusal(watch), "");
}

}  // namespace
}  // namespace millrace
