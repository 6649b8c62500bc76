#include "millrace/hdf5/detail/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/hdf5/detail/wire.h"
#include "millrace/system/child.h"

namespace millrace::hdf5::detail {
namespace {

std::string reason(int error_number) { return std::generic_category().message(error_number); }

// Returns the program that MILLRACE_HDF5_CHILD names; otherwise the program that find_beside() finds.
std::string find_program() {
  if (const char* named = std::getenv("MILLRACE_HDF5_CHILD"); named != nullptr && *named != '\0') {
    if (::access(named, X_OK) == 0) return named;
    throw DataError(
        {.what = "HDF5 files are read through the program " + quoted(named) + ", which does not exist or can't be executed",
         .where = "MILLRACE_HDF5_CHILD",
         .next = "unset the variable, or set it to the millrace-hdf5 of this installation"});
  }
  std::string found = find_beside("millrace-hdf5", MILLRACE_HDF5_BUILT, MILLRACE_HDF5_INSTALLED);
  if (!found.empty()) return found;
  throw DataError({.what = "HDF5 files are read through the program millrace-hdf5, which was not found",
                   .where = looked_for_beside(MILLRACE_HDF5_INSTALLED),
                   .next = "install millrace again, or name the program in MILLRACE_HDF5_CHILD"});
}

// Returns this process's environment without the variables that steer libhdf5 (drivers, plug-ins, locks).
std::vector<char*> environment() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "HDF5_", 5) != 0) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

[[noreturn]] void cannot_start(const std::string& program, int error_number) {
  std::string next = remedy_for(error_number);
  if (error_number == EAGAIN) next = "raise the limit on processes (ulimit -u), or end other programs";
  if (error_number == ENOMEM) next = "free memory, or raise the limit on address space (ulimit -v)";
  throw DataError({.what = "the program that reads HDF5 files can't be started: " + reason(error_number),
                   .where = quoted(program),
                   .next = std::move(next)});
}

}  // namespace

Process::Process(const std::string& job, std::span<const int> files) {
  const std::string program = find_program();
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) cannot_start(program, errno);
  Descriptor ours(ends[0]);
  const Descriptor theirs(ends[1]);
  const int first_free = kFirstFile + static_cast<int>(files.size());
  // First copies all descriptors to numbers above those of the child, so that no dup2 overwrites a descriptor that is still to
  // be copied.
  std::vector<Descriptor> high;
  high.reserve(files.size() + 1);
  const auto lift = [&](int descriptor) {
    high.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, first_free));
    if (high.back().get() < 0) cannot_start(program, errno);
    return high.back().get();
  };
  SpawnActions actions;
  ::posix_spawn_file_actions_adddup2(actions.files(), lift(theirs.get()), STDIN_FILENO);
  ::posix_spawn_file_actions_addopen(actions.files(), STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(actions.files(), STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  for (std::size_t i = 0; i < files.size(); ++i) {
    ::posix_spawn_file_actions_adddup2(actions.files(), lift(files[i]), kFirstFile + static_cast<int>(i));
  }
  ::posix_spawn_file_actions_addclosefrom_np(actions.files(), first_free);
  std::string name = program;
  std::string first = job;
  std::array<char*, 3> words = {name.data(), first.data(), nullptr};
  std::vector<char*> variables = environment();
  const int error =
      ::posix_spawn(&process_, program.c_str(), actions.files(), actions.attributes(), words.data(), variables.data());
  if (error != 0) cannot_start(program, error);
  socket_ = ours.release();
}

Process::~Process() {
  if (process_ >= 0) {
    ::kill(process_, SIGKILL);
    static_cast<void>(how_it_ended());
  }
  ::close(socket_);
}

bool Process::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return true;
}

bool Process::send_frame(std::string_view bytes) {
  const std::uint64_t size = bytes.size();
  return send(std::as_bytes(std::span(&size, 1))) && send(std::as_bytes(std::span(bytes)));
}

bool Process::send_files(std::span<const int> files) {
  MR_CHECK(!files.empty() && files.size() <= kFilesAtOnce, "a message holds at least one file and at most kFilesAtOnce");
  auto count = static_cast<std::uint32_t>(files.size());
  iovec part{&count, sizeof count};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFilesAtOnce * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(files.size_bytes());
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(files.size_bytes());
  std::memcpy(CMSG_DATA(rights), files.data(), files.size_bytes());
  ssize_t sent = -1;
  do sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof count);
}

bool Process::receive(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::recv(socket_, out.data(), out.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

std::optional<std::uint64_t> Process::receive_size() {
  std::uint64_t size = 0;
  if (!receive(std::as_writable_bytes(std::span(&size, 1))) || size > kMaxFrame) return std::nullopt;
  return size;
}

std::optional<std::string> Process::receive_frame() {
  const std::optional<std::uint64_t> size = receive_size();
  if (!size) return std::nullopt;
  std::string bytes(*size, '\0');
  if (!receive(std::as_writable_bytes(std::span(bytes)))) return std::nullopt;
  return bytes;
}

std::string Process::how_it_ended() {
  if (process_ < 0) return "ended before";
  // If the child has not closed its end of the socket, the child has sent nonsense and would not end by itself, so it is killed.
  std::byte next{};
  errno = 0;
  if (::recv(socket_, &next, 1, MSG_PEEK | MSG_DONTWAIT) > 0 || errno == EAGAIN) ::kill(process_, SIGKILL);
  int status = 0;
  while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  return WIFSIGNALED(status) ? ending(WTERMSIG(status), 0) : ending(0, WEXITSTATUS(status));
}

}  // namespace millrace::hdf5::detail
