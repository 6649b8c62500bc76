// A child process of a test: its output, its exit code.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace millrace::test {

struct Result {
  int exit_code = -1;  // 128 + n when signal n ended it
  std::string out;
  std::string err;
};

struct Options {
  std::filesystem::path folder;                                  // where it runs; "" = here
  std::vector<std::pair<std::string, std::string>> environment;  // over this process's
  std::string input;
  std::filesystem::path out_file;  // where stdout goes instead of Result::out
  std::function<void()> before;    // runs in the child, last of all
};

Result run(const std::vector<std::string>& words, const Options& options = {});

// An empty folder of its own, removed with everything in it at the end.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

[[nodiscard]] std::string read_text(const std::filesystem::path& file);
void write_text(const std::filesystem::path& file, const std::string& text);

}  // namespace millrace::test
