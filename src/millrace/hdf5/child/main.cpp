// The program millrace-hdf5, the only one that calls libhdf5. Millrace starts it with open files and sends requests over a
// socket:
//   millrace-hdf5 describe_all      describes the files of each message (describe_some() chooses the processes)
//   millrace-hdf5 read              reads blocks of one file, until the socket ends
//   millrace-hdf5 write             writes arrays into one file
// Standard input is the socket; for read and write, descriptor 3 is the file. A limit on the number of descriptors prevents the
// program from opening files.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/hdf5/child/jobs.h"
#include "millrace/hdf5/child/library.h"
#include "millrace/hdf5/detail/wire.h"

namespace millrace::hdf5::child {
namespace {

using detail::Answer;
using detail::kFirstFile;

constexpr rlim_t kCpuSeconds = 30;
constexpr rlim_t kMemory = rlim_t{768} << 20U;
constexpr rlim_t kMostMemory = rlim_t{1} << 36U;

void limit(int what, rlim_t soft, rlim_t hard) {
  const rlimit value{soft, hard};
  ::setrlimit(static_cast<__rlimit_resource>(what), &value);
}

std::uint64_t g_memory = 0;

// Limits the memory of this process according to the size of the file. The limit holds until the next call.
void bound_memory(std::uint64_t file_bytes) {
  g_memory = kMemory + 2 * std::min<std::uint64_t>(file_bytes, kMostMemory / 4);
  allow_memory(0);
}

// Forbids core files and new descriptors. Without a new descriptor this process can't use other files, sockets or plug-ins.
void confine([[maybe_unused]] int descriptors) {
  limit(RLIMIT_CORE, 0, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers open pipes to probe memory
  limit(RLIMIT_NOFILE, static_cast<rlim_t>(descriptors), static_cast<rlim_t>(descriptors));
#endif
}

void forbid_writing() { limit(RLIMIT_FSIZE, 0, 0); }

std::uint64_t size_of_file(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

bool write_all(int descriptor, const char* from, std::size_t size) {
  while (size > 0) {
    const ssize_t done = ::write(descriptor, from, size);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    from += done;
    size -= static_cast<std::size_t>(done);
  }
  return true;
}

rlim_t used_cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1;
}

bool is_sound(const std::string& answer) { return !answer.empty() && static_cast<Answer>(answer[0]) == Answer::ok; }

// Describes files one after the other, and ends after the first file whose answer is not `ok`.
[[noreturn]] void describe_in_worker(std::span<const int> files, int pipe, const std::string& request) {
  const int highest = *std::max_element(files.begin(), files.end());
  ::close(kSocket);
  ::dup2(pipe, STDOUT_FILENO);
  ::close(pipe);
  // Fills the free descriptors below the highest one in use, so that none is free.
  int filler = ::dup(STDERR_FILENO);
  while (filler >= 0 && filler < highest) filler = ::dup(STDERR_FILENO);
  if (filler > highest) ::close(filler);
  confine(highest + 1);
  forbid_writing();
  for (const int file : files) {
    bound_memory(size_of_file(file));
    limit(RLIMIT_CPU, used_cpu_seconds() + kCpuSeconds, (kCpuSeconds + 1) * files.size());
    ::alarm(kWallSeconds);
    const std::string answer = describe(file, request);
    if (!put_frame(STDOUT_FILENO, answer)) ::_exit(1);
    if (!is_sound(answer)) break;
  }
  ::_exit(0);
}

// Describes files in a new process, the worker. Reading one file must not change the answer about another, and most files are
// sound. So a worker describes many files, but ends at the first file that is not sound; that file is described again in a
// separate worker. Returns the number of files whose answer was passed on; nullopt if the receiver has gone or no process can be
// made.
std::optional<std::size_t> describe_some(std::span<const int> files, const std::string& request) {
  int ends[2] = {};
  if (::pipe(ends) != 0) return std::nullopt;
  const pid_t worker = ::fork();  // safe because the process has no threads
  if (worker < 0) return std::nullopt;
  if (worker == 0) {
    ::close(ends[0]);
    describe_in_worker(files, ends[1], request);
  }
  ::close(ends[1]);
  std::size_t done = 0;
  bool heard = true;
  std::string answer;
  while (heard && done < files.size() && get_frame(ends[0], answer) && (done == 0 || is_sound(answer))) {
    heard = put_frame(kSocket, answer);
    ++done;
    if (!is_sound(answer)) break;
  }
  ::close(ends[0]);
  if (done > 0) ::kill(worker, SIGKILL);
  int status = 0;
  while (::waitpid(worker, &status, 0) < 0 && errno == EINTR) {
  }
  if (done == 0) {
    const auto signal = static_cast<std::uint32_t>(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    const auto code = static_cast<std::uint32_t>(WIFEXITED(status) ? WEXITSTATUS(status) : 0);
    heard = put_frame(kSocket, detail::WireWriter().put(Answer::died).put(signal).put(code).bytes());
    ++done;
  }
  return heard ? std::optional(done) : std::nullopt;
}

// Returns the files of the next message; empty at the end of the conversation.
std::vector<int> receive_files() {
  std::uint32_t count = 0;
  iovec part{&count, sizeof count};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(detail::kFilesAtOnce * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = -1;
  do got = ::recvmsg(kSocket, &message, 0);
  while (got < 0 && errno == EINTR);
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  if (got != static_cast<ssize_t>(sizeof count) || rights == nullptr || count > detail::kFilesAtOnce ||
      rights->cmsg_type != SCM_RIGHTS || rights->cmsg_len != CMSG_LEN(count * sizeof(int)))
    return {};
  std::vector<int> files(count);
  std::memcpy(files.data(), CMSG_DATA(rights), count * sizeof(int));
  return files;
}

int describe_all() {
  std::string request;
  if (!get_frame(kSocket, request)) return 1;
  for (std::vector<int> files = receive_files(); !files.empty(); files = receive_files()) {
    for (std::span<const int> left(files); !left.empty();) {
      const std::optional<std::size_t> done = describe_some(left, request);
      if (!done) return 1;
      left = left.subspan(*done);
    }
    for (const int file : files) ::close(file);
  }
  return 0;
}

bool is_socket(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode);
}

int run(int count, char** words) {
  const std::string job = count > 1 ? words[1] : "";
  if ((job != "read" && job != "write" && job != "describe_all") || !is_socket(kSocket)) {
    std::cerr << "millrace-hdf5 is a part of millrace, which starts it to read HDF5 files; it is not meant to be run by hand\n";
    return 2;
  }
  // Ignores the signals with which a batch system or a service manager asks all processes of a job to stop. The program that
  // started this process still needs answers until it has finished its step and saved; then that program ends this process.
  for (const int ignored : {SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::signal(ignored, SIG_IGN);
  start_library();
  if (job == "describe_all") return describe_all();
  confine(kFirstFile + 1);
  bound_memory(size_of_file(kFirstFile));
  if (job == "write") return write_arrays(kFirstFile);
  forbid_writing();
  return read_blocks(kFirstFile);
}

}  // namespace

void allow_memory([[maybe_unused]] std::uint64_t bytes) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  limit(RLIMIT_AS, std::min<rlim_t>(kMostMemory, g_memory + bytes), kMostMemory);
#endif
}

bool get_exactly(int socket, char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t got = ::read(socket, to, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

bool get_frame(int socket, std::string& bytes) {
  std::uint64_t size = 0;
  if (!get_exactly(socket, reinterpret_cast<char*>(&size), sizeof size) || size > detail::kMaxFrame) return false;
  bytes.resize(size);
  return get_exactly(socket, bytes.data(), size);
}

bool put_frame(int socket, const std::string& bytes) {
  const std::uint64_t size = bytes.size();
  return write_all(socket, reinterpret_cast<const char*>(&size), sizeof size) && write_all(socket, bytes.data(), bytes.size());
}

}  // namespace millrace::hdf5::child

int main(int count, char** words) {
  try {
    return millrace::hdf5::child::run(count, words);
  } catch (const std::exception& error) {
    std::cerr << "millrace-hdf5: " << error.what() << '\n';
    return 1;
  }
}
