#include "millrace/runs/ledger.h"

#include <gtest/gtest.h>

namespace millrace::runs {
namespace {

TEST(Ledger, AValueIsTheSameInAFlagAndInAConfigFile) {
  EXPECT_TRUE(is_same_value("none", R"(["none"])"));  // as in memory.recompute
  EXPECT_TRUE(is_same_value("all", "all"));
  EXPECT_TRUE(is_same_value("4", "4"));
  EXPECT_TRUE(is_same_value("1", "1.0"));  // as in optim.clip_norm
  EXPECT_TRUE(is_same_value("[]", "[]"));
  EXPECT_FALSE(is_same_value("none", R"(["all"])"));
  EXPECT_FALSE(is_same_value("none", R"(["none","layer0"])"));
  EXPECT_FALSE(is_same_value("4", "8"));
  EXPECT_FALSE(is_same_value("1", "true"));
  EXPECT_FALSE(is_same_value("", "0"));
}

}  // namespace
}  // namespace millrace::runs
