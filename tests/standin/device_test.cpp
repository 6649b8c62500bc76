// The stand-in itself: it computes as the CPU does, and reports where a program would be wrong on a GPU.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "fixture.h"

namespace millrace::standin {
namespace {

TEST_F(Standin, ComputesWhatTheCpuComputesForwardAndBackward) {
  const auto loss_and_gradients = [](const at::Device& device) {
    at::Tensor x = at::arange(2 * 3 * 8 * 8, at::kFloat).reshape({2, 3, 8, 8}).sin().to(device);
    at::Tensor kernel = at::arange(4 * 3 * 3 * 3, at::kFloat).reshape({4, 3, 3, 3}).cos().to(device).requires_grad_();
    at::Tensor weight = at::arange(5 * 256, at::kFloat).reshape({5, 256}).sin().to(device).requires_grad_();
    const at::Tensor hidden = at::conv2d(x, kernel, {}, 1, 1).flatten(1);
    const at::Tensor out = at::linear(at::layer_norm(hidden, {256}), weight);
    const at::Tensor loss = at::cross_entropy_loss(out, at::arange(2, at::kLong).to(device));
    loss.backward();
    return std::vector<at::Tensor>{loss.detach().cpu(), kernel.grad().cpu(), weight.grad().cpu()};
  };
  const auto here = loss_and_gradients(c10::Device(c10::kCPU));
  const auto there = loss_and_gradients(kGpu);
  for (std::size_t i = 0; i < here.size(); ++i) EXPECT_TRUE(here[i].equal(there[i])) << i;
}

TEST_F(Standin, NoHostTouchesItsMemory) {
  const at::Tensor x = at::ones({4}, on_gpu());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((void)*static_cast<volatile const float*>(x.const_data_ptr()),
               "host touched device memory: a block of 512 bytes on cuda:0");
}

TEST_F(Standin, MemoryIsGarbageUntilItIsWritten) {
  EXPECT_TRUE(at::empty({1000}, on_gpu()).isnan().all().item<bool>());
  EXPECT_TRUE(at::empty({1000}, on_gpu(at::kBFloat16)).isnan().all().item<bool>());
}

TEST_F(Standin, TellsReadBacksCopiesAndWaitsApart) {
  at::Tensor x = at::ones({256}, on_gpu());
  EXPECT_EQ(counted(Count::read_backs), 0U);
  (void)x.sum().item<float>();
  EXPECT_EQ(counted(Count::read_backs), 1U);
  (void)x.cpu();
  EXPECT_EQ(counted(Count::read_backs), 2U);
  (void)x.nonzero();
  EXPECT_EQ(counted(Count::read_backs), 3U);
  (void)at::tensor({1.0F, 2.0F}, on_gpu());
  EXPECT_EQ(counted(Count::pageable_copies), 2U);
  reset_accounts();
  x.copy_(pinned_ones(256), /*non_blocking=*/true);
  EXPECT_EQ(counted(Count::to_device), 1U);
  EXPECT_EQ(counted(Count::pageable_copies), 0U);
  EXPECT_EQ(counted(Count::stream_waits), 0U);
}

TEST_F(Standin, ACopyOnAnotherStreamIsThereAfterItsEvent) {
  const at::Tensor source = pinned_ones(64);
  at::Tensor target = at::zeros({64}, on_gpu());
  c10::Event ready(c10::kCUDA);
  c10::Event done(c10::kCUDA);
  ready.record(work());
  {
    const c10::StreamGuard guard(copies());
    ready.block(copies());
    target.copy_(source, /*non_blocking=*/true);
    done.record(copies());
  }
  EXPECT_FALSE(done.query());
  done.block(work());
  EXPECT_EQ(target.sum().item<float>(), 64.0F);
  EXPECT_EQ(counted(Count::late_copies), 1U);
}

TEST_F(Standin, ACopyToTheHostIsThereOnceTheHostWaited) {
  const at::Tensor source = at::ones({64}, on_gpu());
  at::Tensor target = at::zeros({64}, at::TensorOptions().pinned_memory(true));
  target.copy_(source, /*non_blocking=*/true);
  EXPECT_TRUE(target.isnan().all().item<bool>());
  c10::Event done(c10::kCUDA);
  done.record(work());
  done.synchronize();
  EXPECT_EQ(target.sum().item<float>(), 64.0F);
}

TEST_F(Standin, DrawsAreAFunctionOfSeedAndOffset) {
  at::Generator numbers = at::globalContext().defaultGenerator(kGpu);
  numbers.set_current_seed(7);
  const at::Tensor first = at::rand({16}, on_gpu()).cpu();
  const at::Tensor state = numbers.get_state();
  const at::Tensor second = at::dropout(at::ones({64}, on_gpu()), 0.5, true).cpu();
  numbers.set_state(state);
  EXPECT_TRUE(at::dropout(at::ones({64}, on_gpu()), 0.5, true).cpu().equal(second));
  numbers.set_current_seed(7);
  EXPECT_TRUE(at::rand({16}, on_gpu()).cpu().equal(first));
  EXPECT_GE(counted(Count::draws), 4U);
}

}  // namespace
}  // namespace millrace::standin
