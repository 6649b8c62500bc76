// Blocks are replaced by functions that take a known time. Each part of the clock must have at least its block's time, so that
// the test notices time counted for another part.
#include "millrace/memory/block_clock.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <chrono>
#include <thread>

#include "millrace/base/clock.h"
#include "millrace/memory/block.h"

namespace millrace::memory {
namespace {

using testing::ElementsAre;

void rest(double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }

struct Slow : torch::autograd::Function<Slow> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double forward_ms,
                            double backward_ms) {
    context->saved_data["ms"] = backward_ms;
    rest(forward_ms);
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    rest(context->saved_data["ms"].toDouble());
    return {gradients[0], at::Tensor(), at::Tensor()};
  }
};

class BlockClockTest : public testing::Test {
 protected:
  at::Tensor slow_block(const std::string& name, const at::Tensor& x, double forward_ms, double backward_ms) {
    return block(name, none_, [=] { return Slow::apply(x.square(), forward_ms, backward_ms).exp(); });
  }
  // A block with a skip connection from another block, operations between blocks, and a block that is used twice.
  at::Tensor loss() {
    const at::Tensor x = at::ones({8}).mul_(0.1).set_requires_grad(true);
    const at::Tensor first = slow_block("first", x, 2, 9);
    const at::Tensor between = Slow::apply(first.tanh(), 1, 5);
    const at::Tensor second = slow_block("second", between, 3, 4) + first.sin();
    const at::Tensor third = slow_block("third", second, 4, 2);
    return Slow::apply(slow_block("third", third, 4, 2).sum(), 1, 3);
  }
  void pass(BlockClock* clock) {
    at::Tensor out;
    {
      const ForwardWatch watch(clock);
      const BlockScope scope(nothing_, at::kCPU);
      out = loss();
    }
    const BackwardWatch watch(clock, std::array{out});
    out.backward();
  }
  torch::nn::LinearImpl none_{1, 1};
  Recompute nothing_;
};

double ms(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-6; }

TEST_F(BlockClockTest, EachMomentOfBothPassesIsABlocksOrOutside) {
  BlockClock clock;
  pass(nullptr);
  EXPECT_EQ(clock.parts().size(), 1U);
  for (int i = 0; i < 2; ++i) {
    const std::int64_t began = steady_nanoseconds();
    const std::vector<BlockClock::Part> before = clock.parts();
    pass(&clock);
    std::int64_t sum = 0;
    for (const BlockClock::Part& part : clock.parts()) sum += part.forward_ns + part.backward_ns;
    for (const BlockClock::Part& part : before) sum -= part.forward_ns + part.backward_ns;
    EXPECT_LE(sum, steady_nanoseconds() - began);
    EXPECT_GE(ms(sum), 15 + 25);
  }
  std::vector<std::string> names;
  for (const BlockClock::Part& part : clock.parts()) names.push_back(part.name);
  EXPECT_THAT(names, ElementsAre("", "first", "second", "third"));
  const double forward[] = {2, 2, 3, 8}, backward[] = {8, 9, 4, 4};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_GE(ms(clock.parts()[i].forward_ns), 2 * forward[i]) << names[i];
    EXPECT_GE(ms(clock.parts()[i].backward_ns), 2 * backward[i]) << names[i];
  }
}

TEST_F(BlockClockTest, ASecondPassIsTheBackwardPassOfItsBlock) {
  BlockClock clock;
  const Recompute all({"all"});
  at::Tensor out;
  {
    const ForwardWatch watch(&clock);
    const BlockScope scope(all, at::kCPU);
    out = loss();
  }
  {
    const BackwardWatch watch(&clock, std::array{out});
    out.backward();
  }
  EXPECT_GE(ms(clock.parts()[1].backward_ns), 9 + 2);
  EXPECT_GE(ms(clock.parts()[3].backward_ns), 4 + 8);
}

TEST_F(BlockClockTest, WhatIsNotWatchedCountsNowhere) {
  BlockClock clock;
  const at::Tensor out = loss();  // no pass is watched yet
  {
    const ForwardWatch watch(&clock);
    const BlockScope scope(nothing_, at::kCPU);
    (void)slow_block("a", at::ones({2}).set_requires_grad(true), 1, 1);
  }
  const std::int64_t before = clock.parts()[1].forward_ns;
  (void)slow_block("a", at::ones({2}).set_requires_grad(true), 1, 1);
  out.backward();
  EXPECT_EQ(clock.parts()[1].forward_ns, before);
  EXPECT_EQ(clock.parts()[1].backward_ns, 0);
}

TEST_F(BlockClockTest, AGraphMayOutliveItsClock) {
  at::Tensor out;
  {
    BlockClock clock;
    {
      const ForwardWatch watch(&clock);
      const BlockScope scope(nothing_, at::kCPU);
      out = loss();
    }
    const BackwardWatch watch(&clock, std::array{out});
  }
  out.backward();
}

}  // namespace
}  // namespace millrace::memory
