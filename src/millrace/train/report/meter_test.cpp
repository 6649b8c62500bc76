#include "millrace/train/report/meter.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cmath>

#include "millrace/base/clock.h"

namespace millrace {
namespace {

// A recipe with two objectives, which makes no step: the test uses only their names.
class Named final : public Recipe {
 public:
  Named() { model_->register_parameter("w", at::ones({1})); }
  data::Pipeline data(Split) override { return {}; }
  torch::nn::Module& model() override { return *model_; }
  std::vector<Objective> objectives() override {
    Objective first{.name = "loss"};
    Objective second{.name = "other"};
    return {first, second};
  }

 private:
  std::shared_ptr<torch::nn::Module> model_ = std::make_shared<torch::nn::Module>();
};

Loss loss_of(double sum, double count) {
  return {.terms = {{.sum = at::full({}, sum, at::kDouble), .count = at::full({}, count, at::kDouble)}}};
}

class MeterTest : public testing::Test {
 protected:
  void step(double sum, double count, std::int64_t rows) {
    meter_.add(stepper_, {.losses = {loss_of(sum, count), Loss{}}});
    meter_.end_step(rows);
  }
  Named recipe_;
  Switches switches_;
  telemetry::Timeline timeline_;
  Stepper stepper_{recipe_, switches_, timeline_, {}};
  Meter meter_{"loss"};
};

// The rate of a log line covers only its own steps: the times of two windows never overlap.
TEST_F(MeterTest, TheTimeOfAWindowIsItsOwn) {
  const std::int64_t begin = steady_nanoseconds();
  meter_.start();
  double together = 0;
  for (int i = 0; i < 3; ++i) {
    step(1, 1, 1);
    while (steady_nanoseconds() - begin < (i + 1) * 1'000'000) {
    }
    together += meter_.take_window().seconds;
  }
  EXPECT_LE(together, static_cast<double>(steady_nanoseconds() - begin) * 1e-9);
  EXPECT_GT(together, 0.0029);
}

TEST_F(MeterTest, AWindowIsTheMeanOfAllItsStepsAndBeginsAnew) {
  step(6, 2, 2);
  step(0, 2, 2);
  const Window window = meter_.take_window();
  EXPECT_EQ(window.means, (metrics::Means{{"loss", 1.5}})) << "an absent objective adds nothing";
  EXPECT_EQ(window.steps, 2);
  EXPECT_EQ(window.samples, 4);
  EXPECT_TRUE(meter_.is_empty());
  EXPECT_EQ(meter_.seconds_per_step(), 0.0);
  step(5, 1, 1);
  (void)meter_.take_window();
  EXPECT_EQ(meter_.first_loss(), 1.5);
  EXPECT_EQ(meter_.last_loss(), 5.0);
  EXPECT_EQ(meter_.samples(), 5);
}

// A GPU's steps are not computed by the cores, so other programs on the cores must not change the steps' times.
TEST_F(MeterTest, OtherProgramsTakeNothingFromAGpusSteps) {
  Meter meter("loss", /*computes_here=*/false);
  EXPECT_EQ(meter.of_process().others, std::nullopt);
  meter.add(stepper_, {.losses = {loss_of(1, 1), Loss{}}});
  meter.end_step(1);
  EXPECT_EQ(meter.take_window().others, std::nullopt);
}

TEST_F(MeterTest, AnEpochGoesOverWindowsAndSnapshots) {
  step(6, 2, 2);
  (void)meter_.take_window();
  step(1, 1, 1);
  Json trainer = Json::object();
  Json report;
  meter_.write_state(trainer, report);
  Meter again("loss");
  again.load_state(SavedJson(trainer, "trainer"), SavedJson(report, "report"));
  for (Meter* meter : {&meter_, &again}) {
    const Meter::EpochRow row = meter->take_epoch(1);
    EXPECT_DOUBLE_EQ(row.train_loss, 7.0 / 3.0);
    EXPECT_EQ(row.samples, 3);
    EXPECT_EQ(row.samples_here, meter == &again ? 0 : 3);
    EXPECT_EQ(row.steps_here, meter == &again ? 0 : 2);
    EXPECT_EQ(meter->take_window().means.at("loss"), 1.0);
    EXPECT_TRUE(std::isnan(meter->take_epoch(2).train_loss)) << "no step of it counted";
  }
  EXPECT_EQ(again.samples(), 3);
  EXPECT_EQ(again.of_process().samples, 0);
}

}  // namespace
}  // namespace millrace
