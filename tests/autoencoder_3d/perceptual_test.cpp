// The perceptual distance against the same one in Python torch, with random weights in LPIPS's shapes.
#include "recipes/autoencoder_3d/perceptual.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>

#include <set>

#include "millrace/base/error.h"
#include "millrace/core/host_values.h"
#include "millrace/snapshot/snapshot.h"
#include "tests/support/peer.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

using testing::HasSubstr;

TEST(PerceptualParity, DistancesAndGradientsAreThoseOfPython) {
  const std::filesystem::path root = MILLRACE_SOURCE_DIR;
  if (!std::filesystem::exists(root / ".deps/venv/bin/python")) GTEST_SKIP() << "no Python environment in .deps/venv";
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "perceptual.safetensors";
  ASSERT_EQ(test::run_peer(root / "tests/autoencoder_3d/perceptual.py", {file.string()}), 0);
  Tensors theirs = snapshot::read_tensors(file);
  const Slices slices = {theirs["slices.0"], theirs["slices.1"], theirs["slices.2"]};
  for (const bool maps : {false, true}) {
    const std::string suffix = maps ? ".1" : ".0";
    const Perceptual net(file, maps);
    at::Tensor recon = theirs["recon"].clone().requires_grad_();
    const at::Tensor distances = net.distances(recon, theirs["target"], slices);
    EXPECT_LT((distances - theirs["distances" + suffix]).abs().max().item<double>(), 1e-5) << distances;
    distances.sum().backward();
    const at::Tensor& expected = theirs["grad" + suffix];
    EXPECT_LT((recon.grad() - expected).abs().max().item<double>(), 1e-4 * expected.abs().max().item<double>());
    EXPECT_EQ(net.distances(recon, recon.detach(), slices).abs().max().item<double>(), 0);
    // Alike under torchvision's names of the features and MONAI's prefix.
    Tensors renamed;
    for (const auto& [name, value] : theirs) {
      if (name.starts_with("net.slice")) renamed["features." + name.substr(name.find('.', 4) + 1)] = value;
      if (name.starts_with("lin")) renamed["perceptual_function." + name] = value;
    }
    EXPECT_TRUE(Perceptual(renamed, maps).distances(recon, theirs["target"], slices).equal(distances));
    for (const auto& buffer : net.buffers()) EXPECT_FALSE(buffer.requires_grad());
    EXPECT_TRUE(net.parameters().empty());
  }
  const auto refusal = [&]() -> std::string {
    try {
      static_cast<void>(Perceptual(theirs, true, "w.safetensors"));
    } catch (const SnapshotError& error) {
      return error.message().what;
    }
    return "taken";
  };
  theirs["lin3.model.1.weight"] = at::rand({1, 5, 1, 1});
  EXPECT_THAT(refusal(), HasSubstr("lin3.model.1.weight has another shape"));
  theirs["lin3.model.1.weight"] = at::rand({1, 384, 1, 1});
  theirs.erase("net.slice6.11.squeeze.bias");
  EXPECT_THAT(refusal(), HasSubstr("have no net.slice6.11.squeeze.bias"));
  // Images that leave no feature alive have a gradient all the same.
  for (auto& [name, value] : theirs) {
    if (name.starts_with("net.") && name.ends_with("bias")) value.fill_(-100);
  }
  theirs["net.slice6.11.squeeze.bias"] = at::rand({64});
  at::Tensor recon = theirs["recon"].clone().requires_grad_();
  Perceptual(theirs, true).distances(recon, theirs["target"], slices).sum().backward();
  EXPECT_TRUE(recon.grad().isfinite().all().item<bool>());
}

TEST(PerceptualSlices, AreAFifthAllDifferentAndTheRowsOwn) {
  const std::vector<std::int64_t> two = {4, 9}, one = {9};
  const Slices both = drawn_slices({1, 2, 3, two}, {64, 3, 10});
  EXPECT_EQ(both[0].size(1), 12);
  EXPECT_EQ(both[1].size(1), 1);
  EXPECT_EQ(both[2].size(1), 2);
  const std::vector<std::int64_t> numbers = host_values<std::int64_t>(both[0][1]);
  EXPECT_EQ(std::set<std::int64_t>(numbers.begin(), numbers.end()).size(), 12U);
  EXPECT_TRUE(*std::ranges::min_element(numbers) >= 0 && *std::ranges::max_element(numbers) < 64);
  EXPECT_TRUE(drawn_slices({1, 2, 3, one}, {64, 3, 10})[0][0].equal(both[0][1]));
  EXPECT_FALSE(drawn_slices({1, 2, 4, one}, {64, 3, 10})[0][0].equal(both[0][1]));
}

}  // namespace
}  // namespace millrace::recipes::autoencoder_3d
