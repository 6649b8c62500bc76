#include "millrace/device/convolution_trial.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>

#include "millrace/base/doing.h"
#include "millrace/base/format.h"
#include "millrace/device/convolution_guard.h"
#include "millrace/device/detail/convolution_job.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/system/child.h"
#include "millrace/system/signals.h"

namespace millrace::device {
namespace {

using detail::ConvolutionJob;
using detail::Unit;

// If the program uses no core for this many milliseconds of wall time, it counts as hung, because its threads wait for each
// other.
constexpr double kStillMs = 60'000;
constexpr int kMostLate = 3;
constexpr int kLookEveryMs = 50;

// ------------------------------------------------------------------------------------------------ The shapes

struct Seen {
  std::mutex mutex;
  std::vector<ConvolutionShape> shapes;
  ConvolutionWatcher before = nullptr;
};
Seen& seen() {
  static auto* const seen = new Seen;
  return *seen;
}

void note(const char* operation, const ConvolutionCall& call) noexcept {
  Seen& seen = device::seen();
  if (seen.before != nullptr) seen.before(operation, call);
  try {
    const std::scoped_lock lock(seen.mutex);
    ConvolutionShape shape = shape_of(call);
    if (std::ranges::find(seen.shapes, shape) == seen.shapes.end()) seen.shapes.push_back(std::move(shape));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): without memory the shape stays untried
  }
}

// ------------------------------------------------------------------------------------------------ The program

double milliseconds(const timespec& time) {
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

double wall_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return milliseconds(now);
}

std::string find_program() {
  if (const char* named = std::getenv("MILLRACE_CONVOLUTIONS_CHILD"); named != nullptr && *named != '\0') return named;
  return find_beside("millrace-convolutions", MILLRACE_CONVOLUTIONS_BUILT, MILLRACE_CONVOLUTIONS_INSTALLED);
}

class Program {
 public:
  explicit Program(const ConvolutionJob& job) : failure_(start(job)) {}
  ~Program() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    (void)wait();
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] const std::string& failure() const noexcept { return failure_; }  // why the program does not run; "" = it runs

  // Returns the program's next line. nullopt: the program has ended, or was killed because it used more than `limit_ms` of core
  // time since the last line. If `goes_on` returns false, also returns nullopt, but the program continues.
  [[nodiscard]] std::optional<std::string> next(double limit_ms, const std::function<bool()>& goes_on) {
    const double began = on_core_ms();
    while (goes_on()) {
      const std::size_t end = said_.find('\n');
      if (end != std::string::npos) {
        std::string line = said_.substr(0, end);
        said_.erase(0, end + 1);
        return line;
      }
      pollfd ready{answers_.get(), POLLIN, 0};
      if (::poll(&ready, 1, kLookEveryMs) > 0) {
        std::array<char, 4096> part{};
        const ssize_t got = ::read(answers_.get(), part.data(), part.size());
        if (got > 0) said_.append(part.data(), static_cast<std::size_t>(got));
        if (got == 0 || (got < 0 && errno != EINTR)) return std::nullopt;
      } else if (is_stuck(began, limit_ms)) {
        hung_ = true;
        ::kill(process_, SIGKILL);
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  struct End {
    bool hung = false;
    int signal = 0, status = 0;
  };
  [[nodiscard]] End wait() {
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    return {hung_, WIFSIGNALED(status) ? WTERMSIG(status) : 0, WIFEXITED(status) ? WEXITSTATUS(status) : 0};
  }

 private:
  // Starts the program. Returns the error; "" if it started.
  std::string start(const ConvolutionJob& job) {
    std::string program = find_program();
    if (program.empty()) return "the program millrace-convolutions was not found";
    std::array<int, 2> ends{};
    const std::string text = detail::to_json(job).dump();
    const Descriptor words(::memfd_create("millrace", MFD_CLOEXEC));
    if (words.get() < 0 || ::pwrite(words.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
        ::pipe2(ends.data(), O_CLOEXEC) != 0)
      return std::generic_category().message(errno);
    answers_ = Descriptor(ends[0]);
    const Descriptor theirs(ends[1]);
    SpawnActions actions;
    ::posix_spawn_file_actions_adddup2(actions.files(), words.get(), STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(actions.files(), theirs.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(actions.files(), STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    std::array<char*, 2> arguments = {program.data(), nullptr};
    const int error = ::posix_spawn(&process_, program.c_str(), actions.files(), actions.attributes(), arguments.data(), environ);
    moved_at_ms_ = wall_ms();
    return error == 0 ? "" : std::generic_category().message(error);
  }
  [[nodiscard]] double on_core_ms() const {
    clockid_t clock{};
    timespec time{};
    if (::clock_getcpuclockid(process_, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
    return milliseconds(time);
  }
  [[nodiscard]] bool is_stuck(double began, double limit_ms) {
    const double now = on_core_ms();
    if (now != last_on_core_ms_) moved_at_ms_ = wall_ms();
    last_on_core_ms_ = now;
    return now - began > limit_ms || wall_ms() - moved_at_ms_ > kStillMs;
  }

  pid_t process_ = -1;
  Descriptor answers_;
  std::string said_;
  double last_on_core_ms_ = 0, moved_at_ms_ = 0;
  bool hung_ = false;
  std::string failure_;  // declared last, because start() sets the other members
};

// ------------------------------------------------------------------------------------------------ The verdicts

struct Line {
  std::string_view word;
  std::size_t unit = 0;
  std::string rest;
};
std::optional<Line> line_of(const std::string& text) {
  constexpr std::array<std::string_view, 4> kWords = {"begin", "right", "wrong", "untried"};
  const std::size_t space = text.find(' ');
  const auto word = std::ranges::find(kWords, std::string_view(text).substr(0, space));
  if (word == kWords.end() || space == std::string::npos) return std::nullopt;
  Line line{*word, 0, ""};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + space + 1, end, line.unit);
  if (error != std::errc()) return std::nullopt;
  line.rest.assign(at == end ? at : at + 1, end);
  return line;
}

bool is_crash(int signal) {
  constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  return std::ranges::find(kCrashes, signal) != kCrashes.end();
}

// The units that still have no verdict, and the results of the units that were tried.
class Trial {
 public:
  // `start_ms`: limit of core time for each thread until a unit begins.
  Trial(std::span<const ConvolutionShape> shapes, int threads, double start_ms, const TrialGoesOn& goes_on)
      : threads_(threads), start_ms_(start_ms * threads), goes_on_(goes_on) {
    for (const ConvolutionShape& shape : shapes) {
      for (const bool last : {false, true}) {
        if (last && shape.input.size() < 4) continue;
        for (const Pass pass : {Pass::forward, Pass::input_gradient, Pass::weight_gradient}) left_.push_back({shape, last, pass});
      }
    }
    result_.tried = static_cast<std::int64_t>(shapes.size());
    all_ = left_.size();
  }

  [[nodiscard]] ConvolutionTrial result() {
    while (!left_.empty()) run_once();
    return std::move(result_);
  }

 private:
  // Runs one process, which tries the remaining units until it ends or is killed.
  void run_once() {
    Program program({threads_, left_});
    if (!program.failure().empty()) return give_up(program.failure());
    std::size_t done = 0;  // number of units with a verdict
    bool in_unit = false;
    double limit_ms = start_ms_;
    const auto goes_on = [&] {
      stop_if_signalled();
      return !goes_on_ || goes_on_(all_ - left_.size() + done, all_);
    };
    while (const std::optional<std::string> text = program.next(limit_ms, goes_on)) {
      const std::optional<Line> line = line_of(*text);
      if (!line || line->unit != done) return give_up("millrace-convolutions said " + quoted(text->substr(0, 80)));
      in_unit = line->word == "begin";
      limit_ms = in_unit ? std::atof(line->rest.c_str()) : start_ms_;
      if (in_unit) continue;
      doing_moved();  // shows the watchdog that the trial advances
      if (line->word == "wrong") found(done, line->rest);
      if (line->word == "untried") leave(left_[done].shape, line->rest);
      ++done;
    }
    const auto behind = left_.begin() + static_cast<std::ptrdiff_t>(done);
    if (done < left_.size() && !goes_on()) {
      left_.erase(left_.begin(), behind);
      return give_up("the time for trials was over");
    }
    const Program::End end = program.wait();
    if (done == left_.size()) return left_.clear();
    if (done > 0 && !in_unit && !end.hung && end.signal == 0 &&
        end.status == 0) {  // the program ended because its memory was damaged, so another process tries the remaining units
      left_.erase(left_.begin(), behind);
      return;
    }
    if (!in_unit && end.hung && ++late_ < kMostLate) return leave_out(done, "its fp32 reference took too long");
    if (!in_unit || !(end.hung || is_crash(end.signal)))
      return give_up("millrace-convolutions " + (end.hung ? std::string("did not start") : ending(end.signal, end.status)));
    found(done, end.hung ? "never ended" : "crashed, " + ending(end.signal, 0));
    const Unit last = left_[done];
    left_.erase(left_.begin(), behind + 1);
    std::erase_if(left_, [&](const Unit& unit) { return unit.shape == last.shape && unit.pass == last.pass; });
  }

  void found(std::size_t unit, std::string what) {
    const auto is_known = [&](const FoundFault& fault) {
      // True if this fault was already found in the other layout.
      return fault.shape == left_[unit].shape && fault.pass == left_[unit].pass;
    };
    if (std::ranges::none_of(result_.faults, is_known))
      result_.faults.push_back({left_[unit].shape, left_[unit].pass, std::move(what)});
  }
  void leave(const ConvolutionShape& shape, const std::string& why) {
    if (std::ranges::find(left_out_, shape) != left_out_.end()) return;
    left_out_.push_back(shape);
    --result_.tried;
    result_.untried = why;
  }
  // Drops the shape of a unit that gets no verdict. The earlier units keep their verdicts.
  void leave_out(std::size_t unit, const std::string& why) {
    const ConvolutionShape shape = left_[unit].shape;
    leave(shape, why);
    left_.erase(left_.begin(), left_.begin() + static_cast<std::ptrdiff_t>(unit));
    std::erase_if(left_, [&](const Unit& other) { return other.shape == shape; });
  }
  void give_up(const std::string& why) {
    for (const Unit& unit : left_) leave(unit.shape, why);
    left_.clear();
  }

  int threads_;
  double start_ms_;  // limit of core time until a unit begins, summed over threads, as the system counts it
  TrialGoesOn goes_on_;
  std::size_t all_ = 0;  // number of units at the beginning
  int late_ = 0;         // number of processes that did not reach their next unit
  std::vector<Unit> left_;
  std::vector<ConvolutionShape> left_out_;
  ConvolutionTrial result_;
};

}  // namespace

std::vector<ConvolutionShape> convolutions_of(const std::function<void()>& step) {
  stand_guard();
  Seen& seen = device::seen();
  seen.shapes.clear();
  seen.before = set_convolution_watcher(&note);
  struct PutBack {
    ConvolutionWatcher before;
    ~PutBack() { set_convolution_watcher(before); }
  };
  const PutBack put_back{seen.before};
  step();
  return std::move(seen.shapes);
}

ConvolutionTrial try_convolutions(std::span<const ConvolutionShape> shapes, int threads, double start_ms,
                                  const TrialGoesOn& goes_on) {
  release_cached_memory(c10::Device(c10::kCPU));
  return Trial(shapes, threads, start_ms, goes_on).result();
}

}  // namespace millrace::device
