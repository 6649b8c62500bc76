#include "millrace/data/loader/detail/tuner.h"

#include <gtest/gtest.h>

namespace millrace::data::detail {
namespace {

constexpr Limits kTwoCores{.chooses_readers = true, .cores = 2, .max_readers = 64, .tickets = 16, .max_ahead = 100};

Measured measured(double waited, double read_seconds, double cpu_seconds, double slowest = 0.01) {
  return {.seconds = 1,
          .waited = waited,
          .batches = 20,
          .read_seconds = read_seconds,
          .cpu_seconds = cpu_seconds,
          .slowest_read = slowest};
}

TEST(Tuner, leaves_a_consumer_alone_that_does_not_wait) {
  Tuner tuner(kTwoCores);
  EXPECT_FALSE(tuner.look({1, 2}, measured(0.01, 1, 1)));
  Measured seen = measured(0.9, 1, 1, 0.3);
  EXPECT_TRUE(Tuner::enough(seen));
  seen.slowest_read = 0.4;
  EXPECT_FALSE(Tuner::enough(seen)) << "one slow read is most of it";
  seen = measured(0.9, 1, 1);
  seen.batches = 3;
  EXPECT_FALSE(Tuner::enough(seen)) << "too few to judge by";
}

TEST(Tuner, readers_that_sleep_may_outnumber_the_cores) {
  Tuner tuner(kTwoCores);
  Stages stages{4, 2};
  for (const int expected : {8, 16, 32, 64}) {
    const auto change = tuner.look(stages, measured(0.95, stages.readers, 0.01 * stages.readers));
    ASSERT_TRUE(change);
    EXPECT_EQ(change->stages.readers, expected);
    stages = change->stages;
  }
  const auto more = tuner.look(stages, measured(0.95, 64, 0.64));
  EXPECT_TRUE(!more || more->stages.readers == 64);
}

TEST(Tuner, readers_that_compute_may_not) {
  Tuner tuner(kTwoCores);
  auto change = tuner.look({1, 2}, measured(0.5, 1, 1));
  ASSERT_TRUE(change);
  EXPECT_EQ(change->stages.readers, 2);
  EXPECT_EQ(change->reason, "2 readers, 2 batches ahead: the step waited 50 % of the time; readers sleep 0 % of their time");
  EXPECT_FALSE(tuner.look({2, 2}, measured(0.4, 2, 2)));
}

TEST(Tuner, takes_no_more_than_the_step_can_eat) {
  Tuner tuner({.chooses_readers = true, .cores = 16, .max_readers = 64, .tickets = 16, .max_ahead = 100});
  const auto change = tuner.look({4, 2}, measured(0.2, 4, 4));  // 4 s of reading during 0.8 s of steps
  ASSERT_TRUE(change);
  EXPECT_EQ(change->stages.readers, 6);
}

TEST(Tuner, looks_as_far_ahead_as_a_slow_sample_takes) {
  Tuner tuner({.chooses_readers = false, .cores = 2, .max_readers = 64, .tickets = 16, .max_ahead = 100});
  EXPECT_FALSE(tuner.look({8, 2}, measured(0.5, 8, 0.1, 0.3))) << "nobody is held up";
  const auto change = tuner.look({8, 2}, measured(0.5, 5, 0.1, 0.3));  // 0.3 s is the time of 6 batches of 50 ms
  ASSERT_TRUE(change);
  EXPECT_EQ(change->stages, (Stages{8, 7}));
  EXPECT_EQ(change->reason, "8 readers, 7 batches ahead: the step waited 50 % of the time");
}

TEST(Tuner, stays_within_the_budget_of_bytes) {
  Tuner tuner({.chooses_readers = false, .cores = 2, .max_readers = 64, .tickets = 16, .max_ahead = 5});
  const auto change = tuner.look({8, 2}, measured(0.5, 5, 0.1, 3));
  ASSERT_TRUE(change);
  EXPECT_EQ(change->stages.ahead, 5U);
}

TEST(Tuner, takes_a_change_back_that_made_it_worse) {
  Tuner tuner(kTwoCores);
  ASSERT_TRUE(tuner.look({1, 2}, measured(0.5, 1, 1)));
  Measured worse = measured(0.5, 2, 2);
  worse.batches = 10;
  const auto change = tuner.look({2, 2}, worse);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->stages.readers, 1);
  EXPECT_EQ(change->reason, "1 reader again, because with 2 the rate was 50 % of the earlier rate");
  EXPECT_FALSE(tuner.look({1, 2}, measured(0.5, 1, 1))) << "not tried again";
}

TEST(Tuner, takes_more_ahead_back_that_gave_nothing) {
  Tuner tuner({.chooses_readers = false, .cores = 2, .max_readers = 64, .tickets = 16, .max_ahead = 100});
  ASSERT_TRUE(tuner.look({2, 2}, measured(0.3, 1, 0.1, 0.3)));
  const auto change = tuner.look({2, 7}, measured(0.3, 1, 0.1, 0.3));
  ASSERT_TRUE(change);
  EXPECT_EQ(change->stages, (Stages{2, 2}));
  EXPECT_EQ(change->reason, "2 batches ahead again, because with 7 the rate was 100 % of the earlier rate");
  EXPECT_FALSE(tuner.look({2, 2}, measured(0.3, 1, 0.1, 0.3))) << "not tried again";

  Tuner helped({.chooses_readers = false, .cores = 2, .max_readers = 64, .tickets = 16, .max_ahead = 100});
  ASSERT_TRUE(helped.look({2, 2}, measured(0.03, 1, 0.1, 0.3)));
  EXPECT_FALSE(helped.look({2, 7}, measured(0.0, 1, 0.1, 0.3))) << "the same rate, but nothing waits any more";
}

TEST(Tuner, begins_with_readers_when_reading_in_the_callers_thread_got_dear) {
  Tuner tuner(kTwoCores);
  EXPECT_FALSE(tuner.look({0, 2}, measured(0.005, 0.005, 0)));
  const auto change = tuner.look({0, 2}, measured(0.5, 0.5, 0));
  ASSERT_TRUE(change);
  EXPECT_EQ(change->stages.readers, 1);
}

}  // namespace
}  // namespace millrace::data::detail
