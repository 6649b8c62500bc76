#include "tests/support/own_folder.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <system_error>

namespace millrace::test {
namespace {

namespace stdfs = std::filesystem;

constexpr const char* kVariable = "MILLRACE_TEST_FOLDER";  // set by the program that started this one

bool is_in_scratch(const stdfs::path& folder) {
  std::error_code missing;
  const stdfs::path scratch = stdfs::canonical(MILLRACE_TEST_SCRATCH, missing);
  return !missing && folder.string().starts_with(scratch.string() + "/");
}

stdfs::path new_folder() {
  const std::string name = std::string(::program_invocation_short_name) + "-XXXXXX";
  std::string path = (stdfs::path(MILLRACE_TEST_SCRATCH) / name).string();
  if (::mkdtemp(path.data()) != nullptr) return path;
  path = (stdfs::temp_directory_path() / name).string();  // the program was copied to another machine, or the build is read-only
  if (::mkdtemp(path.data()) != nullptr) return path;
  throw std::runtime_error("no folder for the tests can be made in " + stdfs::temp_directory_path().string());
}

}  // namespace

int run_all_tests() {
  // A shell's background job ignores both signals, and so would the programs that this program starts. But tests end such
  // programs by these signals.
  for (const int number : {SIGINT, SIGQUIT}) std::signal(number, SIG_DFL);
  if (const char* const joined = std::getenv(kVariable); joined != nullptr && *joined != '\0') {
    stdfs::current_path(joined);
    return RUN_ALL_TESTS();
  }
  if (is_in_scratch(stdfs::current_path())) return RUN_ALL_TESTS();
  const stdfs::path own = new_folder();
  ::setenv(kVariable, own.c_str(), 1);
  stdfs::current_path(own);
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) {
    std::cerr << "what the tests wrote is in " << own.string() << "\n";
  } else {
    std::error_code ignored;
    stdfs::remove_all(own, ignored);
  }
  return failed;
}

}  // namespace millrace::test
