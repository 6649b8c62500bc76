#include "millrace/nn/batch_norm.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

namespace millrace::nn {
namespace {

// Compares Millrace's layer with torch's, to the bit, with the same parameters.
template <class Torch>
void compare(at::IntArrayRef sizes, at::ScalarType type) {
  Torch theirs{torch::nn::BatchNormOptions(sizes[1])};
  BatchNorm ours(sizes[1]);
  {
    const at::NoGradGuard no_grad;
    theirs->weight.copy_(at::randn({sizes[1]}));
    theirs->bias.copy_(at::randn({sizes[1]}));
    ours->weight.copy_(theirs->weight);
    ours->bias.copy_(theirs->bias);
  }
  for (const bool training : {true, true, false}) {
    theirs->train(training);
    ours->train(training);
    const at::Tensor x = at::randn(sizes).to(type).requires_grad_();
    const at::Tensor same = x.detach().clone().requires_grad_();
    const at::Tensor a = theirs(x);
    const at::Tensor b = ours(same);
    EXPECT_TRUE(at::equal(a, b));
    a.to(at::kFloat).square().sum().backward();
    b.to(at::kFloat).square().sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), same.grad()));
    EXPECT_TRUE(at::equal(theirs->weight.grad(), ours->weight.grad()));
    EXPECT_TRUE(at::equal(theirs->running_var, ours->running_var));
    EXPECT_TRUE(at::equal(theirs->num_batches_tracked, ours->num_batches_tracked));
  }
  for (std::size_t i = 0; i < theirs->named_buffers().size(); ++i)
    EXPECT_EQ(theirs->named_buffers()[i].key(), ours->named_buffers()[i].key());
}

TEST(BatchNorm, IsTorchsInOneProcess) {
  compare<torch::nn::BatchNorm1d>({6, 5}, at::kFloat);
  compare<torch::nn::BatchNorm2d>({4, 3, 5, 7}, at::kFloat);
  compare<torch::nn::BatchNorm3d>({2, 3, 4, 5, 6}, at::kFloat);
  compare<torch::nn::BatchNorm2d>({4, 3, 5, 7}, at::kBFloat16);
}

}  // namespace
}  // namespace millrace::nn
