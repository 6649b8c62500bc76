// Our decoder against the same one in Python torch 2.11: same weights, same batch.
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/nn/functional.h"
#include "millrace/optim/optimizer.h"
#include "millrace/snapshot/snapshot.h"
#include "recipes/language_model/model.h"
#include "tests/support/parity.h"
#include "tests/support/peer.h"

namespace millrace::recipes::language_model {
namespace {

constexpr std::int64_t kLayers = 3;
constexpr std::int64_t kHeads = 4;

Tensors parameters_of(const Transformer& model) {
  Tensors tensors;
  for (const auto& named : model.named_parameters()) tensors[named.key()] = named.value().detach();
  return tensors;
}

class Parity : public ::testing::TestWithParam<bool> {  // fused kernels or ATen's
 protected:
  void SetUp() override {
    const std::filesystem::path root = MILLRACE_SOURCE_DIR;
    if (!std::filesystem::exists(root / ".deps/venv/bin/python")) GTEST_SKIP() << "no Python environment in .deps/venv";
    folder_ = std::filesystem::current_path() / ("language_model_parity_" + std::to_string(GetParam()));
    std::filesystem::create_directories(folder_);
    if (!GetParam()) fused_ = nn::Fused::plain();
    model_ = std::make_unique<Transformer>(ModelConfig{.vocab_size = 43,
                                                       .positions = 48,
                                                       .width = 64,
                                                       .layers = kLayers,
                                                       .heads = kHeads,
                                                       .embedding_dropout = 0,
                                                       .attention_dropout = 0,
                                                       .residual_dropout = 0},
                                           7, fused_);
    torch::manual_seed(5);
    tokens_ = at::randint(1, 43, {6, 41}, at::kLong);
    tokens_.narrow(0, 2, 1).narrow(1, 30, 11).zero_();  // padding: counts unequal between rows
    snapshot::write_tensors(Fs::real(), folder_ / "weights.safetensors", parameters_of(*model_));
    snapshot::write_tensors(Fs::real(), folder_ / "batch.safetensors", {{"tokens", tokens_}});
    std::string given;
    std::vector<std::string> words;
    for (const char* file : {"weights.safetensors", "batch.safetensors"}) {
      words.push_back((folder_ / file).string());
      given += Fs::real().read_file(folder_ / file);
    }
    words.push_back((folder_ / "out.safetensors").string());
    words.push_back(std::to_string(kLayers));
    words.push_back(std::to_string(kHeads));
    static std::map<std::string, Tensors> answers;  // all tests give the same
    Tensors& answer = answers[given];
    if (answer.empty()) {
      ASSERT_EQ(test::run_peer(root / "tests/language_model/parity.py", words), 0) << folder_;
      answer = snapshot::read_tensors(folder_ / "out.safetensors");
    }
    theirs_ = answer;
  }

  std::pair<at::Tensor, at::Tensor> loss() {
    logits_ = model_->forward(tokens_.narrow(1, 0, 40));
    return nn::cross_entropy_sum(logits_, tokens_.narrow(1, 1, 40), 0, fused_);
  }

  std::filesystem::path folder_;
  std::unique_ptr<Transformer> model_;
  nn::Fused fused_;
  at::Tensor tokens_;
  at::Tensor logits_;
  Tensors theirs_;
};

TEST_P(Parity, LogitsLossAndEveryGradient) {
  const auto [sum, count] = loss();
  EXPECT_EQ(count.item<double>(), 6 * 40 - 11);
  const at::Tensor mean = sum / count;
  mean.backward();
  EXPECT_LE(difference(logits_.detach(), theirs_.at("logits")), 1e-5);
  EXPECT_LE(relative(mean.detach(), theirs_.at("loss"), 0), 1e-5);
  std::size_t compared = 0;
  for (const auto& named : model_->named_parameters()) {
    const at::Tensor& expected = theirs_.at("grad." + named.key());
    if (named.key().ends_with("w_k.bias")) {  // adding one vector to all keys moves no weight: its gradient is rounding alone
      EXPECT_LE(difference(named.value().grad(), expected), 1e-7) << named.key();
    } else {
      EXPECT_LE(relative(named.value().grad(), expected, 0), 1e-4) << named.key();
    }
    ++compared;
  }
  EXPECT_EQ(compared, 1U + kLayers * 16U + 2U);
}

TEST_P(Parity, TwentyAdamWSteps) {
  optim::OptimConfig config{.learning_rate = 1e-3, .clip_norm = 1.0};
  std::vector<optim::NamedParameter> parameters;
  for (const auto& named : model_->named_parameters()) parameters.push_back({named.key(), named.value()});
  optim::Optimizer optimizer({{.parameters = parameters}}, config, GetParam());
  const at::Tensor nominal = torch::full({}, 240.0F);
  for (int step = 0; step < 20; ++step) {
    const auto [sum, count] = loss();
    (sum / nominal).backward();
    optimizer.step(nominal, count);
    optimizer.zero_grad();
  }
  for (const auto& named : model_->named_parameters()) {
    if (named.key().ends_with("w_k.bias")) continue;  // Adam turns rounding noise into whole steps
    EXPECT_LE(difference(named.value().detach(), theirs_.at("after." + named.key())), 1e-4) << named.key();
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, Parity, ::testing::Bool(), [](const auto& path) { return path.param ? "fused" : "plain"; });

}  // namespace
}  // namespace millrace::recipes::language_model
