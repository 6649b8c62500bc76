#include "millrace/system/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "millrace/base/doing.h"
#include "millrace/system/crash.h"

namespace millrace {
namespace {

struct StopSignal {
  int number;
  const char* name;
  const char* first;
  const char* second;
};
constexpr std::array<StopSignal, 4> kCaught = {
    {{SIGTERM, "SIGTERM", "a signal to stop (SIGTERM) before the first step", "a second signal to stop (SIGTERM)"},
     {SIGINT, "SIGINT", "a signal to stop (SIGINT) before the first step", "a second signal to stop (SIGINT)"},
     {SIGHUP, "SIGHUP", "a signal to stop (SIGHUP) before the first step", "a second signal to stop (SIGHUP)"},
     {SIGUSR1, "SIGUSR1", "a signal to stop (SIGUSR1) before the first step", "a second signal to stop (SIGUSR1)"}}};
constexpr const char* kStoppedBy = "stopped by ";
constexpr const char* kBeforeFirstStep =
    " before the first step; the same command starts again, from the newest snapshot if there is one";

std::atomic<int> pending{0};
static_assert(std::atomic<int>::is_always_lock_free, "the handler may only touch lock-free atomics");

std::atomic<int> sender{0};  // id of the process that sent the signal; 0 = the kernel
std::atomic<bool> had_echo{false};
std::array<char, 32> sender_name{};  // written once, by the handler of the first signal

std::atomic<bool> is_before_first_step{false};
std::atomic<unsigned> patience{0};  // seconds that the handler waits for the loop
std::atomic<int> words_go_to{-1};   // descriptor to which stopped_text() is written
std::atomic<bool> on_terminal{false};
thread_local bool obeys = false;  // true: this thread made the BeforeFirstStep object, and so obeys a signal

// Stores the sender's name. It is stored at once, because the sender may be gone when the name is needed.
void keep_name_of(int process) noexcept {
  std::array<char, 40> path = {'/', 'p', 'r', 'o', 'c', '/'};
  std::array<char, 12> digits{};
  std::size_t count = 0, used = 6;
  for (int rest = process; rest > 0 && count < digits.size(); rest /= 10) digits[count++] = static_cast<char>('0' + rest % 10);
  while (count > 0) path[used++] = digits[--count];
  for (const char c : {'/', 'c', 'o', 'm', 'm'}) path[used++] = c;
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t size = ::read(file, sender_name.data(), sender_name.size() - 1);
  ::close(file);
  if (size > 0 && sender_name[static_cast<std::size_t>(size) - 1] == '\n') sender_name[static_cast<std::size_t>(size) - 1] = '\0';
}

[[noreturn]] void leave_at_once(int number) noexcept {
  for (const StopSignal& row : kCaught) {
    if (row.number == number) log_last_signal(row.second);
  }
  ::_exit(exit_code_for(number));
}

void write_words(const char* text) noexcept { (void)!::write(words_go_to.load(), text, std::strlen(text)); }

// Called if the loop did not call stop_if_signalled() in time.
extern "C" void on_alarm(int) {
  const int number = pending.load();
  if (number == 0 || !is_before_first_step.load()) return;
  if (on_terminal.load()) write_words("\n");  // ends the progress line, which may be on the screen
  write_words(kStoppedBy);
  write_words(signal_name(number));
  write_words(kBeforeFirstStep);
  write_words("\n");
  for (const StopSignal& row : kCaught) {
    if (row.number == number) log_last_signal(row.first);
  }
  ::_exit(exit_code_for(number));
}

// Returns true if this signal is the second of a pair: the launcher sent one signal, and the process that signalled both the
// launcher and its ranks sent the other.
bool is_echo(int process) noexcept {
  const int parent = ::getppid();
  return (process == parent) != (sender.load() == parent) && !had_echo.exchange(true);
}

extern "C" void on_signal(int number, siginfo_t* info, void*) {
  const int error = errno;  // errno is restored, because this signal may have interrupted a call that has just set it
  const int process = info != nullptr && info->si_code <= 0 ? info->si_pid : 0;
  int none = 0;
  if (!pending.compare_exchange_strong(none, number)) {
    if (!is_echo(process)) leave_at_once(number);
  } else {
    if (is_before_first_step.load()) ::alarm(patience.load());
    if (process > 0) {
      keep_name_of(process);
      sender.store(process);
    }
  }
  errno = error;
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_sigaction = &on_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  for (const StopSignal& row : kCaught) {
    struct sigaction before {};
    const bool is_ignored = ::sigaction(row.number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
    // A signal that the process already ignores stays ignored: nohup, or a shell's trap '' INT, made the process ignore it.
    if (!is_ignored) ::sigaction(row.number, &action, nullptr);
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;  // a write to a closed pipe then fails with an error, which can be reported
  ::sigaction(SIGPIPE, &ignore, nullptr);
}

int pending_signal() noexcept { return pending.load(std::memory_order_relaxed); }

std::string pending_signal_sender() {
  if (pending_signal() == 0) return "";
  const int process = sender.load();
  if (process == 0) return "the terminal or the kernel";
  const std::string name = sender_name.data();
  return "process " + std::to_string(process) + (name.empty() ? "" : " (" + name + ")");
}

const char* signal_name(int signal) noexcept {
  for (const StopSignal& row : kCaught) {
    if (row.number == signal) return row.name;
  }
  return "signal";
}

std::string stopped_text(int signal) { return std::string(kStoppedBy) + signal_name(signal) + kBeforeFirstStep; }

BeforeFirstStep::BeforeFirstStep(int descriptor, unsigned patience_s) {
  words_go_to.store(descriptor);
  on_terminal.store(descriptor >= 0 && ::isatty(descriptor) == 1);
  patience.store(patience_s);
  struct sigaction action {};
  action.sa_handler = &on_alarm;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGALRM, &action, nullptr);
  obeys = true;
  is_before_first_step.store(true);
  if (pending_signal() != 0) ::alarm(patience_s);
}

BeforeFirstStep::~BeforeFirstStep() {
  first_step_is_made();
  obeys = false;
}

void first_step_is_made() noexcept {
  if (is_before_first_step.exchange(false)) ::alarm(0);
}

void stop_if_signalled() {
  if (!obeys || !is_before_first_step.load()) return;
  doing_moved();  // the loop is alive; a launcher ends ranks whose doing_beat() does not change
  if (pending_signal() != 0) throw Stopped{pending_signal()};
}

void block_signals_in_this_thread() noexcept {
  sigset_t set;
  ::sigemptyset(&set);
  for (const StopSignal& row : kCaught) ::sigaddset(&set, row.number);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void reset_pending_signal_for_test() noexcept {
  pending.store(0);
  sender.store(0);
  had_echo.store(false);
  sender_name.fill('\0');
}

}  // namespace millrace
