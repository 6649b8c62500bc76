#include "millrace/cli/launch/rank_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/format/log_file.h"
#include "millrace/system/crash.h"
#include "millrace/system/signals.h"
#include "millrace/train/run_folder/run_files.h"

namespace millrace::cli {
namespace {

// Seconds to wait after the first rank has ended, because the rank that caused the failure may end later.
constexpr double kGrace = 0.6;
constexpr double kMercy = 1.5;  // seconds from the first rank's end until all ranks are killed; in this time rank 0 can save
constexpr int kLookMs = 50;
// If more seconds than this pass between two looks at the ranks, the launcher itself was stopped or blocked, for example by
// Ctrl-Z or by a terminal that takes no output.
constexpr double kOwnPause = 2;
// Seconds that the other ranks have to end after one rank has stopped on a signal.
constexpr double kStopGrace = 60;

struct Child {
  Ranks ranks;
  pid_t pid = -1;
  std::unique_ptr<RankOutput> output;
  std::optional<int> status;  // from waitpid; nullopt while the child is running
  bool is_stopped = false;
  std::uint64_t beat = 0;
  double moved = 0;  // time of the rank's last progress, in seconds of the steady clock
  double ended = 0;
};

std::vector<std::string> environment_of(const RankStart& start, const Ranks& ranks, int status_descriptor) {
  const std::vector<std::pair<std::string, std::string>> own = {
      {"RANK", std::to_string(ranks.rank)},
      {"LOCAL_RANK", std::to_string(ranks.local_rank)},
      {"WORLD_SIZE", std::to_string(ranks.world_size)},
      {"LOCAL_WORLD_SIZE", std::to_string(ranks.local_world_size)},
      {"MASTER_ADDR", start.host},
      {"MASTER_PORT", std::to_string(start.port)},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(start.attempt)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(start.most_restarts)},
      {distributed::kStatusVariable, std::to_string(status_descriptor)}};
  std::vector<std::string> all;
  for (char** at = ::environ; *at != nullptr; ++at) {
    const std::string line = *at;
    const std::string_view name = std::string_view(line).substr(0, line.find('='));
    const auto is_name = [&](const auto& pair) { return pair.first == name; };
    if (std::ranges::none_of(own, is_name)) all.push_back(line);
  }
  for (const auto& [name, value] : own) {
    all.push_back(name);
    all.back().append("=").append(value);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// Called in a child process that could not become a rank. Only write() is safe there.
void say_why_not_started(int error) noexcept {
  const char* const name = ::strerrorname_np(error);
  for (const char* part : {"DistributedError  the program of this rank can't be started: ", name == nullptr ? "?" : name,
                           "\n  where    /proc/self/exe\n"
                           "  next     ENOENT: mount /proc; E2BIG: shorten the environment and the command line\n"})
    (void)!::write(STDERR_FILENO, part, std::strlen(part));
}

// Starts a child in a separate process group, so that Ctrl-C reaches it only once, through this process. The kernel ends the
// child when this process ends.
void start_child(Child& child, const RankStart& start, int status_descriptor) {
  std::vector<std::string> words = {"/proc/self/exe"};
  words.insert(words.end(), start.words.begin(), start.words.end());
  std::vector<std::string> environment = environment_of(start, child.ranks, status_descriptor);
  const std::vector<char*> argv = pointers(words), envp = pointers(environment);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const bool bound = !start.cores.empty();
  if (bound) {
    for (const int cpu : start.cores[static_cast<std::size_t>(child.ranks.local_rank)]) CPU_SET(cpu, &cores);
  }
  const pid_t parent = ::getpid();
  child.pid = ::fork();
  if (child.pid < 0)
    throw DistributedError({std::string("a rank could not be started: ") + std::strerror(errno), "fork",
                            "raise the limit on processes (ulimit -u), or start fewer ranks"});
  if (child.pid == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(child.output->child_out(), STDOUT_FILENO);
    ::dup2(child.output->child_err(), STDERR_FILENO);
    if (bound) ::sched_setaffinity(0, sizeof(cores), &cores);
    ::execve("/proc/self/exe", argv.data(), envp.data());
    say_why_not_started(errno);
    ::_exit(127);
  }
  ::setpgid(child.pid, child.pid);
  child.output->close_child_ends();
}

std::string named(const Child& child) { return "rank " + std::to_string(child.ranks.rank); }

std::string place_of(const distributed::StatusPages::Status& status) { return status.doing.empty() ? "" : ", " + status.doing; }

// True if the rank waits for other ranks, also at the meeting before the run. The meeting has a separate limit,
// distributed.join_timeout, whose error names the absent ranks.
bool waits_for_others(const distributed::StatusPages::Status& status) {
  const auto says = [&](const char* words) { return status.doing.find(words) != std::string::npos; };
  return says("the other ranks") || says("the meeting of the ranks");
}

// The signal that ended a run with this exit code; 0 = the code does not stand for a signal.
int stop_signal_of(int status) {
  if (!WIFEXITED(status)) return 0;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1})
    if (WEXITSTATUS(status) == exit_code_for(signal)) return signal;
  return 0;
}

std::filesystem::path log_of(const std::string& run_folder) { return std::filesystem::path(run_folder) / run_files::kLog; }

// Writes the failure into the run's log. Normally rank 0 writes the log, but rank 0 may have ended before it could.
void log_to_run(const RanksEnd& end) {
  std::error_code none;
  if (end.run_folder.empty() || !std::filesystem::is_regular_file(log_of(end.run_folder), none)) return;
  const Json line = {{"kind", "rank"}, {"text", end.failure}};
  format::LogFile(Fs::real(), log_of(end.run_folder), nullptr)
      .write_line(line.dump(-1, ' ', false, Json::error_handler_t::replace));
}

class Watch {
 public:
  Watch(const RankStart& start, distributed::StatusPages& pages) : start_(start), pages_(pages) {
    pages_.clear();
    for (const Ranks& ranks : start.ranks) {
      Child child{.ranks = ranks};
      child.output = std::make_unique<RankOutput>(ranks.rank, start.logs / ("rank-" + std::to_string(ranks.rank) + ".log"),
                                                  start.plain_out && ranks.rank == 0);
      child.moved = steady_seconds();
      children_.push_back(std::move(child));
    }
    try {
      for (Child& child : children_) start_child(child, start_, pages_.descriptor());
    } catch (...) {
      end_all();
      throw;
    }
  }
  ~Watch() {
    end_all();
    if (run_log_ < 0) return;
    set_crash_log(-1);
    ::close(run_log_);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  RanksEnd run(const std::function<std::optional<std::string>()>& elsewhere) {
    for (int round = 0; std::ranges::any_of(children_, [](const Child& child) { return !child.status; }); ++round) {
      wait_for_output();
      reap();
      hand_on_signal();
      find_run_log();
      if (!failed_at_ && round % 4 == 0) {
        if (const auto text = elsewhere()) fail(*text, "");
      }
      look_for_hangs();
      if (first_end_ && !culprit_ && !failed_at_ && steady_seconds() > *first_end_ + kGrace) blame();
      if (failed_at_ && steady_seconds() > *failed_at_ + (kMercy - kGrace)) kill_all();
    }
    for (Child& child : children_) child.output->take();
    if (first_end_ && !failed_at_) blame();
    RanksEnd result = end();
    if (failed_at_) log_to_run(result);
    return result;
  }

 private:
  void wait_for_output() {
    std::vector<pollfd> pipes;
    for (const Child& child : children_) {
      for (const int descriptor : {child.output->out(), child.output->err()})
        if (descriptor >= 0) pipes.push_back({descriptor, POLLIN, 0});
    }
    ::poll(pipes.data(), pipes.size(), kLookMs);
    for (Child& child : children_) child.output->take();
  }

  void reap() {
    for (Child& child : children_) {
      if (child.status) continue;
      int status = 0;
      if (::waitpid(child.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) != child.pid) continue;
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        child.is_stopped = WIFSTOPPED(status);
        continue;
      }
      child.status = status;
      child.ended = steady_seconds();
      ::kill(-child.pid, SIGKILL);  // also ends processes that the rank has started
      if (was_asked(child) || ended_well(child)) continue;
      std::optional<double>& since = was_stopped(child) ? first_stop_ : first_end_;
      if (!since) since = child.ended;
    }
    if (!first_end_ && first_stop_ && steady_seconds() > *first_stop_ + kStopGrace) first_end_ = first_stop_;
  }

  // True if the rank ended because the launcher passed a signal on. A rank that is still starting has no handler for the signal,
  // so the signal kills it.
  bool was_asked(const Child& child) const {
    if (handed_on_ == 0 || !child.status) return false;
    return WIFSIGNALED(*child.status) ? WTERMSIG(*child.status) == handed_on_ : stop_signal_of(*child.status) == handed_on_;
  }

  // True if a signal to this rank alone stopped it. The other ranks then stop after the same step, so this is no failure.
  bool was_stopped(const Child& child) const {
    return child.status && stop_signal_of(*child.status) != 0 && pages_.read(child.ranks.local_rank).is_done;
  }

  // True if the rank finished its work, even if the run missed its targets.
  bool ended_well(const Child& child) const {
    if (!child.status || !WIFEXITED(*child.status)) return false;
    const int code = WEXITSTATUS(*child.status);
    return (code == 0 || code == kTargetsMissed) && pages_.read(child.ranks.local_rank).is_done;
  }

  void hand_on_signal() {
    const int signal = pending_signal();
    if (signal == 0 || signal == handed_on_) return;
    handed_on_ = signal;
    for (const Child& child : children_)
      if (!child.status) ::kill(child.pid, signal);
  }

  // Opens the log of the run, so that a crash of this process is written to the log. The ranks can't write that, because they
  // end too.
  void find_run_log() {
    for (const Child& child : children_) {
      if (run_log_ >= 0) return;
      const std::string folder = pages_.read(child.ranks.local_rank).run_folder;
      if (!folder.empty()) run_log_ = ::open(log_of(folder).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
      if (run_log_ >= 0) set_crash_log(run_log_);
    }
  }

  // Ends the run if a rank is frozen, or if it makes no progress and does not wait for other ranks.
  void look_for_hangs() {
    const double now = steady_seconds();
    const double own_pause = now - looked_ > kOwnPause ? now - looked_ : 0;
    looked_ = now;
    for (Child& child : children_) {
      if (child.status) continue;
      child.moved += own_pause;
      const distributed::StatusPages::Status status = pages_.read(child.ranks.local_rank);
      if (status.beat != child.beat && !child.is_stopped) child.moved = now;
      child.beat = status.beat;
      if (failed_at_ || start_.hang_limit_s <= 0 || now - child.moved < start_.hang_limit_s) continue;
      if (!child.is_stopped && waits_for_others(status)) continue;
      culprit_ = &child;
      fail(named(child) + (child.is_stopped ? " is frozen (SIGSTOP)" : " has not moved") + " for " + fixed(now - child.moved, 0) +
               " s" + place_of(status),
           "");
      kill_all();
    }
  }

  // Picks the rank to blame among those that have ended. From the most to the least likely culprit: killed by a signal, left
  // before the end of training, failed with its own error, lost another rank. Among equally likely ranks, picks the one that
  // ended first.
  void blame() {
    const auto rank_of = [&](const Child& child) {
      if (!child.status) return 9;
      if (was_asked(child)) return 7;
      const int status = *child.status;
      if (WIFSIGNALED(status)) return 0;
      if (ended_well(child)) return 8;
      if (WEXITSTATUS(status) == 0) return 1;
      return child.output->error().starts_with("DistributedError") && child.output->error().find(" lost ") != std::string::npos
                 ? 3
                 : 2;
    };
    const auto worst = std::ranges::min_element(children_, [&](const Child& a, const Child& b) {
      return std::pair(rank_of(a), a.ended) < std::pair(rank_of(b), b.ended);
    });
    if (rank_of(*worst) >= 7) return;
    culprit_ = &*worst;
    const int status = *worst->status;
    std::string what = named(*worst);
    if (WIFSIGNALED(status)) {
      what += std::string(" was killed by ") + (::sigabbrev_np(WTERMSIG(status)) == nullptr ? "signal " : "SIG") +
              (::sigabbrev_np(WTERMSIG(status)) == nullptr ? std::to_string(WTERMSIG(status)) : ::sigabbrev_np(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) == 0) {
      what += " left with exit code 0 before the end of the run";
    } else if (was_stopped(*worst)) {
      what += std::string(" alone was stopped by ") + signal_name(stop_signal_of(status));
    } else {
      what += " failed with exit code " + std::to_string(WEXITSTATUS(status));
    }
    fail(what + place_of(pages_.read(worst->ranks.local_rank)), worst->output->error());
  }

  void fail(const std::string& what, const std::string& cause) {
    if (failed_at_) return;
    failed_at_ = steady_seconds();
    failure_ = what;
    cause_ = cause;
  }

  void kill_all() {
    for (const Child& child : children_)
      if (!child.status) ::kill(-child.pid, SIGKILL);
  }

  void end_all() noexcept {
    for (Child& child : children_) {
      if (child.pid <= 0 || child.status) continue;
      ::kill(-child.pid, SIGKILL);
      int status = 0;
      while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
      }
      child.status = status;
    }
  }

  [[nodiscard]] RanksEnd end() const {
    RanksEnd end{.failure = failure_, .cause = cause_, .log = {}};
    for (const Child& child : children_) {
      if (const distributed::StatusPages::Status status = pages_.read(child.ranks.local_rank); !status.run_folder.empty())
        end.run_folder = status.run_folder;
    }
    const auto code_of = [](int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); };
    if (failed_at_) {
      const int code = culprit_ != nullptr && culprit_->status ? code_of(*culprit_->status) : 1;
      end.exit_code = code == 0 ? 1 : code;
      if (culprit_ != nullptr) end.log = culprit_->output->log();
    } else {
      for (const Child& child : children_) end.exit_code = std::max(end.exit_code, code_of(*child.status));
    }
    return end;
  }

  const RankStart& start_;
  distributed::StatusPages& pages_;
  std::vector<Child> children_;
  int handed_on_ = 0;
  std::optional<double> first_end_, failed_at_;
  std::optional<double> first_stop_;  // when the first rank for which was_stopped() is true ended
  double looked_ = steady_seconds();  // when the ranks were last looked at
  const Child* culprit_ = nullptr;
  std::string failure_, cause_;
  int run_log_ = -1;
};

}  // namespace

RanksEnd run_ranks(const RankStart& start, distributed::StatusPages& pages,
                   const std::function<std::optional<std::string>()>& elsewhere) {
  return Watch(start, pages).run(elsewhere);
}

}  // namespace millrace::cli
