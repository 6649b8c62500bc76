#include "millrace/doctor/detail/sound_run.h"

namespace millrace::doctor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(Rules, NumbersThatMeanTrouble) {
  Evidence e = sound();
  e.numbers.spikes = 4;
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.numbers.spikes = 6;
  EXPECT_THAT(first(e, "spikes").what, HasSubstr("6 of 100 steps"));
  e.numbers.spikes = 0;
  e.numbers.skipped = 5;
  EXPECT_THAT(first(e, "not_finite").what, HasSubstr("5 of 100 steps"));
  e.numbers.scaled = true;
  EXPECT_THAT(findings_of(e), IsEmpty());
  e = sound();
  for (Evidence::LossLine& line : lines_of(e)) line.loss = 0.5;
  EXPECT_THAT(first(e, "loss_flat").what, HasSubstr("0.5 at each of the last 6"));
  e = sound();
  for (Evidence::LossLine& line : lines_of(e)) line.gradient_norm = 5000;
  EXPECT_EQ(first(e, "gradient_norm").key, "optim.clip_norm");
  e.numbers.objectives.front().clips = true;
  EXPECT_THAT(findings_of(e), IsEmpty());
  for (Evidence::LossLine& line : lines_of(e)) line.gradient_norm = 1e-20;
  EXPECT_THAT(first(e, "gradient_norm").remedy, HasSubstr("nothing is learnt"));
  e = sound();
  e.numbers.clamps = {{.name = "variance", .low = -30, .high = 20, .values = 1000, .at_border = 100},
                      {.name = "kl", .low = 0, .high = 1000, .values = 80, .at_border = 20}};
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.numbers.clamps[1].at_border = 76;
  EXPECT_THAT(first(e, "saturated_clamp").what, HasSubstr("95 % of the values of kl are at a border of its clamp, 0 or 1000"));
  e = sound();
  e.numbers.validation = {2.0, 1.5, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7};
  EXPECT_EQ(first(e, "overfitting").key, "train.early_stop_patience");
  e.numbers.stops_early = true;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(Rules, AnySkippedStepIsAFindingAndNamesTheSampleThatIsNotFinite) {
  Evidence e = sound();
  e.numbers.skipped = 1;
  e.numbers.input = {.all = true,
                     .samples = 1,
                     .first = "sample 373 (c.npy), field wave: 3,200 of 3,200 values are not finite, the first, nan, at [0]"};
  Finding finding = first(e, "not_finite");
  EXPECT_EQ(
      finding.what,
      "1 of 100 steps was skipped: its loss or gradients were not finite, nor is the input: sample 373 (c.npy), field wave: "
      "3,200 of 3,200 values are not finite, the first, nan, at [0]");
  EXPECT_EQ(finding.key, "") << "no clipping mends what is no number";
  EXPECT_THAT(finding.remedy, testing::StartsWith("repair or remove the sample; "));
  e.numbers.skipped = 30;
  e.numbers.input.samples = 12;
  finding = first(e, "not_finite");
  EXPECT_THAT(finding.what,
              testing::AllOf(testing::StartsWith("30 of 100 steps were skipped"), HasSubstr("and 11 more samples")));
  EXPECT_THAT(finding.remedy, testing::StartsWith("repair or remove these samples; "));
  e.numbers.input.prepared = true;
  finding = first(e, "not_finite");
  EXPECT_THAT(finding.what,
              HasSubstr("were not finite; the input is finite, but prepare() makes values from it that are not: sample 373"));
  EXPECT_THAT(finding.remedy, testing::StartsWith("in Recipe::prepare(), look for zeros"));
  EXPECT_EQ(finding.key, "");
  e.numbers.scaled = true;
  e.numbers.skipped = 1;
  EXPECT_EQ(first(e, "not_finite").id, "not_finite") << "a loss scale does not mend it either";
  e = sound();
  e.numbers.skipped = 1;
  EXPECT_EQ(first(e, "not_finite").key, "") << "clip_norm is advised where the input is known to be finite";
  EXPECT_THAT(first(e, "not_finite").remedy, testing::StartsWith("look at the input of these steps"));
  e.numbers.input.all = true;
  EXPECT_EQ(first(e, "not_finite").key, "optim.clip_norm");
  EXPECT_THAT(first(e, "not_finite").what, testing::EndsWith("its loss or gradients were not finite; its input is finite"));
  e.times.steps = 3;  // too few steps for all other rules
  EXPECT_THAT(findings_of(e), testing::SizeIs(1));
  e.numbers.skipped = 0;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(Rules, WhatIsSaidOfStepsThatAreNotFiniteIsOneRemedy) {
  Evidence e = sound();
  e.numbers.skipped = 20;
  e.numbers.input.all = true;
  e.numbers.has_bf16 = true;
  Finding finding = first(e, "not_finite");
  EXPECT_EQ(finding.key, "optim.clip_norm");
  EXPECT_THAT(finding.remedy, testing::StartsWith("try --optim.clip_norm=1; otherwise lower optim.learning_rate"));
  e.numbers.scaled = true;
  finding = first(e, "not_finite");
  EXPECT_EQ(finding.key, "precision.dtype");
  EXPECT_EQ(finding.remedy, "try --precision.dtype=bf16");
  e.numbers.has_bf16 = false;
  EXPECT_EQ(first(e, "not_finite").key, "optim.clip_norm") << "a device without bf16";
  e.numbers.objectives.front().clips = true;
  finding = first(e, "not_finite");
  EXPECT_EQ(finding.key + finding.value, "");
  EXPECT_THAT(finding.remedy, testing::StartsWith("lower optim.learning_rate, or look for zeros"));
  e.numbers.has_bf16 = true;
  EXPECT_EQ(first(e, "not_finite").value, "bf16") << "clipped or not";
}

TEST(Rules, ALossThatIsNearlyNothing) {
  Evidence e = sound();
  for (Evidence::LossLine& line : lines_of(e)) line.loss *= 1e-9;
  const Finding finding = first(e, "loss_vanished");
  EXPECT_THAT(finding.what, HasSubstr("the loss is nearly 0, 2.3e-09, and was below 1e-08 at the last 6 log lines"));
  EXPECT_THAT(finding.remedy, HasSubstr("labels leak"));
  for (Evidence::LossLine& line : lines_of(e)) line.loss = 0;
  EXPECT_THAT(findings_of(e), testing::SizeIs(1)) << "that it does not move is said with it";
  lines_of(e)[4].loss = 1e-6;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

std::vector<Evidence::LossLine> lines_with(const std::vector<double>& losses, std::int64_t steps = 50) {
  std::vector<Evidence::LossLine> lines;
  for (const double loss : losses) {
    lines.push_back({.step = steps * static_cast<std::int64_t>(lines.size()), .loss = loss, .gradient_norm = 1});
  }
  return lines;
}

TEST(Rules, ALossThatJumpsAgainAndAgain) {
  const std::vector<double> steady = {2.0, 1.9, 1.85, 1.8, 1.78, 1.74, 1.72, 1.7,  1.69, 1.66, 1.64,
                                      1.6, 1.6, 1.57, 1.5, 1.52, 1.49, 1.5,  1.46, 1.45, 1.42, 1.4};
  std::vector<double> jumping = steady;
  for (const std::size_t line : {9, 10, 14, 18}) jumping[line] += 4;
  Evidence e = sound();
  lines_of(e) = lines_with(jumping);
  EXPECT_THAT(first(e, "loss_spiking").what,
              HasSubstr("the loss jumped far above its previous level 3 times since step 0, to 5.66 at most"));
  lines_of(e) = lines_with(jumping, 5);
  EXPECT_THAT(findings_of(e), IsEmpty()) << "means of five steps";
  lines_of(e) = lines_with(steady);
  EXPECT_THAT(findings_of(e), IsEmpty());
  jumping = steady;
  for (std::size_t line = 12; line < jumping.size(); ++line) jumping[line] += 4;
  lines_of(e) = lines_with(jumping);
  EXPECT_THAT(findings_of(e), IsEmpty()) << "once, to another level";
}

TEST(Rules, EachObjectiveIsLookedAt) {
  Evidence e = sound();
  e.numbers.objectives.push_back({.name = "judge", .lines = lines_of(e)});
  EXPECT_THAT(findings_of(e), IsEmpty());
  std::vector<Evidence::LossLine>& second = e.numbers.objectives.back().lines;
  for (Evidence::LossLine& line : second) line.loss = 0.7;
  EXPECT_THAT(first(e, "loss_flat").what, HasSubstr("the loss of judge is 0.7 at each"));
  second = lines_of(e);
  for (Evidence::LossLine& line : second) line.gradient_norm = 1e-20;
  EXPECT_THAT(first(e, "gradient_norm").what, HasSubstr("the norm of the gradients of judge is 1e-20"));
  for (Evidence::LossLine& line : second) line.gradient_norm = 1e4;
  EXPECT_EQ(first(e, "gradient_norm").key, "optim.clip_norm");
  e.numbers.objectives.back().clips = true;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

}  // namespace
}  // namespace millrace::doctor
