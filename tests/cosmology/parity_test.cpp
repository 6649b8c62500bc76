// Our U-Net against the same one in Python torch 2.11: same weights, same batch.
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <string>
#include <vector>

#include "millrace/snapshot/snapshot.h"
#include "recipes/cosmology/model.h"
#include "recipes/cosmology/recipe.h"
#include "tests/support/parity.h"
#include "tests/support/peer.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr std::int64_t kFilters = 4;

class Parity : public ::testing::TestWithParam<bool> {};  // fused kernels or ATen's

TEST_P(Parity, OutputLossEveryGradientAndTheRunningStatistics) {
  const std::filesystem::path root = MILLRACE_SOURCE_DIR;
  if (!std::filesystem::exists(root / ".deps/venv/bin/python")) GTEST_SKIP() << "no Python environment in .deps/venv";
  const auto folder = std::filesystem::current_path() / ("cosmology_parity_" + std::to_string(GetParam()));
  std::filesystem::create_directories(folder);
  UNet model({.filters = kFilters}, 7, GetParam() ? nn::Fused() : nn::Fused::plain());
  torch::manual_seed(5);
  const Tensors batch = {{"input", at::randn({2, 2, 8, 16, 4})}, {"target", at::randn({2, 2, 8, 16, 4})}};
  Tensors weights;
  for (const auto& named : model.named_parameters()) weights[named.key()] = named.value().detach();
  for (const auto& named : model.named_buffers()) weights[named.key()] = named.value();
  snapshot::write_tensors(Fs::real(), folder / "weights.safetensors", weights);
  snapshot::write_tensors(Fs::real(), folder / "batch.safetensors", batch);
  std::vector<std::string> words;
  for (const char* file : {"weights.safetensors", "batch.safetensors", "out.safetensors"})
    words.push_back((folder / file).string());
  words.push_back(std::to_string(kFilters));
  ASSERT_EQ(test::run_peer(root / "tests/cosmology/parity.py", words), 0) << folder;
  const Tensors theirs = snapshot::read_tensors(folder / "out.safetensors");

  const at::Tensor output = model.forward(batch.at("input"));
  const Loss loss = loss_of(output, batch.at("target"), LossKind::logmse);
  (loss.term().sum / loss.term().count).backward();
  EXPECT_LE(difference(output.detach(), theirs.at("output")), 1e-5);
  EXPECT_LE(difference((loss.term().report->sum / loss.term().report->count).log(), theirs.at("loss")), 1e-5);
  std::size_t compared = 0;
  for (const auto& named : model.named_parameters()) {
    const at::Tensor& expected = theirs.at("grad." + named.key());
    const bool before_norm =
        named.key().ends_with("conv1.bias") || named.key() == "deconv1.bias" || named.key() == "deconv2.bias";
    if (before_norm) {  // a batch norm takes a shift away again: its gradient is rounding alone
      EXPECT_LE(difference(named.value().grad(), expected), 1e-5) << named.key();
    } else {
      EXPECT_LE(relative(named.value().grad(), expected, 0), 1e-4) << named.key();
    }
    ++compared;
  }
  EXPECT_EQ(compared, 58U);
  for (const auto& named : model.named_buffers())
    EXPECT_LE(difference(named.value().to(at::kFloat), theirs.at("buffer." + named.key()).to(at::kFloat)), 1e-5) << named.key();
}

INSTANTIATE_TEST_SUITE_P(Paths, Parity, ::testing::Bool(), [](const auto& path) { return path.param ? "fused" : "plain"; });

}  // namespace
}  // namespace millrace::recipes::cosmology
