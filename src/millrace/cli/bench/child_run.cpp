#include "millrace/cli/bench/child_run.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/cli/shared/arguments.h"

namespace millrace::cli {
namespace {

// A file in memory for a child's output, which may have any length.
class Capture {
 public:
  Capture() : descriptor_(::memfd_create("millrace", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw UsageError({"can't start a run", std::strerror(errno), "close some files and try again"});
  }
  ~Capture() { ::close(descriptor_); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] std::string text() const {
    std::string text;
    std::array<char, 65536> part{};
    ssize_t got = 0;
    while ((got = ::pread(descriptor_, part.data(), part.size(), static_cast<off_t>(text.size()))) > 0)
      text.append(part.data(), static_cast<std::size_t>(got));
    return text;
  }

 private:
  int descriptor_;
};

std::string last_lines(const std::string& text, int count) {
  std::size_t at = text.find_last_not_of('\n');
  if (at == std::string::npos) return "it said nothing";
  const std::size_t end = at + 1;
  for (; count > 0 && at != std::string::npos && at > 0; --count) at = text.rfind('\n', at - 1);
  return text.substr(at == std::string::npos ? 0 : at + 1, end - (at == std::string::npos ? 0 : at + 1));
}

int run_to_end(std::vector<std::string> words, const Capture& out, const Capture& err) {
  words.insert(words.begin(), "/proc/self/exe");
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err.descriptor(), STDERR_FILENO);
  pid_t child = 0;
  const int failure = ::posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) throw UsageError({"can't start a run", std::strerror(failure), "free memory and try again"});
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

void child_run(const std::vector<std::string>& words) {
  const Capture out, err;
  const int status = run_to_end(words, out, err);
  if (status == 0) return;
  throw UsageError({"a run ended with exit code " + std::to_string(status), joined(words, " "), last_lines(err.text(), 4)});
}

Json child_json(const std::vector<std::string>& words) {
  const Capture out, err;
  const int status = run_to_end(words, out, err);
  Json result = status == 0 ? Json::parse(out.text(), nullptr, /*allow_exceptions=*/false) : Json();
  if (result.is_object()) return result;
  throw UsageError({"a run ended with exit code " + std::to_string(status), joined(words, " "), last_lines(err.text(), 4)});
}

}  // namespace millrace::cli
