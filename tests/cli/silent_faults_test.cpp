// Mistakes of recipe authors that no exception betrays: the run would go to its end with wrong numbers. Each is told before the
// first step or with the first snapshot, and what the message advises, done in the recipe's twin "…_mended", ends the complaint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "process.h"

namespace millrace::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Told {
  int exit_code = 0;
  std::string text;
  bool has_run = false;  // a run folder is left
};

Told train(const std::string& mistake, std::vector<std::string> more = {}, const std::string& recipe = "mistakes") {
  const Scratch scratch;
  std::vector<std::string> words = {MISTAKES_PROGRAM,        "train", recipe, "--run", "r", "--plant.mistake=" + mistake,
                                    "--precision.dtype=fp32"};
  words.insert(words.end(), more.begin(), more.end());
  const Result result = run(words, {.folder = scratch.path()});
  return {result.exit_code, result.out + result.err, fs::exists(scratch.path() / "r")};
}

void expect_sound(const std::string& mistake) {
  const Told told = train(mistake);
  EXPECT_EQ(told.exit_code, 0) << told.text;
  EXPECT_THAT(told.text, Not(HasSubstr("warning"))) << mistake;
}

// Of a mistake that is found before the first step.
std::string refused(const std::string& mistake) {
  const Told told = train(mistake);
  EXPECT_EQ(told.exit_code, 1) << mistake;
  EXPECT_FALSE(told.has_run) << mistake;
  EXPECT_THAT(told.text, AllOf(HasSubstr("RecipeError  "), HasSubstr("\n  where    "), HasSubstr("\n  next     "))) << mistake;
  return told.text;
}

TEST(SilentFaults, ALayerThatTheModelDoesNotHoldIsRefused) {
  EXPECT_THAT(
      refused("layer_outside_the_model"),
      AllOf(HasSubstr("the loss of objective \"main\" depends on tensors that model() does not hold: "), HasSubstr("f32 [3,3]"),
            HasSubstr("no optimiser updates and no snapshot keeps them"), HasSubstr("training batch 0 of epoch 0"),
            HasSubstr("layer = register_module(\"layer\", torch::nn::Linear(3, 3))"), HasSubstr("set_requires_grad(false)")));
  expect_sound("layer_outside_the_model_mended");
  EXPECT_THAT(refused("convolution_outside_the_model"),
              AllOf(HasSubstr("f32 [1,1,3]"), HasSubstr("layer = register_module(\"layer\", torch::nn::Conv1d(1, 1, 3))")));
  expect_sound("convolution_outside_the_model_mended");
}

TEST(SilentFaults, WhatTheFirstSnapshotLacksIsToldWithBothNumbers) {
  const Told told = train("noise_outside_the_model");
  EXPECT_EQ(told.exit_code, 0) << told.text;
  EXPECT_THAT(told.text, AllOf(HasSubstr("warning: the snapshot of step "), HasSubstr("does not reproduce the run's numbers"),
                               HasSubstr("for one validation batch the loss of objective \"main\" is "),
                               HasSubstr(" in a model loaded from the snapshot"), HasSubstr("\n  where    "),
                               HasSubstr("\n  next     "), HasSubstr("register_buffer")));
  expect_sound("noise_outside_the_model_mended");
}

TEST(SilentFaults, ALossThatDoesNotAddUpIsRefused) {
  const auto expect = [](const std::string& mistake, const std::string& what, const std::string& next) {
    EXPECT_THAT(refused(mistake),
                AllOf(HasSubstr("the loss of objective \"main\" " + what), HasSubstr("validation batch 0, in evaluation mode"),
                      HasSubstr("fields: label i64 [8], x f32 [8,8]"), HasSubstr(next), HasSubstr("Objective::whole_batch")))
        << mistake;
  };
  const std::string adds = "does not add up: a batch of 8 rows gives sum ";
  expect("shapes_that_broadcast", adds, "unsqueeze(1) or squeeze(1)");
  expect("shapes_that_broadcast_counted", adds, "look for shapes that broadcast, [rows,1] against [rows]");
  expect("mean_with_count_one", adds, "values.sum() and values.numel(), not values.mean() and 1");
  expect("mean_with_the_count_of_a_sum", adds, "give values.sum() over all rows");
  expect("batch_axis_averaged", adds, "a mean over dimension 0");
  expect("every_other_row", "depends on the order of the rows", "a row that is combined with its neighbour");
  expect("rows_against_rows", adds, "if the loss compares rows with each other on purpose");
  for (const char* name : {"shapes_that_broadcast_mended", "shapes_that_broadcast_counted_mended", "mean_with_count_one_mended",
                           "mean_with_the_count_of_a_sum_mended", "batch_axis_averaged_mended", "every_other_row_mended"})
    expect_sound(name);
}

TEST(SilentFaults, ATermOfSeveralIsNamed) {
  const Told told = train("mean_of_a_group", {}, "grouped");
  EXPECT_EQ(told.exit_code, 1) << told.text;
  EXPECT_THAT(told.text, AllOf(HasSubstr("the loss of objective \"loss\" does not add up"), HasSubstr("term \"left\""),
                               HasSubstr("give values.sum() over all rows")));
}

TEST(SilentFaults, WhatIsNotCheckedIsSaid) {
  const Told reason = train("rows_against_rows_mended", {"--verbose"});
  EXPECT_EQ(reason.exit_code, 0) << reason.text;
  EXPECT_THAT(reason.text, HasSubstr("whether half batches add up was not checked for the loss of objective \"main\": each row "
                                     "is compared with all others"));
  const Told one = train("", {"--data.batch_size=1", "--train.max_steps=2", "--verbose"});
  EXPECT_EQ(one.exit_code, 0) << one.text;
  EXPECT_THAT(one.text, HasSubstr("whether half batches add up was not checked for the loss of a batch of one row"));
  EXPECT_THAT(train("", {"--rehearse"}).text,
              HasSubstr("adds up     checked with two half batches, and with the rows in reverse order"));
  EXPECT_THAT(train("rows_against_rows_mended", {"--rehearse"}).text,
              HasSubstr("adds up     not checked: the loss of objective"));
}

}  // namespace
}  // namespace millrace::test
