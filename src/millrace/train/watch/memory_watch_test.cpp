#include "millrace/train/watch/memory_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kMb = 1'000'000;

MemoryWatch::Reading tensors(std::int64_t step, std::uint64_t megabytes) {
  return {.step = step, .used = 1, .room = 0, .tensors = megabytes * kMb};
}

// A reading during the first pass over the data; the pass has a thousand steps.
MemoryWatch::Reading first_pass(std::int64_t step, std::uint64_t megabytes, std::uint64_t free_megabytes) {
  return {.step = step,
          .passed = step,
          .left = 1000 - step,
          .used = 100 * kMb,
          .room = (100 + free_megabytes) * kMb,
          .tensors = megabytes * kMb};
}

TEST(MemoryWatch, TellsOnceWhenLittleIsLeft) {
  MemoryWatch watch;
  MemoryWatch::Reading now{.step = 50, .used = 880 * kMb, .room = 1000 * kMb};
  EXPECT_THAT(watch.look(now), IsEmpty());
  now.step = 1100;
  now.used = 910 * kMb;
  EXPECT_THAT(watch.look(now), ElementsAre("step 1,100: the process holds 910 MB, 91 % of the 1.0 GB that it may have: lower "
                                           "data.batch_size, or set memory.recompute=all or memory.micro_batches=2; readers and "
                                           "their batches take less memory with data.workers=1 and data.prefetch=1"));
  now.used = 990 * kMb;
  EXPECT_THAT(watch.look(now), IsEmpty());
  MemoryWatch unknown;
  now.room = 0;
  EXPECT_THAT(unknown.look(now), IsEmpty());
}

TEST(MemoryWatch, TellsOnceOfTensorsThatNeverGo) {
  MemoryWatch watch;
  for (std::int64_t i = 0; i < MemoryWatch::kRises; ++i) EXPECT_THAT(watch.look(tensors(50 * i, 100 + 5 * i)), IsEmpty());
  EXPECT_THAT(watch.look(tensors(400, 140)),
              ElementsAre(HasSubstr("at each of the last 8 log lines: 100 MB after step 0, 140 MB after step 400: ")));
  EXPECT_THAT(watch.look(tensors(450, 145)), IsEmpty());
}

TEST(MemoryWatch, IsSilentWhereTensorsComeAndGo) {
  MemoryWatch swinging, small, large, filling;
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_THAT(swinging.look(tensors(i, 100 + 20 * (i % MemoryWatch::kRises))), IsEmpty()) << "back to where it was";
    EXPECT_THAT(large.look(tensors(i, 100'000 + 5 * i)), IsEmpty()) << "less than one part in twenty";
    MemoryWatch::Reading slight = tensors(i, 1);
    slight.tensors += 1000 * static_cast<std::uint64_t>(i);
    EXPECT_THAT(small.look(slight), IsEmpty()) << "counters and lists";
    EXPECT_THAT(filling.look(first_pass(10 * i, 100 + 50 * i, 100'000)), IsEmpty()) << "a cache that fills";
  }
  EXPECT_THAT(filling.look(tensors(1000, 5100)), IsEmpty()) << "it is full";
  EXPECT_EQ(filling.rising(), "");
}

TEST(MemoryWatch, OfAFirstPassTellsWhatWillNotFitIntoMemory) {
  MemoryWatch watch;
  for (std::int64_t i = 0; i < 18; ++i)
    EXPECT_THAT(watch.look(first_pass(10 * i, 100 + 50 * i, 3000)), IsEmpty()) << "a tenth of it is not over, or 8 lines are not";
  EXPECT_THAT(
      watch.look(first_pass(180, 1000, 3000)),
      ElementsAre(HasSubstr("600 MB after step 100, 1.0 GB after step 180; at that pace memory is used up in about 600")));
}

TEST(MemoryWatch, ARiseThatEndsIsNoneAnyMoreAndIsToldOnceAllTheSame) {
  MemoryWatch watch;
  std::size_t told = 0;
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t i = 0; i < 12; ++i) told += watch.look(tensors(100 * round + i, 100 + 10 * i)).size();
    EXPECT_THAT(watch.rising(), HasSubstr("100 MB after step")) << round;
    EXPECT_THAT(watch.look(tensors(100 * round + 20, 150)), IsEmpty());
    EXPECT_EQ(watch.rising(), "") << "half of it is gone";
  }
  EXPECT_EQ(told, 1U);
  for (std::int64_t i = 0; i < 12; ++i) (void)watch.look(tensors(400 + i, 200 + 10 * i));
  EXPECT_NE(watch.rising(), "");
  for (int i = 0; i < MemoryWatch::kRises; ++i) (void)watch.look(tensors(500 + i, 310));
  EXPECT_EQ(watch.rising(), "") << "it stays as it is";
}

TEST(MemoryWatch, SaysWhoseTheTensorsAreWhereThatIsKnown) {
  for (const bool known : {true, false}) {
    MemoryWatch watch;
    std::uint64_t megabytes = 100;
    const auto owned = [&] { return OwnedMemory{{"buffers", (known ? megabytes - 60 : 30) * kMb}, {"optimizer", 20 * kMb}}; };
    for (std::int64_t i = 0; i <= MemoryWatch::kRises; ++i, megabytes += 10) (void)watch.look(tensors(i, megabytes), owned);
    EXPECT_THAT(watch.rising(), testing::EndsWith(known ? "180 MB after step 8, most of it in the buffers"
                                                        : "180 MB after step 8, and no known owner (buffers, optimizer) "
                                                          "accounts for most of the rise"));
  }
}

}  // namespace
}  // namespace millrace
