#include "millrace/system/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "millrace/base/fs.h"

namespace millrace {
namespace {

TEST(ProcessDeathTest, AFileNeverGetsTheNumberOfAStandardStream) {
  EXPECT_EXIT(
      {
        for (const int number : {0, 1, 2}) ::close(number);
        prepare_process();
        const int file = ::open("/dev/null", O_RDWR);
        const bool fails = ::write(1, "x", 1) == -1 && errno == EBADF && ::write(2, "x", 1) == -1 && errno == EBADF;
        char byte = 0;
        ::_exit(file > 2 && fails && ::read(0, &byte, 1) == -1 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(ProcessDeathTest, OpenStreamsStayWhatTheyAre) {
  EXPECT_EXIT(
      {
        ::close(0);
        prepare_process();
        ::_exit(::write(2, "said", 4) == 4 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "said");
}

// The errno of a write of 5000 bytes to a file that may have only 1000.
int error_of_a_long_write(const std::filesystem::path& path) {
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = 1000;
  ::setrlimit(RLIMIT_FSIZE, &limit);
  try {
    write_atomically(Fs::real(), path, std::string(5000, 'x'));
  } catch (const FsError& error) {
    return error.error_number();
  }
  return 0;
}

TEST(ProcessDeathTest, AWriteBeyondTheFileSizeLimitIsAnError) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / ("base_process_" + std::to_string(::getpid()));
  EXPECT_EXIT(
      {
        prepare_process();
        ::_exit(error_of_a_long_write(path) == EFBIG && !std::filesystem::exists(path) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace millrace
