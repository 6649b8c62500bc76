#include "tests/support/own_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace millrace::test {
namespace {

namespace stdfs = std::filesystem;

constexpr const char* kTold = "OWN_FOLDER_TOLD";  // a file into which the test below writes its working folder
constexpr const char* kFails = "OWN_FOLDER_FAILS";

// The tests of OwnFolder start this program to run this test.
TEST(OwnFolderChild, DISABLED_WritesWhereItRuns) {
  const char* const told = std::getenv(kTold);
  if (told == nullptr) GTEST_SKIP() << "it is for a test of OwnFolder to run";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::ofstream("left") << "by a test";
  EXPECT_EXIT(
      {
        std::ofstream("left_by_copy") << "by the copy of a death test";
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_TRUE(stdfs::exists("left_by_copy"));
  std::ofstream(told) << stdfs::current_path().string();
  if (std::getenv(kFails) != nullptr) ADD_FAILURE() << "as it was told to";
}

std::string new_folder_in(const stdfs::path& parent) {
  std::string path = (parent / "own-folder-test-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("no folder can be made in " + parent.string());
  return stdfs::canonical(path).string();
}

class OwnFolder : public testing::Test {
 protected:
  OwnFolder() { stdfs::create_directory(here_); }
  ~OwnFolder() override {
    std::error_code ignored;
    stdfs::remove_all(root_, ignored);
  }

  // Exit code of this program when started in `folder` for that test alone.
  int run_in(const std::string& folder, bool fails = false) const {
    const std::string program = stdfs::read_symlink("/proc/self/exe").string();
    const std::string told = told_.string();
    const pid_t child = ::fork();
    if (child == 0) {
      for (const char* variable : {"MILLRACE_TEST_FOLDER", "GTEST_OUTPUT", "GTEST_FILTER"}) ::unsetenv(variable);
      ::setenv(kTold, told.c_str(), 1);
      if (fails) ::setenv(kFails, "1", 1);
      const int nowhere = ::open("/dev/null", O_WRONLY);
      ::dup2(nowhere, 1);
      ::dup2(nowhere, 2);
      if (::chdir(folder.c_str()) != 0) ::_exit(126);
      ::execl(program.c_str(), program.c_str(), "--gtest_filter=OwnFolderChild.*", "--gtest_also_run_disabled_tests",
              static_cast<char*>(nullptr));
      ::_exit(127);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // The folder in which that test ran.
  std::string ran_in() const {
    std::ifstream file(told_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  stdfs::path root_ = new_folder_in(stdfs::temp_directory_path());
  stdfs::path here_ = root_ / "here", told_ = root_ / "told";
};

TEST_F(OwnFolder, OfAProgramThatIsStartedByHandIsGoneAtItsEnd) {
  EXPECT_EQ(run_in(here_), 0);
  EXPECT_NE(ran_in(), "");
  EXPECT_NE(ran_in(), here_.string());
  EXPECT_FALSE(stdfs::exists(ran_in()));
  EXPECT_TRUE(stdfs::is_empty(here_));
}

TEST_F(OwnFolder, StaysWhereATestFailed) {
  EXPECT_EQ(run_in(here_, true), 1);
  ASSERT_NE(ran_in(), "");
  ASSERT_NE(ran_in(), here_.string());
  EXPECT_TRUE(stdfs::exists(stdfs::path(ran_in()) / "left"));
  EXPECT_TRUE(stdfs::is_empty(here_));
  stdfs::remove_all(ran_in());
}

TEST_F(OwnFolder, IsTheOneThatCtestGave) {
  const std::string given = new_folder_in(MILLRACE_TEST_SCRATCH);
  EXPECT_EQ(run_in(given), 0);
  EXPECT_EQ(ran_in(), given);
  EXPECT_TRUE(stdfs::exists(stdfs::path(given) / "left"));
  stdfs::remove_all(given);
}

}  // namespace
}  // namespace millrace::test
