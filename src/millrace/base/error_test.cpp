#include "millrace/base/error.h"

#include <gmock/gmock.h>

namespace millrace {
namespace {

TEST(ErrorText, HasThreeParts) {
  const DataError error({.what = "sample 7 is bad", .where = "field \"vis\"", .next = "repair it"});
  EXPECT_STREQ(error.what(), "DataError  sample 7 is bad\n  where    field \"vis\"\n  next     repair it");
  EXPECT_EQ(error.kind(), "DataError");
  EXPECT_EQ(error.message().where, "field \"vis\"");
}

TEST(ErrorText, LeavesEmptyPartsOut) {
  EXPECT_EQ(to_text("K", {.what = "w", .where = "", .next = ""}), "K  w");
  EXPECT_EQ(to_text("K", {.what = "w", .where = "", .next = "n"}), "K  w\n  next     n");
}

TEST(ErrorText, IndentsFurtherLines) {
  EXPECT_EQ(to_text("Kind", {.what = "a\nb", .where = "c\nd\n", .next = ""}), "Kind  a\n      b\n  where    c\n           d");
}

TEST(ErrorText, ExitCodes) {
  EXPECT_EQ(ConfigError({.what = "x", .where = "", .next = ""}).exit_code(), 2);
  EXPECT_EQ(UsageError({.what = "x", .where = "", .next = ""}).exit_code(), 2);
  EXPECT_EQ(DataError({.what = "x", .where = "", .next = ""}).exit_code(), 1);
  EXPECT_EQ(TrainingDiverged({.what = "x", .where = "", .next = ""}).exit_code(), 1);
}

TEST(ConfigErrors, OneProblemReadsLikeAnyError) {
  const ConfigError error(std::vector<Problem>{{.what = "w", .where = "a.json:1", .next = "n"}});
  EXPECT_STREQ(error.what(), "ConfigError  w\n  where    a.json:1\n  next     n");
  EXPECT_EQ(error.problems().size(), 1U);
}

TEST(ConfigErrors, SeveralProblemsAreNumbered) {
  const ConfigError error(
      std::vector<Problem>{{.what = "first\nmore", .where = "here", .next = "do"}, {.what = "second", .where = "", .next = ""}});
  EXPECT_STREQ(error.what(),
               "ConfigError  2 problems in the config\n"
               "   1  first\n"
               "      more\n"
               "        where    here\n"
               "        next     do\n"
               "   2  second");
  EXPECT_EQ(error.message().what, "2 problems in the config");
}

TEST(ConfigErrors, NeedAProblem) { EXPECT_THROW(ConfigError(std::vector<Problem>{}), InternalError); }

TEST(Check, ThrowsWithThePlace) {
  EXPECT_NO_THROW(MR_CHECK(1 + 1 == 2, "sums"));
  try {
    MR_CHECK(1 + 1 == 3, std::string("sums"));
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_EQ(error.message().what, "sums (1 + 1 == 3)");
    EXPECT_THAT(error.message().where, ::testing::StartsWith("src/millrace/base/error_test.cpp:"));
  }
}

}  // namespace
}  // namespace millrace
