// A child process of a test: its output and its exit code.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace millrace::test {

struct Result {
  int exit_code = -1;  // 128 + n if signal n ended it
  std::string out;
  std::string err;
};

struct Options {
  std::filesystem::path folder;                                  // working folder; "" = the present one
  std::vector<std::pair<std::string, std::string>> environment;  // on top of this process's
  std::string input;
  std::filesystem::path out_file;  // receives stdout instead of Result::out
  std::function<void()> before;    // runs in the child, just before exec
};

Result run(const std::vector<std::string>& words, const Options& options = {});

// An empty folder, removed with its content at the end.
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
