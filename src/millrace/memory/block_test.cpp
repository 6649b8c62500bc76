// Recomputing gives the same bits and needs fewer bytes.
#include "millrace/memory/block.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "millrace/base/error.h"
#include "millrace/core/random.h"
#include "millrace/device/autocast.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/memory/offload.h"
#include "millrace/memory/planner.h"
#include "millrace/memory/profile.h"

namespace millrace::memory {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Dropout whose mask comes from the scope's keys, as in the fused layers.
at::Tensor keyed_dropout(const at::Tensor& x) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(RandomScope::next_site(x.numel()).key);
  return x * at::empty_like(x).bernoulli_(0.7, generator);
}

// A net with linear layers, batch norm, both kinds of dropout, and a skip connection that a block captures.
struct Net : torch::nn::Module {
  Net() {
    for (int i = 0; i < 4; ++i) {
      parts.push_back(register_module("part" + std::to_string(i), std::make_shared<torch::nn::SequentialImpl>(
                                                                      torch::nn::Linear(32, 32), torch::nn::BatchNorm1d(32))));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = x;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const at::Tensor skip = i == 3 ? first : at::Tensor();
      y = block("part" + std::to_string(i), *parts[i], [this, i, y, skip] {
        ++runs;
        at::Tensor z = at::dropout(keyed_dropout(parts[i]->forward(y).tanh()), 0.2, is_training());
        return skip.defined() ? z + skip.exp() : z;
      });
      if (i == 0) first = y;
    }
    first = at::Tensor();
    return y.square().sum();
  }
  std::vector<torch::nn::Sequential> parts;
  at::Tensor first;
  int runs = 0;
};

struct Outcome {
  std::vector<at::Tensor> tensors;  // loss, gradients, buffers, the generator's next numbers
  std::uint64_t kept = 0;           // bytes that exist between the passes
  int runs = 0;
};

Outcome train(const Recompute& recompute, std::optional<at::ScalarType> autocast = {}, int steps = 2) {
  torch::manual_seed(3);
  Net net;
  Outcome outcome;
  at::Tensor x = at::randn({64, 32}).set_requires_grad(true);
  for (int step = 0; step < steps; ++step) {
    const std::uint64_t before = device::tensor_memory().live_bytes;
    at::Tensor loss;
    {
      const RandomScope random({.seed = 1, .epoch = static_cast<std::uint64_t>(step)});
      const device::Autocast guard(at::kCPU, autocast);
      const BlockScope scope(recompute, at::kCPU);
      loss = net.forward(x);
    }
    outcome.kept = device::tensor_memory().live_bytes - before;
    loss.backward();
    outcome.tensors.push_back(loss.detach());
  }
  outcome.tensors.push_back(x.grad());
  for (const at::Tensor& parameter : net.parameters()) outcome.tensors.push_back(parameter.grad());
  for (const at::Tensor& buffer : net.buffers()) outcome.tensors.push_back(buffer);
  outcome.tensors.push_back(at::randn({8}));
  outcome.runs = net.runs;
  return outcome;
}

void expect_equal(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) EXPECT_TRUE(at::equal(a.tensors[i], b.tensors[i])) << "tensor " << i;
}

class Block : public testing::Test {
 protected:
  void SetUp() override { device::count_tensor_memory(); }
};

TEST_F(Block, RecomputeChangesNoBits) {
  const Outcome plain = train(Recompute());
  EXPECT_EQ(plain.runs, 8);
  const Outcome all = train(Recompute({"all"}));
  EXPECT_EQ(all.runs, 16) << "each block runs twice in each of two steps";
  expect_equal(plain, all);
  EXPECT_LT(static_cast<double>(all.kept), 0.45 * static_cast<double>(plain.kept));
  const Outcome some = train(Recompute({"part1", "*3"}));
  EXPECT_EQ(some.runs, 12);
  expect_equal(plain, some);
  EXPECT_LT(some.kept, plain.kept);
  EXPECT_GT(some.kept, all.kept);
}

TEST_F(Block, RecomputeChangesNoBitsUnderAutocast) {
  expect_equal(train(Recompute(), at::kBFloat16), train(Recompute({"all"}), at::kBFloat16));
}

TEST_F(Block, TheComparisonCanFail) {
  const Outcome plain = train(Recompute());
  const Outcome other = train(Recompute(), at::kBFloat16);
  EXPECT_FALSE(at::equal(plain.tensors[2], other.tensors[2]));
}

TEST_F(Block, AGraphThatIsKeptIsComputedAgainForEachBackwardPass) {
  torch::manual_seed(3);
  Net net;
  const at::Tensor x = at::randn({16, 32});
  at::Tensor loss;
  const Recompute all({"all"});
  {
    const BlockScope scope(all, at::kCPU);
    loss = net.forward(x);
  }
  loss.backward({}, /*retain_graph=*/true);
  std::vector<at::Tensor> once;
  for (const at::Tensor& parameter : net.parameters()) once.push_back(parameter.grad().clone());
  loss.backward();
  EXPECT_EQ(net.runs, 12);
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(at::equal(net.parameters()[i].grad(), once[i] * 2));
}

TEST_F(Block, WithoutGradientsOrAScopeABlockOnlyRuns) {
  Net net;
  const at::Tensor x = at::randn({16, 32});
  const Recompute all({"all"});
  std::vector<std::string> seen;
  {
    const at::NoGradGuard no_grad;
    const BlockScope scope(all, at::kCPU, nullptr, &seen);
    (void)net.forward(x);
  }
  EXPECT_THAT(seen, ElementsAre());
  net.forward(x).backward();
  EXPECT_EQ(net.runs, 8);
}

TEST_F(Block, ABlockInsideABlockIsPartOfIt) {
  Net net;
  const at::Tensor x = at::randn({16, 32});
  const Recompute all({"all"});
  std::vector<std::string> seen;
  at::Tensor loss;
  {
    const BlockScope scope(all, at::kCPU, nullptr, &seen);
    loss = block("outer", net, [&net, x] { return net.forward(x); });
  }
  EXPECT_THAT(seen, ElementsAre("outer"));
  loss.backward();
  EXPECT_EQ(net.runs, 8);
}

TEST_F(Block, AnErrorOnTheSecondPassReachesTheCallerAndLeavesTheThreadClean) {
  Net net;
  bool fails = false;
  const at::Tensor x = at::randn({16, 32}).set_requires_grad(true);
  const Recompute all({"all"});
  at::Tensor loss;
  {
    const BlockScope scope(all, at::kCPU);
    loss = block("b", net, [&fails, x] {
             at::Tensor y = x.exp();
             if (fails) throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, "no memory");
             return y.tanh();
           }).sum();
  }
  fails = true;
  EXPECT_THROW(loss.backward(), c10::OutOfMemoryError);
  EXPECT_THAT(train(Recompute({"all"})).runs, 16);
}

TEST_F(Block, OneThatRunsDifferentlyTheSecondTimeIsNamed) {
  Net net;
  int runs = 0;
  const at::Tensor x = at::randn({16, 32}).set_requires_grad(true);
  const Recompute all({"all"});
  at::Tensor loss;
  {
    const BlockScope scope(all, at::kCPU);
    loss = block("fickle", net, [&runs, x] { return ++runs == 1 ? x.exp().tanh() : x.narrow(0, 0, 8).exp().tanh(); }).sum();
  }
  try {
    loss.backward();
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("block \"fickle\" ran differently the second time"));
  }
}

TEST_F(Block, AnInputThatWasChangedInPlaceAfterwardsIsTold) {
  Net net;
  const Recompute all({"all"});
  const auto train_changing = [&](bool changes) {
    const at::Tensor x = at::randn({16, 32}).set_requires_grad(true);
    at::Tensor loss;
    {
      const BlockScope scope(all, at::kCPU);
      at::Tensor y = x * 2;
      loss = block("squares", net, [y] { return y.square(); }).sum();
      if (changes) y.add_(1.0);
    }
    loss.backward();
    return at::equal(x.grad(), x.detach() * 8);
  };
  EXPECT_TRUE(train_changing(false));
  try {
    (void)train_changing(true);
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a tensor that it uses was changed in place afterwards"));
  }
}

// On a CPU offloading saves no memory; the test runs the same copies that a GPU needs.
TEST_F(Block, OffloadedTensorsComeBackAsTheyWere) {
  const auto gradients = [](std::optional<std::uint64_t> least_bytes) {
    torch::manual_seed(3);
    Net net;
    const at::Tensor x = at::randn({64, 32});
    at::Tensor loss;
    std::uint64_t moved = 0;
    {
      const RandomScope random({.seed = 1});
      std::optional<OffloadScope> offload;
      if (least_bytes) offload.emplace(at::kCPU, *least_bytes, net.parameters());
      loss = net.forward(x);
      if (offload) moved = offload->moved_bytes();
    }
    loss.backward();
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : net.parameters()) all.push_back(parameter.grad());
    return std::pair(all, moved);
  };
  const auto [plain, none] = gradients(std::nullopt);
  const auto [large, some] = gradients(64 * 32 * 4);
  const auto [every, most] = gradients(1);
  EXPECT_EQ(none, 0U);
  EXPECT_GT(some, 4U * 64 * 32 * 4);
  EXPECT_GT(most, some);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(at::equal(plain[i], large[i]));
    EXPECT_TRUE(at::equal(plain[i], every[i]));
  }
}

// The first product saves a tensor that is then changed in place. Its backward pass never runs, so that is no mistake.
TEST(Offload, ATensorThatWasChangedInPlaceIsMovedAgain) {
  const auto gradient = [](bool moves) {
    at::Tensor weight = at::ones({8, 8});
    weight.set_requires_grad(true);
    at::Tensor loss, unused;
    {
      std::optional<OffloadScope> offload;
      if (moves) offload.emplace(at::kCPU, 1, std::vector<at::Tensor>{weight});
      at::Tensor value = weight.mul(2);
      unused = value.mul(value);
      value.sigmoid_();
      loss = value.sum();
    }
    loss.backward();
    return weight.grad();
  };
  EXPECT_TRUE(at::equal(gradient(/*moves=*/false), gradient(/*moves=*/true)));
}

TEST(RecomputeNames, PatternsAndWords) {
  EXPECT_TRUE(Recompute({"all"}).takes("anything"));
  EXPECT_FALSE(Recompute({"none"}).any());
  EXPECT_FALSE(Recompute({"auto"}).any());
  const Recompute some({"layer?", "encoder.*.attention"});
  EXPECT_TRUE(some.takes("layer1"));
  EXPECT_TRUE(some.takes("layer1.0.conv"));
  EXPECT_FALSE(some.takes("layer12"));
  EXPECT_TRUE(some.takes("encoder.3.attention"));
  EXPECT_FALSE(some.takes("encoder.3.mlp"));
  EXPECT_THAT(some.unmatched({"layer1", "layer2"}), ElementsAre("encoder.*.attention"));
  // A simpler matcher would try every position for every star and never end.
  std::string stars;
  for (int i = 0; i < 40; ++i) stars += "*a";
  EXPECT_FALSE(Recompute({stars + "b"}).takes(std::string(80, 'a')));
}

TEST(Budgets, AreBytesOrAShare) {
  const auto bytes = [](std::string_view text) { return parse_budget(text).value_or(Budget{-1, false}).bytes(1000); };
  EXPECT_EQ(bytes("123"), 123U);
  EXPECT_EQ(bytes("1.5 MB"), 1'500'000U);
  EXPECT_EQ(bytes("2GiB"), std::uint64_t{2} << 30);
  EXPECT_EQ(bytes("60%"), 600U);
  EXPECT_EQ(bytes("60 %"), 600U);
  for (const char* wrong : {"", "MB", "-3 MB", "0", "nan", "inf GB", "3 parrots", "1e300 GB", "60 % of it"})
    EXPECT_FALSE(parse_budget(wrong).has_value()) << wrong;
}

// Two trials of the net above suffice to predict the peak of every choice of blocks.
TEST_F(Block, ThePlannersPredictionsComeTrue) {
  torch::manual_seed(3);
  Net net;
  const at::Tensor x = at::randn({2048, 32});
  const auto profile = [&](const Recompute& recompute) {
    Profiler profiler(at::kCPU);
    {
      at::Tensor loss;
      {
        const BlockScope scope(recompute, at::kCPU, &profiler);
        loss = net.forward(x);
      }
      loss.backward();
    }
    net.zero_grad();
    return profiler.finish();
  };
  const StepProfile all = profile(Recompute({"all"}));
  EXPECT_THAT(all.blocks, ElementsAre("part0", "part1", "part2", "part3"));
  const StepProfile plain = profile(Recompute());
  const Planner planner(all, plain);
  EXPECT_EQ(planner.plain_bytes(), plain.peak_bytes());
  const Planner blind(all, std::nullopt);
  for (int choice = 0; choice < 16; ++choice) {
    std::vector<std::string> names;
    for (int i = 0; i < 4; ++i) {
      if ((choice >> i & 1) != 0) names.push_back("part" + std::to_string(i));
    }
    const auto real = static_cast<double>(profile(Recompute(names)).peak_bytes());
    EXPECT_NEAR(static_cast<double>(planner.predict(names)) / real, 1.0, 0.02) << "choice " << choice;
    EXPECT_NEAR(static_cast<double>(blind.predict(names)) / real, 1.0, 0.15) << "choice " << choice;
  }
  const Planner::RecomputePlan most = planner.choose(planner.plain_bytes());
  EXPECT_THAT(most.blocks, ElementsAre());
  const Planner::RecomputePlan little = planner.choose(planner.plain_bytes() * 8 / 10);
  EXPECT_TRUE(little.fits);
  EXPECT_LE(little.predicted_bytes, planner.plain_bytes() * 8 / 10);
  EXPECT_LT(little.blocks.size(), 4U);
  EXPECT_GT(little.extra_ms, 0.0);
  EXPECT_FALSE(planner.choose(1).fits);
  const Planner::Peak plain_peak = planner.peak({});
  EXPECT_EQ(plain_peak.bytes, plain.peak_bytes());
  const StepProfile::Segment& highest = *std::ranges::max_element(plain.segments, {}, &StepProfile::Segment::peak_bytes);
  EXPECT_EQ(plain_peak.where, plain.where(highest));
  EXPECT_EQ(plain.where({.kind = StepProfile::Segment::Kind::backward, .block = 3}), "in the backward pass of part3");
  EXPECT_EQ(plain.where({.kind = StepProfile::Segment::Kind::gap, .block = -1}), "before the first block");
}

// On a GPU an operation fails again after it has failed once, and so does restoring a block's buffers.
TEST_F(Block, WhoseBuffersCantBePutBackTellsWhatFailedFirst) {
  torch::nn::BatchNorm1d part(4);
  at::Tensor x = at::randn({8, 4}).set_requires_grad(true);
  int runs = 0;
  at::Tensor loss;
  {
    const Recompute all({"all"});
    const BlockScope scope(all, at::kCPU);
    loss = block("part", *part, [&] {
             if (++runs == 1) return part->forward(x).exp();
             part->running_mean.set_(at::randn({5}));
             throw std::runtime_error("the second pass failed");
           }).sum();
  }
  try {
    loss.backward();
    ADD_FAILURE() << "the second pass went through";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("the second pass failed"));
  }
}

}  // namespace
}  // namespace millrace::memory
