#include "millrace/metrics/figure.h"

#include <gtest/gtest.h>

#include <limits>

namespace millrace::metrics {
namespace {

TEST(Figure, CountsOfUnitsHaveNoFraction) {
  EXPECT_EQ(figure_of("val_bps_overall/units", 3), "3");
  EXPECT_EQ(figure_of("val_bps_overall/units_left_out", 1200), "1,200");
  EXPECT_EQ(figure_of("val_bps_overall/units_below_0", 0), "0");
  EXPECT_EQ(figure_of("val_bps_overall", 3), "3.0000");
  EXPECT_EQ(figure_of("recall/units", 0.5), "0.5000") << "a recipe's own, which is no count";
  EXPECT_EQ(figure_of("recall/units", 1), figure_of("recall/cat", 1)) << "a class is called units";
  EXPECT_EQ(figure_of("val_left/f1/units", 0), figure_of("val_left/f1/cat", 0));
  EXPECT_EQ(figure_of("recall/units_of_time", 1), figure_of("recall/cat", 1));
  EXPECT_EQ(figure_of("a/units", 1e300), "1e+300");
  EXPECT_EQ(figure_of("a/units", std::numeric_limits<double>::quiet_NaN()), "nan");
}

}  // namespace
}  // namespace millrace::metrics
