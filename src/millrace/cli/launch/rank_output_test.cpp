#include "millrace/cli/launch/detail/rank_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

void write_as_rank(RankOutput& output, const std::string& text) {
  ASSERT_EQ(::write(output.child_out(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  output.take();
}

TEST(RankOutput, ALineWithoutAnEndIsShownInPieces) {
  const fs::path log = fs::path(testing::TempDir()) / ("rank_output_" + std::to_string(::getpid()));
  testing::internal::CaptureStdout();
  {
    RankOutput output(3, log, /*plain=*/false);
    for (int i = 0; i < 40; ++i) write_as_rank(output, std::string(32768, '.'));
  }
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_EQ(shown.substr(0, 5), "[3] .");
  EXPECT_GT(shown.size(), std::size_t{1} << 20U);
  EXPECT_GT(fs::file_size(log), std::size_t{1} << 20U);
  fs::remove(log);
}

TEST(RankOutput, ALogThatCanNotBeWrittenIsToldOnce) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    RankOutput output(1, "/dev/full", /*plain=*/false);
    write_as_rank(output, "one\ntwo\n");
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "[1] one\n[1] two\n");
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("the output of rank 1 is not kept in /dev/full from here on: No space left on device"));
  EXPECT_THAT(told.substr(told.find("rank 1") + 1), Not(HasSubstr("rank 1"))) << "once";
}

}  // namespace
}  // namespace millrace::cli
