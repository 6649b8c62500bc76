#include "millrace/base/axis_text.h"

#include <gtest/gtest.h>

#include <vector>

namespace millrace {
namespace {

std::string text(const std::vector<double>& values, const std::string& unit = "", double period = 0) {
  return axis_text(values, unit, period);
}

TEST(AxisText, SaysWhichWayAnAxisRunsAndByWhatSteps) {
  EXPECT_EQ(text({100, 101, 102}, "MHz"), "100 to 102 MHz ascending in steps of 1");
  EXPECT_EQ(text({102, 101, 100}, "MHz"), "102 to 100 MHz descending in steps of 1");
  EXPECT_EQ(text({0, 1, 3}), "0 to 3 ascending in steps of 1 to 2");
  EXPECT_EQ(text({3, 1, 2}, "s"), "3 to 2 s in no order");
  EXPECT_EQ(text({1, 1}), "1 to 1 in no order");
  EXPECT_EQ(text({7}, "K"), "7 K");
  EXPECT_EQ(text({}, "K"), "");
}

TEST(AxisText, AnAngleGoesOnBeyondItsTurn) {
  const std::vector<double> ra = {350, 355, 0, 5};
  EXPECT_EQ(direction_of(ra), 0);
  EXPECT_EQ(direction_of(ra, 360), 1);
  EXPECT_EQ(text(ra, "degrees", 360), "350 to 5 degrees ascending in steps of 5");
}

// The steps of a float axis differ by rounding; the text must not show that.
TEST(AxisText, RoundingMakesNoStepsOfItsOwn) {
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(static_cast<double>(static_cast<float>(1100 + 0.1 * i)));
  EXPECT_EQ(text(values, "MHz"), "1100 to 1199.9 MHz ascending in steps of 0.1");
}

}  // namespace
}  // namespace millrace
