#include "millrace/data/loader/slow_reads.h"

#include <gmock/gmock.h>

namespace millrace::data::detail {
namespace {

constexpr std::int64_t kMs = 1'000'000;

TEST(SlowReads, AFileIsNamedByWhatItTakesBeyondTheUsual) {
  SlowReads reads;
  for (int i = 0; i < 50; ++i) reads.note(2 * kMs, 1, [] { return "a.h5 row 1"; });
  reads.note(42 * kMs, 1, [] { return "b.h5 row 7"; });
  reads.note(22 * kMs, 1, [] { return "c.csv line 3"; });
  reads.note(42 * kMs, 1, [] { return "b.h5 row 9"; });
  const std::vector<Loader::SlowFile> files = reads.files();
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].name, "b.h5");
  EXPECT_EQ(files[0].reads, 2U);
  EXPECT_NEAR(files[0].excess_seconds, 0.080, 1e-9);
  EXPECT_NEAR(files[0].usual_seconds, 0.002, 1e-9);
  EXPECT_EQ(files[1].name, "c.csv");
}

TEST(SlowReads, SingleSlowSamplesOfAFileAreToldFromASlowFile) {
  SlowReads reads;
  for (int i = 0; i < 50; ++i) reads.note(2 * kMs, 1, [] { return "a.h5 row 1"; });
  reads.note(42 * kMs, 1, [] { return "a.h5 row 7"; });
  reads.note(22 * kMs, 1, [] { return "b.h5 row 3"; });
  for (int i = 0; i < 80; ++i) reads.note(2 * kMs, 1, [] { return "a.h5 row 2"; });
  reads.note(90 * kMs, 2, [] { return "a.h5 row 8"; });
  reads.note(30 * kMs, 1, [] { return "a.h5 row 9"; });
  const std::vector<Loader::SlowFile> files = reads.files();
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].name, "a.h5");
  EXPECT_EQ(files[0].quick, 80U);
  EXPECT_EQ(files[0].worst, "a.h5 row 8 and the 1 read with it");
  EXPECT_NEAR(files[0].worst_seconds, 0.045, 1e-9);
  EXPECT_EQ(files[1].quick, 0U) << "its other samples are not known";
}

TEST(SlowReads, WhatACacheGaveIsTakenOnce) {
  EXPECT_FALSE(take_kept_sample());
  note_kept_sample();
  note_kept_sample();
  EXPECT_TRUE(take_kept_sample());
  EXPECT_FALSE(take_kept_sample());
}

TEST(SlowReads, WhatIsUsualIsNotSlow) {
  SlowReads reads;
  for (int i = 0; i < 100; ++i) reads.note((1 + i % 4) * kMs, 1, [] { return "a.h5"; });
  for (int i = 0; i < 100; ++i) reads.note(40 * kMs, 32, [] { return "many rows"; });
  reads.note(20 * kMs, 1, [] { return "a.h5"; });
  ASSERT_EQ(reads.files().size(), 1U);
  EXPECT_EQ(reads.files()[0].reads, 1U);
}

TEST(SlowReads, ShortReadsAndTheFirstOnesAreNot) {
  SlowReads reads;
  reads.note(400 * kMs, 1, [] { return "first"; });
  EXPECT_THAT(reads.files(), testing::IsEmpty());
  SlowReads quick;
  for (int i = 0; i < 100; ++i) quick.note(1'000, 1, [] { return "a"; });
  quick.note(900'000, 1, [] { return "less than a millisecond"; });
  EXPECT_THAT(quick.files(), testing::IsEmpty());
}

}  // namespace
}  // namespace millrace::data::detail
