#include "tests/support/peer.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <stdexcept>

namespace millrace::test {
namespace {

// The Python process that runs the scripts; it ends with this program.
class PeerServer {
 public:
  PeerServer() {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair failed");
    socket_ = ends[0];
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    std::string program = MILLRACE_SOURCE_DIR "/tools/python-peer", script = MILLRACE_SOURCE_DIR "/tests/support/peer_server.py";
    char* const words[] = {program.data(), script.data(), nullptr};
    const int failure = ::posix_spawn(&child_, program.c_str(), &actions, nullptr, words, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (failure != 0) throw std::runtime_error("can't start " + program);
  }
  ~PeerServer() {
    ::close(socket_);
    ::waitpid(child_, nullptr, 0);
  }
  PeerServer(const PeerServer&) = delete;
  PeerServer& operator=(const PeerServer&) = delete;

  // The exit status of the script whose request this is; `script` is for errors.
  int ask(const std::string& request, const std::string& script) const {
    for (std::size_t sent = 0; sent < request.size();) {
      const ssize_t count = ::send(socket_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) throw std::runtime_error(gone_before(script));
      sent += static_cast<std::size_t>(count);
    }
    std::string answer;
    while (!answer.ends_with('\n')) {
      char letter = 0;
      const ssize_t count = ::recv(socket_, &letter, 1, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) throw std::runtime_error(gone_before(script));
      answer += letter;
    }
    return std::stoi(answer);
  }

 private:
  static std::string gone_before(const std::string& script) {
    return "the Python that runs the tests' scripts ended before it told how " + script +
           " ended. What it said is above; next: tools/python-peer -c 'import torch, safetensors'";
  }

  int socket_ = -1;
  pid_t child_ = -1;
};

}  // namespace

int run_peer(const std::filesystem::path& script, const std::vector<std::string>& words, const PeerOptions& options) {
  static const PeerServer server;
  std::string request = options.said.string() + "\t";
  for (const std::string& module : options.modules) request += module + ",";
  request += "\t" + script.string();
  for (const std::string& word : words) request += "\t" + word;
  return server.ask(request + "\n", script.string());
}

}  // namespace millrace::test
