// Gradients of two ranks against those of Python's DistributedDataParallel: the same weights, ranks and rows.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "millrace/distributed/detail/test_ranks.h"
#include "millrace/nn/functional.h"
#include "millrace/snapshot/snapshot.h"
#include "recipes/language_model/model.h"

namespace millrace::recipes::language_model {
namespace {

constexpr int kRanks = 2, kLayers = 2, kHeads = 4, kRows = 6, kTokens = 40;

std::unique_ptr<Transformer> model() {
  return std::make_unique<Transformer>(ModelConfig{.vocab_size = 43,
                                                   .positions = 48,
                                                   .width = 64,
                                                   .layers = kLayers,
                                                   .heads = kHeads,
                                                   .embedding_dropout = 0,
                                                   .attention_dropout = 0,
                                                   .residual_dropout = 0},
                                       7, nn::Fused{});
}

// What each rank has after its second step: the first shows in what order gradients come.
Tensors gradients_of(distributed::Processes& processes, const Tensors& weights, const at::Tensor& tokens) {
  const auto net = model();  // threads draw from one generator: the weights are those of the file
  for (auto& named : net->named_parameters()) {
    const at::NoGradGuard no_grad;
    named.value().copy_(weights.at(named.key()));
  }
  const auto sums = processes.gradient_sums(net->parameters(), {.bucket_bytes = 20'000});
  const at::Tensor mine = tokens.chunk(kRanks)[static_cast<std::size_t>(processes.ranks().rank)];
  Tensors gradients;
  for (int step = 0; step < 2; ++step) {
    for (const at::Tensor& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
    sums->begin(at::full({}, 1.0F / kRanks));
    const auto [sum, count] =
        nn::cross_entropy_sum(net->forward(mine.narrow(1, 0, kTokens)), mine.narrow(1, 1, kTokens), 0, nn::Fused{});
    (sum / count).backward();
    sums->send();
    const std::vector<at::Tensor> all = sums->receive();
    std::size_t i = 0;
    for (const auto& named : net->named_parameters()) gradients[named.key()] = all[i++].clone();
  }
  EXPECT_GT(sums->take_traffic().early_buckets, 4) << "they leave while the backward pass goes on";
  return gradients;
}

TEST(Ddp, GradientsOfTwoRanksAreThoseOfDistributedDataParallel) {
  const std::filesystem::path root = MILLRACE_SOURCE_DIR;
  if (!std::filesystem::exists(root / ".deps/venv/bin/python")) GTEST_SKIP() << "no Python environment in .deps/venv";
  const std::filesystem::path folder = std::filesystem::current_path() / "language_model_ddp";
  std::filesystem::create_directories(folder);
  torch::manual_seed(5);
  const at::Tensor tokens = at::randint(1, 43, {kRows, kTokens + 1}, at::kLong);
  Tensors weights;
  const auto first = model();
  for (const auto& named : first->named_parameters()) weights[named.key()] = named.value().detach();
  snapshot::write_tensors(Fs::real(), folder / "weights.safetensors", weights);
  snapshot::write_tensors(Fs::real(), folder / "batch.safetensors", {{"tokens", tokens}});
  std::string command = (root / "tools/python-peer").string() + " " + (root / "tests/language_model/ddp.py").string();
  for (const char* file : {"weights.safetensors", "batch.safetensors", "out.safetensors"})
    command += " " + (folder / file).string();
  for (const int number : {kLayers, kHeads, kRanks}) command += " " + std::to_string(number);
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const Tensors theirs = snapshot::read_tensors(folder / "out.safetensors");

  std::mutex mutex;
  std::vector<Tensors> ranks;
  EXPECT_EQ(distributed::on_ranks(kRanks, distributed::free_port(),
                                  [&](distributed::Processes& processes) {
                                    Tensors mine = gradients_of(processes, weights, tokens);
                                    const std::lock_guard lock(mutex);
                                    ranks.push_back(std::move(mine));
                                  }),
            distributed::none(kRanks));
  ASSERT_EQ(ranks.size(), 2U);
  double largest = 0;
  for (const auto& [name, gradient] : theirs) largest = std::max(largest, gradient.abs().max().item<double>());
  for (const auto& [name, gradient] : ranks[0]) {
    EXPECT_TRUE(gradient.equal(ranks[1].at(name))) << name;
    EXPECT_LE((gradient - theirs.at("grad." + name)).abs().max().item<double>(), 1e-6 * std::max(largest, 1.0)) << name;
  }
  EXPECT_EQ(ranks[0].size(), theirs.size());
}

}  // namespace
}  // namespace millrace::recipes::language_model
