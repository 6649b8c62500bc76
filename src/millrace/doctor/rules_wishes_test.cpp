#include "millrace/doctor/detail/sound_run.h"

namespace millrace::doctor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(Rules, ALossThatStaysAtWhatABlindAnswerGets) {
  Evidence e = sound();
  e.numbers.blind = Evidence::Blind{.loss = 2.7726, .what = "the entropy of the text's tokens"};
  EXPECT_THAT(findings_of(e), IsEmpty());
  lines_of(e).clear();
  for (int i = 0; i < 8; ++i) lines_of(e).push_back({.step = 50 * i, .loss = i < 2 ? 3.1 : 2.77 + 0.002 * i, .gradient_norm = 1});
  EXPECT_THAT(first(e, "loss_pinned").what, HasSubstr("for 250 steps the loss has been about 2.773, the entropy of"));
  lines_of(e).back().loss = 2.7;
  EXPECT_THAT(findings_of(e), IsEmpty()) << "it begins to learn";
  lines_of(e).back().loss = 2.77;
  for (Evidence::LossLine& line : lines_of(e)) line.step /= 10;
  EXPECT_THAT(findings_of(e), IsEmpty()) << "so many steps any model needs";
  e.numbers.blind.reset();
  for (Evidence::LossLine& line : lines_of(e)) line.step *= 20;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(Rules, AValidationOfAFewSamples) {
  Evidence e = sound();
  e.numbers.judged = Evidence::Judged{.unit = "volumes", .by = 8, .there_are = 1000, .batches = 2, .most_batches = 2};
  const Finding finding = first(e, "few_judges");
  EXPECT_EQ(finding.key, "train.validate_batches");
  EXPECT_EQ(finding.value, "32");
  EXPECT_THAT(finding.what,
              HasSubstr("at 8 of 1,000 volumes: a mean over 8 volumes is uncertain by 35 % of the spread of single volumes"));
  e.numbers.judged->there_are = 100;
  EXPECT_EQ(first(e, "few_judges").value, "0") << "all of them";
  e.numbers.judged->there_are = 12;
  EXPECT_THAT(findings_of(e), IsEmpty()) << "there are hardly more";
  e.numbers.judged = Evidence::Judged{.unit = "volumes", .by = 8, .there_are = 8, .batches = 2, .most_batches = 0};
  EXPECT_THAT(findings_of(e), IsEmpty()) << "there are no more";
  e.numbers.judged = Evidence::Judged{.unit = "tokens", .by = 1000, .there_are = 1e6, .batches = 1, .most_batches = 1};
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(Rules, WhatTheConfigAsksForAndTheRunMisses) {
  Evidence e = sound();
  e.targets = {
      {.key = "targets.train_it_per_s", .what = "training", .unit = "it/s", .asked = 2, .measured = 2.5},
      {.key = "targets.data_wait", .what = "waiting for data", .unit = "", .asked = 0.1, .measured = 0.1, .at_most = true}};
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.targets[0].measured = 1.234;
  EXPECT_THAT(first(e, "target_missed").what,
              testing::StrEq("the run misses its targets: training 1.23 it/s of 2.00 it/s (targets.train_it_per_s)"));
  e.targets[1].measured = 0.3;
  EXPECT_THAT(first(e, "target_missed").what, HasSubstr(", waiting for data 30 % of at most 10 % (targets.data_wait)"));
}

}  // namespace
}  // namespace millrace::doctor
