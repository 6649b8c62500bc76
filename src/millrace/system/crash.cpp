#include "millrace/system/crash.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

#include "millrace/base/doing.h"

namespace millrace {
namespace {

struct Row {
  int number;
  const char* text;
  bool is_fault;  // a fault in the program itself
};
constexpr std::array<Row, 14> kSignals = {{{SIGSEGV, "a segmentation fault (SIGSEGV)", true},
                                           {SIGBUS, "a bus error (SIGBUS)", true},
                                           {SIGILL, "an illegal instruction (SIGILL)", true},
                                           {SIGFPE, "an arithmetic exception (SIGFPE)", true},
                                           {SIGABRT, "an abort (SIGABRT)", true},
                                           {SIGQUIT, "a request to quit (SIGQUIT)", false},
                                           {SIGXCPU, "the limit on its CPU time (SIGXCPU, ulimit -t)", false},
                                           {SIGALRM, "an alarm (SIGALRM)", false},
                                           {SIGUSR2, "a user's signal (SIGUSR2)", false},
                                           {SIGVTALRM, "an alarm (SIGVTALRM)", false},
                                           {SIGPROF, "a profiler's alarm (SIGPROF)", false},
                                           {SIGSYS, "a system call that is forbidden here (SIGSYS)", false},
                                           {SIGTRAP, "a trap (SIGTRAP)", false},
                                           {SIGPWR, "a power failure (SIGPWR)", false}}};

// A stack for the handler, for the case that a thread's own stack has run out.
alignas(16) std::array<char, 32768> handler_stack;

std::atomic<int> crash_log{-1};

void write_text(int descriptor, const char* text, std::size_t size) noexcept {
  while (size > 0) {
    const ssize_t written = ::write(descriptor, text, size);
    if (written <= 0) return;
    text += written;
    size -= static_cast<std::size_t>(written);
  }
}

// A text of fixed size, built only with functions that signal handlers may call. Text that does not fit is cut.
template <std::size_t size>
struct HandlerText {
  std::array<char, size> chars{};
  std::size_t used = 0;
  void add(const char* more, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count && used < size; ++i) chars[used++] = more[i];
  }
  void add(const char* more) noexcept { add(more, std::strlen(more)); }
};
using LastWords = HandlerText<1024>;

// Adds what the process was doing; false if that is not known.
bool add_doing(LastWords& words) noexcept {
  std::array<char, 512> doing{};
  if (describe_doing(doing.data(), doing.size()) == 0) return false;
  words.add(" in ");
  words.add(doing.data());
  return true;
}

void log_words(const char* kind, const LastWords& words) noexcept {
  const int log = crash_log.load();
  if (log < 0) return;
  HandlerText<1200> entry;
  entry.add("{\"kind\":\"");
  entry.add(kind);
  entry.add("\",\"text\":\"");
  for (std::size_t i = 0; i < words.used; ++i) {
    const char c = words.chars[i];
    const char plain = c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? '\'' : c;
    entry.add(&plain, 1);
  }
  entry.add("\"}\n");
  write_text(log, entry.chars.data(), entry.used);
}

// Writes a line with a single call, so that lines of other threads don't interleave.
extern "C" void on_crash(int number, siginfo_t* info, void*) {
  Row row{number, "a signal", false};
  for (const Row& known : kSignals) {
    if (known.number == number) row = known;
  }
  LastWords words;
  words.add(row.text);
  if (add_doing(words) && row.is_fault) {
    words.add("; next: ");
    words.add(kCrashRemedy);
  }
  HandlerText<1100> line;
  line.add(row.is_fault ? "crash: " : "ended by ");
  line.add(words.chars.data(), words.used);
  line.add("\n");
  write_text(STDERR_FILENO, line.chars.data(), line.used);
  log_words(row.is_fault ? "crash" : "signal", words);
  // SA_RESETHAND has restored the default action. A fault of the processor happens again at the same instruction and then ends
  // the process. A signal that another process sent does not happen again, so it is raised here.
  if (!row.is_fault || info == nullptr || info->si_code <= 0) ::raise(number);
}

// ulimit -t sets both limits to the same value, at which the system sends SIGKILL and no report is possible.
void keep_a_second_for_the_last_line() noexcept {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_CPU, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return;
  constexpr rlim_t kShortest = 2;  // seconds
  if (limit.rlim_cur < limit.rlim_max || limit.rlim_max < kShortest) return;
  limit.rlim_cur = limit.rlim_max - 1;
  ::setrlimit(RLIMIT_CPU, &limit);
}

}  // namespace

void set_crash_log(int descriptor) noexcept { crash_log.store(descriptor); }

void log_last_signal(const char* text) noexcept {
  LastWords words;
  words.add(text);
  add_doing(words);
  log_words("signal", words);
}

void install_crash_line() noexcept {
  stack_t stack{};
  stack.ss_sp = handler_stack.data();
  stack.ss_size = handler_stack.size();
  ::sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = &on_crash;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
  ::sigemptyset(&action.sa_mask);
  for (const Row& row : kSignals) {
    struct sigaction before {};
    const bool is_free =
        ::sigaction(row.number, nullptr, &before) == 0 && (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL;
    if (is_free) ::sigaction(row.number, &action, nullptr);
  }
  keep_a_second_for_the_last_line();
}

}  // namespace millrace
