#include "process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace millrace::test {
namespace {

void redirect(const std::filesystem::path& file, int flags, int to) {
  const int descriptor = ::open(file.c_str(), flags, 0600);
  if (descriptor < 0 || ::dup2(descriptor, to) < 0) {
    ::_exit(127);
  }
  ::close(descriptor);
}

[[noreturn]] void become(const std::vector<std::string>& words, const Options& options, const std::filesystem::path& in,
                         const std::filesystem::path& out, const std::filesystem::path& err) {
  redirect(in, O_RDONLY, 0);
  redirect(out, O_WRONLY | O_CREAT | O_TRUNC, 1);
  redirect(err, O_WRONLY | O_CREAT | O_TRUNC, 2);
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(127);
  std::vector<char*> arguments;
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  if (options.before) options.before();
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

Result run(const std::vector<std::string>& words, const Options& options) {
  const Scratch scratch;
  const auto in = scratch.path() / "in", err = scratch.path() / "err";
  const auto out = options.out_file.empty() ? scratch.path() / "out" : options.out_file;
  write_text(in, options.input);
  const pid_t child = ::fork();
  if (child == 0) become(words, options, in, out, err);
  if (child < 0) throw std::runtime_error("fork failed");
  int status = 0;
  ::waitpid(child, &status, 0);
  Result result;
  result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  result.out = options.out_file.empty() ? read_text(out) : "";
  result.err = read_text(err);
  return result;
}

Scratch::Scratch() {
  std::string name = testing::TempDir() + "/millrace_XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = std::filesystem::canonical(name);
}

Scratch::~Scratch() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::string read_text(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write_text(const std::filesystem::path& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

}  // namespace millrace::test
