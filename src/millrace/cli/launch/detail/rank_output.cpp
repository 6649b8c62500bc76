#include "millrace/cli/launch/detail/rank_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "millrace/base/error.h"

namespace millrace::cli {
namespace {

// Returns false if the text could not be written. Does not throw, because the run must continue even if the reader of its output
// is gone.
bool write_all(int descriptor, std::string_view text) {
  constexpr int kPatienceMs = 1000;
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    pollfd ready{descriptor, POLLOUT, 0};  // waits, because another program may have set the terminal to non-blocking
    if (written < 0 && errno == EAGAIN && ::poll(&ready, 1, kPatienceMs) > 0) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void tell_lost_log(int rank, const std::filesystem::path& log, int error) {
  (void)write_all(STDERR_FILENO, "warning: the output of rank " + std::to_string(rank) + " is not kept in " + log.string() +
                                     " from here on: " + std::strerror(error) + "\n");
}

// True for the first line of an error in three parts, such as "DataError  sample 7 ...".
bool begins_error(const std::string& line) {
  const std::size_t end = line.find("  ");
  if (end == std::string::npos || end == 0) return false;
  for (std::size_t i = 0; i < end; ++i)
    if (std::isalpha(static_cast<unsigned char>(line[i])) == 0) return false;
  return std::isupper(static_cast<unsigned char>(line[0])) != 0;
}

}  // namespace

RankOutput::RankOutput(int rank, const std::filesystem::path& log, bool plain) : rank_(rank), plain_(plain), log_path_(log) {
  log_ = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log_ < 0) {
    throw UsageError({"the output of rank " + std::to_string(rank) + " can't be kept: " + std::strerror(errno), log.string(),
                      "choose another folder with --logs"});
  }
  err_.screen = 2;
  for (Pipe* pipe : {&out_, &err_}) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      throw DistributedError(
          {std::string("no pipe could be made: ") + std::strerror(errno), "", "close some files and try again"});
    pipe->read = ends[0];
    pipe->write = ends[1];
    ::fcntl(pipe->read, F_SETFL, O_NONBLOCK);
  }
}

RankOutput::~RankOutput() {
  close_child_ends();
  for (const int descriptor : {out_.read, err_.read, log_})
    if (descriptor >= 0) ::close(descriptor);
}

void RankOutput::close_child_ends() {
  for (Pipe* pipe : {&out_, &err_}) {
    if (pipe->write >= 0) ::close(pipe->write);
    pipe->write = -1;
  }
}

void RankOutput::take() {
  take(out_);
  take(err_);
}

// Reads at most 1 MiB in one call. Otherwise a rank that writes without end would stop the launcher's other work.
void RankOutput::take(Pipe& pipe) {
  constexpr int kMostReads = 16;
  constexpr std::size_t kLongestLine = std::size_t{1} << 20U;
  std::array<char, 65536> part{};
  for (int reads = 0; pipe.read >= 0 && reads < kMostReads; ++reads) {
    const ssize_t got = ::read(pipe.read, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    if (got == 0) {
      if (!pipe.rest.empty()) show(pipe, pipe.rest);
      pipe.rest.clear();
      ::close(pipe.read);
      pipe.read = -1;
      break;
    }
    pipe.rest.append(part.data(), static_cast<std::size_t>(got));
    for (std::size_t end = 0; (end = pipe.rest.find('\n')) != std::string::npos;) {
      show(pipe, pipe.rest.substr(0, end));
      pipe.rest.erase(0, end + 1);
    }
    const bool is_for_programs = plain_ && &pipe == &out_;
    if (is_for_programs || pipe.rest.size() < kLongestLine) continue;
    show(pipe, std::exchange(pipe.rest, {}));  // shows an incomplete line, such as a progress bar
  }
}

void RankOutput::show(Pipe& pipe, const std::string& line) {
  if (&pipe == &err_ && begins_error(line)) error_ = line;
  if (log_ >= 0 && !write_all(log_, line + "\n")) {
    tell_lost_log(rank_, log_path_, errno);
    ::close(std::exchange(log_, -1));
  }
  const std::string prefix = plain_ && &pipe == &out_ ? "" : "[" + std::to_string(rank_) + "] ";
  (void)write_all(pipe.screen, prefix + line + "\n");
}

}  // namespace millrace::cli
