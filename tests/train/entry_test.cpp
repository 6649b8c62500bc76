// The plain C++ call, and a trained model put to use.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "millrace/base/error.h"
#include "millrace/data/memory_source.h"
#include "millrace/train/train.h"
#include "toys.h"

namespace millrace {
namespace {

data::Pipeline line_points() {
  Philox random(5);
  std::vector<float> x;
  std::vector<float> y;
  for (int i = 0; i < 200; ++i) {
    x.push_back(static_cast<float>(random.normal()));
    y.push_back(3.0F * x.back() - 1.0F);
  }
  return data::single(std::make_shared<data::MemorySource>(
      std::vector{data::memory_array("x", {1}, std::move(x)), data::memory_array("y", {1}, std::move(y))}));
}

TEST(PlainCall, TrainsAModuleInPlace) {
  torch::manual_seed(1);
  torch::nn::Linear line(1, 1);
  RunConfig config;
  config.data.batch_size = 20;
  config.optim.learning_rate = 0.05;
  config.optim.weight_decay = 0.0;
  config.train.epochs = 30;
  config.precision.dtype = Precision::fp32;
  const auto loss = [&](const Batch& batch) {
    const at::Tensor error = line(batch["x"]) - batch["y"];
    return Loss{error.square().sum(), at::full({}, static_cast<double>(batch.rows())), 20.0, {}};
  };
  const Json summary = train(*line, line_points(), loss, {.config = config, .validation = line_points(), .print = false});
  EXPECT_NEAR(line->weight.item<double>(), 3.0, 0.02);
  EXPECT_NEAR(line->bias.item<double>(), -1.0, 0.02);
  EXPECT_EQ(summary["steps"], 300);
  EXPECT_LT(summary["metrics"]["val_loss"]["last"].get<double>(), 1e-3);
}

TEST(Inference, ARunsBestSnapshotGivesItsValidationMetrics) {
  const toys::TemporaryFolder folder;
  const Entry entry = toys::grouped_regression();
  const RunOutcome run = toys::run(entry, folder.path(), {{"train.epochs", 10}});
  telemetry::Console console(telemetry::Console::Mode::quiet);
  Loaded loaded = load_for_inference(entry, folder.path(), nullptr, Json::object(), console);
  const auto metrics = evaluate(loaded, console);
  EXPECT_DOUBLE_EQ(metrics.at("val_loss"), run.summary["metrics"]["val_loss"]["best"].get<double>()) << loaded.which;
  EXPECT_THROW((void)loaded.recipe->predict({}), UsageError);
}

TEST(Inference, TheValidationAfterTheLastSnapshotCountsToo) {
  const toys::TemporaryFolder folder;
  const Entry entry = toys::grouped_regression();
  const RunOutcome run =
      toys::run(entry, folder.path(), {{"train.epochs", 0}, {"train.max_steps", 10}, {"train.validate_every", 4}});
  ASSERT_EQ(run.summary["metrics"]["val_loss"]["best_step"], 10) << "the toy's loss falls";
  telemetry::Console console(telemetry::Console::Mode::quiet);
  Loaded loaded = load_for_inference(entry, folder.path(), nullptr, Json::object(), console);
  EXPECT_EQ(loaded.which, "best snapshot, step 10 of " + folder.path().string());
  EXPECT_DOUBLE_EQ(evaluate(loaded, console).at("val_loss"), run.summary["metrics"]["val_loss"]["best"].get<double>());
}

TEST(Inference, AFolderWithoutASnapshotIsAClearError) {
  const toys::TemporaryFolder folder;
  telemetry::Console console(telemetry::Console::Mode::quiet);
  EXPECT_THROW((void)load_for_inference(toys::grouped_regression(), folder.path(), nullptr, Json::object(), console),
               SnapshotError);
  EXPECT_THROW((void)load_for_inference(toys::grouped_regression(), folder.path() / "none", nullptr, Json::object(), console),
               UsageError);
}

}  // namespace
}  // namespace millrace
