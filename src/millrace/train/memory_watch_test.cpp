#include "millrace/train/memory_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kMb = 1'000'000;

MemoryReading tensors(std::int64_t step, std::uint64_t megabytes) {
  return {.step = step, .first_epoch = false, .used = 1, .room = 0, .tensors = megabytes * kMb};
}

TEST(MemoryWatch, TellsOnceWhenLittleIsLeft) {
  MemoryWatch watch;
  MemoryReading now{.step = 50, .used = 880 * kMb, .room = 1000 * kMb};
  EXPECT_THAT(watch.look(now), IsEmpty());
  now.step = 1100;
  now.used = 910 * kMb;
  EXPECT_THAT(watch.look(now), ElementsAre("step 1,100: the process holds 910 MB, 91 % of the 1.0 GB that it may have: lower "
                                           "data.batch_size, or set memory.recompute=all or memory.micro_batches=2"));
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
    MemoryReading slight = tensors(i, 1);
    slight.tensors += 1000 * static_cast<std::uint64_t>(i);
    EXPECT_THAT(small.look(slight), IsEmpty()) << "counters and lists";
    MemoryReading cache = tensors(i, 100 + 50 * i);
    cache.first_epoch = true;
    EXPECT_THAT(filling.look(cache), IsEmpty()) << "a cache that fills";
  }
}

}  // namespace
}  // namespace millrace
