// millrace-hdf5: the one program that calls libhdf5. Millrace starts it with open files, and asks over a socket:
//   millrace-hdf5 describe COUNT    what is in each of COUNT files, every file in a process of its own
//   millrace-hdf5 read              blocks of one file, until the socket ends
//   millrace-hdf5 write             arrays into one file
// Standard input is the socket; the files are the descriptors from 3. It opens nothing: the limit on descriptors forbids it.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

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

// No core files, no new descriptors (so no other file, no socket, no plug-in), bounded memory.
void confine([[maybe_unused]] int descriptors, std::uint64_t file_bytes) {
  limit(RLIMIT_CORE, 0, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they open pipes to probe memory
  limit(RLIMIT_NOFILE, static_cast<rlim_t>(descriptors), static_cast<rlim_t>(descriptors));
#endif
  g_memory = kMemory + 2 * std::min<std::uint64_t>(file_bytes, kMostMemory / 4);
  allow_memory(0);
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

std::string read_all(int descriptor) {
  std::string bytes;
  std::string part(std::size_t{1} << 16U, '\0');
  while (bytes.size() < detail::kMaxFrame) {
    const ssize_t got = ::read(descriptor, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    bytes.append(part, 0, static_cast<std::size_t>(got));
  }
  return bytes;
}

[[noreturn]] void describe_in_worker(int index, int files, int pipe, const std::string& request) {
  const int descriptor = kFirstFile + index;
  ::close(kSocket);
  ::close(STDOUT_FILENO);
  for (int i = 0; i < files; ++i) {
    if (i != index) ::close(kFirstFile + i);
  }
  ::dup2(pipe, STDOUT_FILENO);
  ::close(pipe);
  // Descriptors below the highest in use are free now: fill them, so that none is.
  int filler = ::dup(STDERR_FILENO);
  while (filler >= 0 && filler < descriptor) filler = ::dup(STDERR_FILENO);
  if (filler > descriptor) ::close(filler);
  confine(descriptor + 1, size_of_file(descriptor));
  forbid_writing();
  limit(RLIMIT_CPU, kCpuSeconds, kCpuSeconds);
  ::alarm(kWallSeconds);
  const std::string answer = describe(descriptor, request);
  ::_exit(write_all(STDOUT_FILENO, answer.data(), answer.size()) ? 0 : 1);
}

int describe_files(int files) {
  std::string request;
  if (!get_frame(kSocket, request)) return 1;
  for (int index = 0; index < files; ++index) {
    int ends[2] = {};
    if (::pipe(ends) != 0) return 1;
    const pid_t worker = ::fork();  // of a process without threads
    if (worker < 0) return 1;
    if (worker == 0) {
      ::close(ends[0]);
      describe_in_worker(index, files, ends[1], request);
    }
    ::close(ends[1]);
    std::string answer = read_all(ends[0]);
    ::close(ends[0]);
    int status = 0;
    while (::waitpid(worker, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || answer.empty()) {
      const auto signal = static_cast<std::uint32_t>(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
      const auto code = static_cast<std::uint32_t>(WIFEXITED(status) ? WEXITSTATUS(status) : 0);
      answer = detail::WireWriter().put(Answer::died).put(signal).put(code).bytes();
    }
    if (!put_frame(kSocket, answer)) return 1;
  }
  return 0;
}

int run(int count, char** words) {
  const std::string job = count > 1 ? words[1] : "";
  int files = 0;
  if (job == "describe" && count == 3) std::from_chars(words[2], words[2] + std::strlen(words[2]), files);
  if ((job != "read" && job != "write" && files < 1) || ::fcntl(kFirstFile, F_GETFD) < 0) {
    std::cerr << "millrace-hdf5 is a part of millrace, which starts it to read HDF5 files; it is of no use by hand\n";
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  start_library();
  if (job == "describe") return describe_files(files);
  confine(kFirstFile + 1, size_of_file(kFirstFile));
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
