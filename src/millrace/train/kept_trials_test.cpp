#include "millrace/train/kept_trials.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace millrace {
namespace {

class KeptTrialsTest : public ::testing::Test {
 protected:
  KeptTrialsTest() : folder_(::testing::TempDir() + "kept-trials-" + std::to_string(::getpid())) {}
  ~KeptTrialsTest() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] KeptTrials open(bool writes = true) const { return {Fs::real(), folder_, writes}; }
  [[nodiscard]] std::string text() const {
    std::ifstream file(folder_ / "trials.json");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
};

TEST_F(KeptTrialsTest, ALaterRunFindsWhatAnEarlierOneKept) {
  KeptTrials first = open();
  EXPECT_EQ(first.find("product f32 2x3x4"), std::nullopt);
  first.keep("product f32 2x3x4", {1.5, 2.5});
  first.save();
  KeptTrials second = open();
  EXPECT_EQ(second.find("product f32 2x3x4"), std::optional(Json({1.5, 2.5})));
  second.keep("norm f32 8x8", {1, 2});
  second.save();
  EXPECT_EQ(open().all().size(), 2U);
}

TEST_F(KeptTrialsTest, TwoRunsAtOnceKeepBoth) {
  KeptTrials first = open();
  KeptTrials second = open();
  first.keep("a", 1);
  second.keep("b", 2);
  first.save();
  second.save();
  EXPECT_EQ(open().all().size(), 2U);
}

TEST_F(KeptTrialsTest, AnotherMachinesEntriesStayAndAreNotTaken) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ / "trials.json") << R"({"another machine": {"a": 1}})";
  KeptTrials kept = open();
  EXPECT_EQ(kept.find("a"), std::nullopt);
  kept.keep("a", 2);
  kept.save();
  EXPECT_NE(text().find("another machine"), std::string::npos);
  EXPECT_EQ(open().find("a"), std::optional(Json(2)));
}

TEST_F(KeptTrialsTest, WhatWasFoundUnderALimitOfInstructionsIsNotTakenWithoutIt) {
  const char* const name = "ONEDNN_MAX_CPU_ISA";
  const char* const set = std::getenv(name);
  const std::optional<std::string> before = set == nullptr ? std::nullopt : std::optional<std::string>(set);
  ::setenv(name, "SSE41", 1);
  KeptTrials limited = open();
  limited.keep("a", 1);
  limited.save();
  EXPECT_EQ(open().find("a"), std::optional(Json(1)));
  before ? ::setenv(name, before->c_str(), 1) : ::unsetenv(name);
  EXPECT_EQ(open().find("a"), std::nullopt);
}

TEST_F(KeptTrialsTest, LookingAloneWritesNothing) {
  KeptTrials kept = open(/*writes=*/false);
  kept.keep("a", 1);
  kept.save();
  EXPECT_FALSE(std::filesystem::exists(folder_));
  KeptTrials nowhere(Fs::real(), "", true);
  nowhere.keep("a", 1);
  nowhere.save();
}

TEST_F(KeptTrialsTest, ADamagedFileIsAnEmptyOne) {
  std::filesystem::create_directories(folder_);
  for (const std::string damaged : {"", "{", "[1, 2]", "null", "{\"m\": 3}", "\xFF\xFE\x00\x01", "{\"m\": {\"a\": ", "17"}) {
    std::ofstream(folder_ / "trials.json") << damaged;
    KeptTrials kept = open();
    EXPECT_TRUE(kept.all().empty()) << damaged;
    kept.keep("a", 1);
    kept.save();
    EXPECT_EQ(open().find("a"), std::optional(Json(1))) << damaged;
  }
}

}  // namespace
}  // namespace millrace
