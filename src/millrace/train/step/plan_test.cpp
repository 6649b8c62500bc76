#include "millrace/train/step/plan.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Plan, CountsAListAndNamesItWhenAsked) {
  Plan plan;
  plan.set({"device.threads", "2", "auto", "the cores"});
  plan.set({.option = "device.guards", .value = "a-1, b-2", .origin = "auto", .reason = "known faults", .brief = "2"});
  EXPECT_EQ(plan.to_text(), "  device.threads  2  the cores\n  device.guards   2  known faults\n");
  EXPECT_EQ(plan.to_text(/*verbose=*/true), "  device.threads  2         the cores\n  device.guards   a-1, b-2  known faults\n");
  EXPECT_EQ(plan.to_json()[1]["value"], "a-1, b-2") << "files have all of it";
}

}  // namespace
}  // namespace millrace
