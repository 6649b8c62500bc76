// The recipes' bench shapes equal those of the Python side, parameter by parameter, and each can make a step.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "../interop/python.h"
#include "millrace/device/device.h"
#include "millrace/measure/step_bench.h"
#include "millrace/train/step/feed.h"
#include "recipes/registry.h"

namespace millrace {
namespace {

const Entry& recipe(const std::string& name) {
  const auto all = recipes::all();
  return *std::ranges::find(all, name, &Entry::name);
}

// A shape and what makes it small enough for a test, on both sides; the widths stay.
struct Case {
  const char* recipe;
  const char* shape;
  const char* peer;   // bench/step/PEER_step_peer.py
  Json overrides;     // of ours, where the whole shape is too large to be made here
  const char* sizes;  // of Python's, a line each
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [name, peer] : {std::pair{"language_model", "gpt"},
                                   {"cosmology", "unet"},
                                   {"autoencoder_3d", "gan"},
                                   {"neural_response", "twin"},
                                   {"image_pairs", "pairs"}}) {
    for (const char* shape : {"cpu-small", "gpu-small", "gpu-guide"}) all.push_back({name, shape, peer, Json::object(), ""});
  }
  Case& seven_billion = all.back();
  seven_billion.overrides = {{"recipe.decoder_layers", 1}, {"recipe.vision_layers", 3}};  // of the tower the last is not built
  seven_billion.sizes = "blocks=1\nvision_blocks=2";
  return all;
}

class BenchShapes : public testing::TestWithParam<std::size_t> {
 protected:
  const Case case_ = cases()[GetParam()];
};

// Describes a shape for each argument, whose lines are a peer and its words, and prints a line for each: JSON, or "failed". A
// process for each would import torch anew, which takes seconds.
constexpr const char* kDescribeAll = R"(
import os, runpy, sys
import torch
print("has torch", flush=True)
for words in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        sys.argv = words.split("\n")
        sys.path.insert(0, os.path.dirname(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        print("failed", flush=True)
)";

// What Python says of all cases.
struct PythonsSide {
  bool has_torch = false;
  std::vector<std::string> lines;  // as cases()
  std::string output;
};

PythonsSide pythons_side() {
  PythonsSide side;
  if (interop::torch_python().empty()) return side;
  std::vector<std::string> arguments;
  for (const Case& each : cases()) {
    std::string words =
        std::string(MILLRACE_SOURCE_DIR "/bench/step/") + each.peer + "_step_peer.py\n--describe\n--shape\n" + each.shape;
    if (*each.sizes != '\0') words += std::string("\n--size\n") + each.sizes;
    arguments.push_back(words);
  }
  side.output = interop::run_python(kDescribeAll, arguments, interop::torch_python()).output;
  std::istringstream text(side.output);
  for (std::string line; std::getline(text, line);) {
    side.has_torch = side.has_torch || line == "has torch";
    if (line == "failed" || line.starts_with('{')) side.lines.push_back(line);
  }
  return side;
}

TEST_P(BenchShapes, HaveTheParametersAndTheBatchOfPythonsSide) {
  static const PythonsSide python = pythons_side();
  if (!python.has_torch) GTEST_SKIP() << "no Python with torch: run ./dev test once, which makes .deps/venv";
  ASSERT_EQ(python.lines.size(), cases().size()) << python.output;
  ASSERT_NE(python.lines[GetParam()], "failed") << python.output;
  const Json ours = describe_step(recipe(case_.recipe), {.shape = case_.shape, .overrides = case_.overrides});
  const Json theirs = Json::parse(python.lines[GetParam()]);
  EXPECT_EQ(ours["parameters"], theirs["parameters"]);
  EXPECT_EQ(ours["trained_parameters"], theirs["trained_parameters"]);
  EXPECT_EQ(ours["batch"], theirs["batch"]);
}

INSTANTIATE_TEST_SUITE_P(All, BenchShapes, testing::Range<std::size_t>(0, cases().size()), [](const auto& param_info) {
  std::string name = std::string(cases()[param_info.param].recipe) + "_" + cases()[param_info.param].shape;
  std::ranges::replace(name, '-', '_');
  return name;
});

// What a guide's size does on a CPU, with less of everything that the widths of the network do not depend on.
TEST(BenchShapes, AGuidesNetworkMakesAStepOfASmallBatch) {
  const std::vector<std::pair<const char*, Json>> small = {
      {"language_model",
       {{"recipe.model_layer", 1}, {"recipe.seq_len", 17}, {"recipe.model_positions", 16}, {"data.batch_size", 1}}},
      {"cosmology", {{"recipe.filters", 2}, {"recipe.ra_keep", 16}}},
      {"autoencoder_3d", {{"recipe.patch_size", {24, 24, 24}}, {"recipe.num_res_blocks", 1}, {"data.batch_size", 1}}},
      {"neural_response", {{"data.batch_size", 20}, {"recipe.adapter.grid_size", 15}, {"recipe.readout.initial_std", 1.0}}},
      {"image_pairs",
       {{"recipe.decoder_layers", 1},
        {"recipe.vision_layers", 2},
        {"recipe.image_size", 28},
        {"recipe.vocab_size", 300},
        {"recipe.decoder_width", 512},
        {"recipe.decoder_heads", 4},
        {"recipe.decoder_hidden", 512},
        {"data.batch_size", 1}}}};
  for (const auto& [name, overrides] : small) {
    SCOPED_TRACE(name);
    StepBench bench(recipe(name), {.shape = "gpu-guide", .precision = "fp32", .threads = 1, .overrides = overrides});
    const std::vector<double> ms = bench.steps(2);
    ASSERT_EQ(ms.size(), 2U);
    const Json report = bench.report(ms);
    EXPECT_TRUE(std::isfinite(report["loss_first"].get<double>()));
    EXPECT_NE(report["loss_first"], report["loss_last"]);
    EXPECT_EQ(report["device"], "cpu");
    EXPECT_FALSE(report["tf32"]["on"].get<bool>());
  }
}

// The shape makes its batch somewhere else. Meta tensors have no data to bring along, so the attempt is seen by its error.
TEST(BenchShapes, TheBatchIsBroughtToTheDeviceOfTheModel) {
  Entry entry = recipe("language_model");
  BenchShape& shape = entry.bench_shapes.front();
  bool elsewhere = true;
  shape.batch = [plain = shape.batch, &elsewhere](const Json& config, std::uint64_t seed) {
    return moved_to(plain(config, seed), elsewhere ? at::kMeta : at::kCPU);
  };
  EXPECT_THROW((void)describe_step(entry, {.threads = 1}), c10::Error);
  elsewhere = false;
  EXPECT_EQ(describe_step(entry, {.threads = 1})["batch"], (Json::array({{{"input", {8, 256}}, {"target", {8, 256}}}})));
}

TEST(BenchShapes, AWishForTf32OnACpuIsAnswered) {
  const Json report = [] {
    StepBench bench(recipe("language_model"),
                    {.precision = "fp32",
                     .threads = 1,
                     .overrides = {{"device.tf32", true}, {"recipe.model_layer", 1}, {"data.batch_size", 1}}});
    return bench.report(bench.steps(1));
  }();
  EXPECT_FALSE(report["tf32"]["on"].get<bool>());
  EXPECT_EQ(report["tf32"]["reason"], "without effect: only GPUs have TF32");
}

// Whatever was made on the CPU and not brought along is an error of LibTorch here.
TEST(BenchShapes, EachRecipeMakesStepsOnAGpuTimedByItsClock) {
  std::string why;
  if (device::cuda(&why) == nullptr) GTEST_SKIP() << why;
  for (const Entry& entry : recipes::all()) {
    for (const char* precision : {"fp32", "bf16", "fp16"}) {
      SCOPED_TRACE(entry.name + " in " + precision);
      StepBench bench(entry, {.precision = precision, .threads = 1, .overrides = {{"device.name", "cuda"}}});
      const std::vector<double> ms = bench.steps(3);
      ASSERT_EQ(ms.size(), 3U);
      for (const double each : ms) EXPECT_GT(each, 0.0);
      const Json report = bench.report(ms);
      EXPECT_TRUE(report["device"].get<std::string>().starts_with("cuda"));
      EXPECT_TRUE(std::isfinite(report["loss_last"].get<double>()));
      EXPECT_GT(report["memory"]["step_peak_bytes"].get<double>(), 0.0);
      EXPECT_TRUE(!report["tf32"]["on"].get<bool>() || std::string(precision) != "fp32");
    }
  }
}

}  // namespace
}  // namespace millrace
