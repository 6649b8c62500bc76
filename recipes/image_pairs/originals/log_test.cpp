#include "recipes/image_pairs/originals/log.h"

#include <gmock/gmock.h>

namespace millrace::recipes::image_pairs {
namespace {

using testing::ElementsAre;
using testing::MatchesRegex;

LoggedStep logged() {
  LoggedStep step{
      .step = 120, .epoch = 0.1714, .rows = 320, .seconds_per_step = 0.25, .memory_bytes = 3 << 20, .gradient_norm = 1.1};
  step.means = {{"loss", 1.02},
                {"loss/ce", 0.98},
                {"loss/consistency", 2.1e-3},
                {"train/accuracy", 0.52},
                {"train/recall/First", .5},
                {"train/recall/Second", .5},
                {"train/recall/Similar", 0.6},
                {"train/ce_straight", 0.90},
                {"train/ce_swapped", 0.96},
                {"train/consistency_weight", 19}};
  step.learning_rates = {2e-5, 2e-4};
  return step;
}

TEST(OriginalLog, TheLineIsTheOriginals) {
  const StepLog log = original_log({.projector = 0, .lora = 1});
  EXPECT_EQ(log.line(logged()),
            "Batch 120 | Epoch 0.171 | Loss: 1.02e+00 (CE: 9.8e-01, Cons: 2.1e-03) | Acc: 0.52 (F .5 S .5 Sim .6) | LR: Proj = "
            "2.0e-05, LoRA = 2.0e-04 | Grad: 1.1e+00");
}

TEST(OriginalLog, TheTableHasTheOriginalsColumnsAndEmptyCells) {
  const StepLog log = original_log({.projector = 0, .lora = 1});
  EXPECT_THAT(log.columns, ElementsAre("timestamp", "epoch", "loss", "ce_loss", "cons_loss", "cons_weight", "base_ce",
                                       "ce_weight", "grad_norm", "learning_rate", "lr_projection", "lr_lora", "train_acc",
                                       "train_acc_first", "train_acc_second", "train_acc_similar", "ce_ratio", "ema_ce_ratio",
                                       "memory_usage_mb", "batch_time_ms"));
  std::vector<std::string> row = log.row(logged());
  ASSERT_EQ(row.size(), log.columns.size());
  EXPECT_THAT(row[0], MatchesRegex("20[0-9-]+T[0-9:]+Z"));
  row.erase(row.begin());
  EXPECT_THAT(row,
              ElementsAre("1.714000e-01", "1.020000e+00", "9.800000e-01", "2.100000e-03", "1.900000e+01", "9.300000e-01",
                          "1.000000e+00", "1.100000e+00", "2.000000e-04", "2.000000e-05", "2.000000e-04", "5.200000e-01",
                          "5.000000e-01", "5.000000e-01", "6.000000e-01", "9.375000e-01", "", "3.000000e+00", "2.500000e+02"));
}

// The pairs are judged in one order only.
TEST(OriginalLog, WithoutExchangedPairsThereIsNoRatio) {
  LoggedStep step = logged();
  step.means.erase("train/ce_swapped");
  const std::vector<std::string> row = original_log({.projector = 0, .lora = 1}).row(step);
  EXPECT_EQ(row[6], "9.000000e-01");
  EXPECT_EQ(row[16], "");
}

TEST(OriginalLog, WhatIsNotMeasuredIsEmpty) {
  LoggedStep step = logged();
  step.means.clear();
  step.learning_rates.clear();
  const StepLog log = original_log({.projector = 0, .lora = 1});
  EXPECT_EQ(log.row(step)[2], "");
  EXPECT_THAT(log.line(step), testing::HasSubstr("Acc: - (F - S - Sim -)"));
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
