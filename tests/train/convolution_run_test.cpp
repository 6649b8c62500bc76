// Convolutions that this machine's library computes wrongly in bf16: no step of a run, of its doctor, of a rehearsal or of a
// model in use runs them. A substitute for millrace-convolutions lists them.
#include <ATen/ops/conv2d.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>

#include "millrace/data/sources/memory_source.h"
#include "millrace/device/convolution_guard.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/system/process.h"
#include "millrace/train/assembly/convolution_choice.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/watch/detail/doctor_trials.h"
#include "toys.h"

namespace millrace {
namespace {

struct ConvolvedConfig {
  bool convolves = true;
  static consteval auto fields() {
    return std::tuple{config::field<&ConvolvedConfig::convolves>("The model has a convolution.")};
  }
};

struct ConvolvedSections {
  ConvolvedConfig toy;
  static consteval auto fields() { return std::tuple{config::field<&ConvolvedSections::toy>("The toy.")}; }
};

struct FilterImpl : torch::nn::Module {
  FilterImpl() : weight(register_parameter("weight", at::full({4, 3, 3, 3}, 0.01))) {}
  at::Tensor weight;
};

class Convolved final : public Recipe {
 public:
  Convolved(const ConvolvedSections& sections, const Context& context) : toy_(sections.toy), optim_(context.config->optim) {}
  data::Pipeline data(Split split) override {
    if (split == Split::validation) return {};
    constexpr std::size_t kImages = 16;
    return data::single(std::make_shared<data::MemorySource>(
        std::vector{data::memory_array("x", {3, 8, 8}, std::vector<float>(kImages * 3 * 8 * 8, 0.5F))}));
  }
  torch::nn::Module& model() override { return *net_; }
  std::vector<Objective> objectives() override {
    return {{.optim = optim_, .loss = [this](const Batch& batch, const StepContext&) {
               const at::Tensor y = toy_.convolves ? at::conv2d(batch["x"], net_->weight, {}, {{1, 1}}, {{1, 1}})
                                                   : batch["x"] * net_->weight.sum();
               const at::Tensor error = (y.to(at::kFloat) - 1.0).square();
               const auto count = static_cast<double>(error.numel());
               return Loss{.terms = {{.sum = error.sum(), .count = at::full({}, count), .nominal_count = count}}};
             }}};
  }

 private:
  ConvolvedConfig toy_;
  optim::OptimConfig optim_;
  std::shared_ptr<FilterImpl> net_ = std::make_shared<FilterImpl>();
};

Entry convolved() {
  Entry row = entry_of<Convolved, ConvolvedSections>("convolved", "A toy.");
  row.defaults = {{"data.batch_size", 2}, {"train.epochs", 0}, {"train.max_steps", 2}, {"precision.dtype", "fp32"}};
  return row;
}

config::Resolved resolved(const Entry& row, const Json& overrides) {
  const config::Schema schema = schema_of(row);
  config::Layers layers(schema);
  layers.add_values(row.defaults, "recipe");
  layers.add_values(overrides, "test");
  return layers.resolve();
}

struct Assembled {
  explicit Assembled(const Json& overrides)
      : setup({.entry = &row, .config = resolved(row, overrides), .console = &console}),
        assembly(setup, {.run_folder = {}, .new_files = {}, .cache_folder = cache_folder()}) {}
  [[nodiscard]] bool may_try_bf16() {
    const std::optional<Batch> batch = assembly.trial_batch();
    return batch && assembly.may_try_bf16(*batch);
  }
  Entry row = convolved();
  telemetry::Console console{telemetry::Console::Mode::quiet};
  RunSetup setup;
  Assembly assembly;
};

// The step calls one convolution; its weight gradient is what the stand-in finds wrong.
class ConvolutionRun : public testing::Test {
 protected:
  ConvolutionRun() : folder_(testing::TempDir() + "convolution-run-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
    if (const char* set = std::getenv("XDG_CACHE_HOME")) cache_before_ = set;
    ::setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    ::setenv("MILLRACE_CONVOLUTIONS_CHILD", (folder_ / "child.sh").c_str(), 1);
    weight_gradients_are("not finite");
  }
  ~ConvolutionRun() override {
    ::unsetenv("MILLRACE_CONVOLUTIONS_CHILD");
    cache_before_ ? ::setenv("XDG_CACHE_HOME", cache_before_->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
    std::filesystem::remove_all(folder_);
  }
  void weight_gradients_are(const std::string& fault) const {
    const std::filesystem::path script = folder_ / "child.sh";
    std::ofstream(script) << "#!/bin/sh\ncat > /dev/null\necho ran >> " << (folder_ / "ran").string()
                          << "\nfor unit in 0 1 2 3 4 5; do echo begin $unit 5000; case $unit in 2|5) echo wrong $unit " << fault
                          << ";; *) echo right $unit;; esac; done\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  }
  [[nodiscard]] bool was_tried() const { return std::filesystem::exists(folder_ / "ran"); }

  std::filesystem::path folder_;
  std::optional<std::string> cache_before_;
};

// Whether the guard goes around the weight gradient of that convolution.
bool is_gone_around(const device::ConvolutionGuardForTest& guard) {
  const std::int64_t before = guard.times("found here");
  const at::Tensor weight = at::ones({4, 3, 3, 3}, at::kBFloat16).requires_grad_();
  at::conv2d(at::ones({2, 3, 8, 8}, at::kBFloat16), weight, {}, {{1, 1}}, {{1, 1}}).sum().backward();
  return guard.times("found here") > before;
}

TEST_F(ConvolutionRun, WhatARunFoundIsGoneAroundByWhoUsesItsModel) {
  const Entry row = convolved();
  const std::filesystem::path run = folder_ / "run";
  (void)toys::run(row, run, {{"precision.dtype", "bf16"}});
  ASSERT_TRUE(was_tried());
  weight_gradients_are("off by 7 %");  // in other words when the run goes on
  const Json longer = {{"precision.dtype", "bf16"}, {"train.max_steps", 4}};
  const RunOutcome resumed = toys::run(row, run, longer);
  const RunOutcome straight = toys::run(row, "", longer);
  EXPECT_EQ(resumed.summary["state_sha256"], straight.summary["state_sha256"]);

  const auto ignore = [](const auto&, const auto&) {};
  std::optional<snapshot::Content> content = snapshot::load_newest(Fs::real(), run, ignore);
  ASSERT_TRUE(content && content->report.contains(kConvolutionsInReport));
  telemetry::Console console(telemetry::Console::Mode::quiet);
  {
    const device::ConvolutionGuardForTest guard{device::Below{}};
    EXPECT_FALSE(is_gone_around(guard)) << "nothing is left of the run";
    (void)load_for_inference(row, run, nullptr, {{"precision.dtype", "fp32"}}, console);
    EXPECT_FALSE(is_gone_around(guard)) << "not asked for";
    (void)load_for_inference(row, run, nullptr, Json::object(), console);
    EXPECT_TRUE(is_gone_around(guard));
  }
  content->report.erase(kConvolutionsInReport);  // as older snapshots are
  (void)snapshot::save(Fs::real(), run, *content);
  const device::ConvolutionGuardForTest guard{device::Below{}};
  (void)load_for_inference(row, run, nullptr, Json::object(), console);
  EXPECT_FALSE(is_gone_around(guard));
}

// A clock that runs away: after the first trial step the time is over.
TEST_F(ConvolutionRun, TrialsThatTakeTooLongAreGivenUpAndThePlanSaysSo) {
  const Json open = {{"precision.dtype", "auto"}};
  Assembled late(open);
  double now = 0;
  late.assembly.limit_trials([&now] { return now += 20; });
  late.assembly.decide();
  EXPECT_EQ(late.assembly.stepper().autocast(), std::nullopt);
  const Choice* const format = late.setup.plan().find("precision.dtype");
  ASSERT_NE(format, nullptr);
  EXPECT_EQ(format->value, "fp32");
  if (!precision::hardware_has_fast_bf16(at::kCPU, nullptr)) return;  // this machine has nothing to try
  EXPECT_THAT(format->reason, testing::StartsWith("fp32: trials were given up after "));
  EXPECT_THAT(format->reason, testing::HasSubstr("they may take at most 10 % of the run's "));
  const Choice* const kernels = late.setup.plan().find("device.kernels");
  ASSERT_NE(kernels, nullptr);
  EXPECT_THAT(kernels->reason, testing::StartsWith("trials were given up after "));
  EXPECT_THAT(late.setup.plan().find("device.convolutions")->reason, testing::HasSubstr("the time for trials was over"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache" / "millrace" / "trials.json")) << "the next run tries them";
}

TEST_F(ConvolutionRun, ARehearsalAloneTriesThemFirst) {
  const Entry row = convolved();
  for (const char* format : {"fp32", "bf16"}) {
    telemetry::Console console(telemetry::Console::Mode::quiet);
    const RunRequest request{.entry = &row,
                             .config = resolved(row, {{"precision.dtype", format}, {"run.dir", (folder_ / "run").string()}}),
                             .dry_run = DryRun::rehearsal,
                             .console = &console};
    const device::ConvolutionGuardForTest guard{device::Below{}};
    EXPECT_EQ(run_training(request).exit_code, 0);
    EXPECT_EQ(was_tried(), std::string(format) == "bf16");
    EXPECT_EQ(is_gone_around(guard), std::string(format) == "bf16");
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache" / "millrace" / "trials.json")) << "looking writes nothing";
}

TEST_F(ConvolutionRun, TheDoctorOfARunInFp32MakesNoStepInBf16WithoutAVerdict) {
  {
    Assembled unknown(Json::object());
    EXPECT_FALSE(unknown.may_try_bf16());
    RemedyTrials trials(unknown.assembly);
    while (trials.has_next()) trials.make_next();
    EXPECT_FALSE(trials.made().experiments.format.has_value());
    EXPECT_FALSE(was_tried()) << "that takes longer than a doctor may";
  }
  {
    const Json flat = {{"toy.convolves", false}};
    Assembled without(flat);
    EXPECT_TRUE(without.may_try_bf16());
  }
  {
    const Json narrow = {{"precision.dtype", "bf16"}};  // a run at another time
    Assembled other(narrow);
    other.assembly.try_convolutions();
    EXPECT_TRUE(was_tried());
    EXPECT_EQ(other.assembly.convolutions().faults.size(), 1U);
  }
  const device::ConvolutionGuardForTest guard{device::Below{}};
  EXPECT_FALSE(is_gone_around(guard));
  Assembled known(Json::object());
  EXPECT_TRUE(known.may_try_bf16());
  EXPECT_TRUE(is_gone_around(guard)) << "before the step that is tried";
}

}  // namespace
}  // namespace millrace
