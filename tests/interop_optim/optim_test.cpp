// Our optimisers and schedules against Python torch's. reference.py in this folder holds the same made-up numbers.
#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/optim/optimizer.h"
#include "millrace/optim/schedule.h"
#include "millrace/precision/loss_scale.h"
#include "python.h"

namespace millrace::optim {
namespace {

// The answers, computed once; `why_not` when they can't be.
struct Reference {
  Json values;
  std::string why_not;
};

Reference compute_reference() {
  const char* const named = std::getenv("MILLRACE_PYTHON");
  const std::string python = named != nullptr ? named : MILLRACE_SOURCE_DIR "/tools/python-peer";
  if (!std::filesystem::exists(python)) return {.why_not = "no Python torch: set MILLRACE_PYTHON"};
  const interop::ScratchFolder folder("interop-optim");
  const std::string file = (folder.path() / "reference.json").string();
  const std::string command =
      interop::shell_quoted(python) + " -W ignore " + interop::shell_quoted(REFERENCE_SCRIPT) + " " + interop::shell_quoted(file);
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return {.why_not = python + " can't import torch"};
  if (status != 0) return {};
  std::ifstream answers(file);
  return {.values = Json::parse(answers, nullptr, /*allow_exceptions=*/false)};
}

class OptimInterop : public testing::Test {
 protected:
  void SetUp() override {
    static const Reference reference = compute_reference();
    if (!reference.why_not.empty()) GTEST_SKIP() << reference.why_not;
    ASSERT_TRUE(reference.values.is_object()) << "the reference script failed";
    values_ = &reference.values;
  }
  [[nodiscard]] const Json& expected(const std::string& name) const { return values_->at(name); }
  const Json* values_ = nullptr;
};

at::Tensor numbers(at::IntArrayRef shape, double offset, double slope) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < c10::multiply_integers(shape); ++i) {
    values.push_back(std::sin(offset + slope * static_cast<double>(i)));
  }
  return at::tensor(values, at::kDouble).to(at::kFloat).reshape(shape);
}

OptimConfig settings(Algorithm algorithm) {
  OptimConfig config;
  config.name = algorithm;
  config.learning_rate = 0.01;
  config.betas = {0.8, 0.95};
  config.eps = 1e-6;
  config.weight_decay = 0.1;
  return config;
}

// 20 steps on the made-up gradients, as run() of the script. Half of the sum of two rows' worth stands in for a mean.
Tensors run(const OptimConfig& config, bool fused, double scale = 1.0) {
  const at::Tensor w = numbers({4, 3}, 1, 0.7).set_requires_grad(true);
  const at::Tensor b = numbers({5}, 1, 0.7).set_requires_grad(true);
  Optimizer optimizer({{.parameters = {{"w", w}}},  //
                       {.parameters = {{"b", b}}, .learning_rate_scale = 5.0, .weight_decay = 0.0}},
                      config, fused);
  const at::Tensor nominal = at::scalar_tensor(1.0F, at::kFloat);
  const at::Tensor count = at::scalar_tensor(2.0F, at::kFloat);
  for (int step = 0; step < 20; ++step) {
    w.mutable_grad() = numbers({4, 3}, 0.3 * step, 1.3) * (2 * scale);
    b.mutable_grad() = numbers({5}, 0.3 * step + 1, 1.3) * (2 * scale);
    optimizer.step(nominal, count);
  }
  Tensors result = optimizer.state().tensors;
  result["w"] = w.detach();
  result["b"] = b.detach();
  return result;
}

void expect_close(const Tensors& ours, const Json& theirs, double tolerance) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : ours) {
    const auto values = theirs.at(name).get<std::vector<double>>();
    const at::Tensor flat = tensor.flatten().to(at::kDouble).contiguous();
    ASSERT_EQ(flat.numel(), static_cast<std::int64_t>(values.size())) << name;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(flat.const_data_ptr<double>()[i], values[i], tolerance * std::max(1.0, std::abs(values[i])))
          << name << " " << i;
    }
  }
}

TEST_F(OptimInterop, TwentyFusedStepsEqualTorchs) {
  expect_close(run(settings(Algorithm::adamw), true), expected("adamw"), 1e-6);
  expect_close(run(settings(Algorithm::adam), true), expected("adam"), 1e-6);
  expect_close(run(settings(Algorithm::sgd), true), expected("sgd"), 1e-6);
}

TEST_F(OptimInterop, TwentyPlainStepsEqualTorchsLoop) {
  expect_close(run(settings(Algorithm::adamw), false), expected("adamw loop"), 1e-6);
  expect_close(run(settings(Algorithm::adam), false), expected("adam loop"), 1e-6);
  expect_close(run(settings(Algorithm::sgd), false), expected("sgd loop"), 1e-6);
}

TEST_F(OptimInterop, ClippingEqualsTorchs) {
  OptimConfig by_norm = settings(Algorithm::adamw);
  by_norm.clip_norm = 0.5;
  OptimConfig by_value = settings(Algorithm::sgd);
  by_value.clip_value = 0.25;
  for (const bool fused : {true, false}) {
    expect_close(run(by_norm, fused, 3.0), expected("clip_norm"), 1e-6);
    expect_close(run(by_value, fused, 3.0), expected("clip_value"), 1e-6);
  }
}

OptimConfig schedule(ScheduleKind kind) {
  OptimConfig config;
  config.schedule = kind;
  config.learning_rate = 0.4;
  config.min_learning_rate = 0.1;
  config.decay_every = 4;
  config.decay_factor = 0.5;
  config.plateau_patience = 1;
  config.plateau_threshold = 0.1;
  return config;
}

void expect_rates(const OptimConfig& config, std::int64_t total_steps, const Json& theirs) {
  for (std::size_t step = 0; step < theirs.size(); ++step) {
    const double ours = learning_rate_at(config, static_cast<std::int64_t>(step), total_steps);
    EXPECT_NEAR(ours, theirs[step].get<double>(), 1e-12) << step;
  }
}

TEST_F(OptimInterop, SchedulesEqualTorchs) {
  expect_rates(schedule(ScheduleKind::constant), 0, expected("constant"));
  expect_rates(schedule(ScheduleKind::linear), 30, expected("linear"));
  expect_rates(schedule(ScheduleKind::cosine), 30, expected("cosine"));
  expect_rates(schedule(ScheduleKind::step), 0, expected("step"));
  OptimConfig warm = schedule(ScheduleKind::warmup_cosine);
  warm.warmup_steps = 6;
  expect_rates(warm, 30, expected("warmup_cosine"));
  OptimConfig cycle = schedule(ScheduleKind::one_cycle);
  cycle.min_learning_rate = 0.4 / 25 / 1e3;
  expect_rates(cycle, 31, expected("one_cycle"));
}

TEST_F(OptimInterop, PlateauEqualsTorchs) {
  Plateau plateau(schedule(ScheduleKind::plateau));
  const double metrics[] = {1.0, 0.95, 0.8, 0.79, 0.78, 0.77, 0.6, 0.6, 0.6, 0.1, 0.1, 0.1};
  for (std::size_t i = 0; i < std::size(metrics); ++i) {
    plateau.observe(metrics[i]);
    EXPECT_NEAR(0.4 * plateau.factor(), expected("plateau")[i].get<double>(), 1e-12) << i;
  }
}

// Scale and counter are equal at every step, through overflows that the scale itself makes and some that it does not.
void expect_scaled_like(const Json& theirs, double clip_norm) {
  const at::Tensor w = numbers({4, 3}, 1, 0.7).set_requires_grad(true);
  OptimConfig config;
  config.name = Algorithm::sgd;
  config.learning_rate = 0.01;
  config.weight_decay = 0.0;
  config.clip_norm = clip_norm;
  Optimizer optimizer({{.parameters = {{"w", w}}}}, config, true);
  precision::LossScale scale(at::kCPU, {.growth_interval = 4});
  const at::Tensor one = at::scalar_tensor(1.0F, at::kFloat);
  std::set<double> scales;
  for (int step = 0; step < 60; ++step) {
    const at::Tensor x = numbers({4, 3}, 0.3 * step, 1.3) * 300;
    optimizer.zero_grad();
    ((w.to(at::kHalf) * x.to(at::kHalf)).to(at::kFloat).sum() * scale.scale()).backward();
    const double bad = step == 21 ? std::numeric_limits<double>::quiet_NaN() : -std::numeric_limits<double>::infinity();
    if (step == 20 || step == 21 || step == 40) w.mutable_grad()[1][2] = bad;
    scale.update(optimizer.step(one / scale.scale(), one).found_inf);
    const auto row = theirs[static_cast<std::size_t>(step)].get<std::vector<double>>();
    ASSERT_EQ(scale.scale().item<double>(), row[0]) << step;
    ASSERT_EQ(scale.state().tensors.at("growth_tracker").item<double>(), row[1]) << step;
    const at::Tensor weights = w.detach().flatten().to(at::kDouble);
    for (std::size_t i = 0; i < 12; ++i)
      ASSERT_NEAR(weights.const_data_ptr<double>()[i], row[i + 2], 1e-6 * std::max(1.0, std::abs(row[i + 2])))
          << step << " " << i;
    scales.insert(row[0]);
  }
  EXPECT_GE(scales.size(), 9U) << "the sequence must exercise the rule";
}

TEST_F(OptimInterop, TheLossScaleFollowsTorchsStepByStep) {
  expect_scaled_like(expected("grad_scaler"), 0.0);
  expect_scaled_like(expected("grad_scaler clipped"), 50.0);
}

}  // namespace
}  // namespace millrace::optim
