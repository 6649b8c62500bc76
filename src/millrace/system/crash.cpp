#include "millrace/system/crash.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

#include "millrace/base/doing.h"
#include "millrace/system/crash_site.h"
#include "millrace/system/foreign_call.h"
#include "millrace/system/handler_text.h"

namespace millrace {
namespace {

struct CaughtSignal {
  int number;
  const char* text;
  bool is_fault;  // true: the signal means a fault in the program itself
};
constexpr std::array<CaughtSignal, 14> kSignals = {{{SIGSEGV, "a segmentation fault (SIGSEGV)", true},
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

// Bytes of the stack on which the handler runs in the main thread.
constexpr std::size_t kHandlerStack = 65536;
alignas(16) std::array<char, kHandlerStack> handler_stack;

std::atomic<int> crash_log{-1};

void write_text(int descriptor, const char* text, std::size_t size) noexcept {
  while (size > 0) {
    const ssize_t written = ::write(descriptor, text, size);
    if (written <= 0) return;
    text += written;
    size -= static_cast<std::size_t>(written);
  }
}

using LastWords = std::array<char, 4096>;

// Adds `before` and then what the process does, such as "step 12, backward of loss". Returns false if the activity is not known.
bool add_doing(HandlerText& text, std::string_view before) noexcept {
  std::array<char, 512> doing{};
  if (describe_doing(doing.data(), doing.size()) == 0) return false;
  text.add(before).add(doing.data());
  return true;
}

void log_words(const char* kind, std::string_view words) noexcept {
  const int log = crash_log.load();
  if (log < 0) return;
  std::array<char, 6144> room{};
  HandlerText entry(room);
  entry.add("{\"kind\":\"").add(kind).add("\",\"text\":\"");
  for (const char c : words.substr(0, room.size() - 64)) {
    const char plain = c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? '\'' : c;
    entry.add({&plain, 1});
  }
  entry.add("\"}\n");
  write_text(log, entry.view().data(), entry.view().size());
}

// The texts of the report about the thread that crashed first.
struct CrashReport {
  std::array<char, 1024> what_room{}, place_room{}, next_room{};
  HandlerText what{what_room}, place{place_room}, next{next_room};
  bool in_foreign_code = false, in_doing = false, out_of_stack = false;

  void log() const noexcept {
    static LastWords line;
    HandlerText text(line);
    text.add(what.view()).add("; ").add(place.view());
    if (!next.view().empty()) text.add("; next: ").add(next.view());
    log_words("crash", text.view());
  }
};

void add_thread(CrashReport& report) noexcept {
  std::array<char, 17> name{};
  ::prctl(PR_GET_NAME, name.data());
  const bool is_main = ::syscall(SYS_gettid) == ::getpid();
  report.place.add(is_main ? "the main thread" : "thread ").add(is_main ? "" : name.data());
  if (report.in_foreign_code) add_doing(report.place, is_main ? ", in " : "; the run was in ");
}

void add_addresses(const CrashSite& site, HandlerText& text) noexcept {
  constexpr std::size_t kShown = 4;
  if (!site.library.empty() && !site.in_program) text.add(" ").add(site.library);
  for (std::size_t i = 0; i < std::min(site.count, kShown); ++i)
    text.add(" ").add(program_name()).add("+").add_hex(site.calls[i]);
}

void add_next(CrashReport& report, const CrashSite& site, bool has_line) noexcept {
  HandlerText& next = report.next;
  if (report.out_of_stack) {
    next.add("look there for a function that calls itself without end, or put large arrays into a std::vector");
  } else if (report.in_foreign_code) {
    next.add("look there for an index out of range, a null pointer, or a layer that was never made");
    if (!site.in_program) next.add("; else ").add(kCrashRemedy);
  } else if (report.in_doing) {
    next.add(kCrashRemedy);
  } else {
    next.add("if it happens again, report it with the command line and these addresses");
  }
  if (has_line || site.count == 0) return;
  next.add("; in a build with -g1, this command prints the lines: addr2line -Cfipe ").add(program_path());
  for (std::size_t i = 0; i < site.count; ++i) next.add(" ").add_hex(site.calls[i]);
}

// Returns true if the thread crashed because it accessed missing memory near the stack pointer. The address is above the stack
// pointer if a large array of the function caused the overflow, and below it if a call did.
bool is_stack_overflow(const siginfo_t* info, const void* context) noexcept {
  constexpr std::uintptr_t kNear = 1U << 20U;
  const std::uintptr_t stack = stack_pointer(context);
  if (info == nullptr || info->si_signo != SIGSEGV || info->si_code <= 0 || stack == 0) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  return address < stack + kNear && stack < address + kNear;
}

// Reports a crash. Writes what this thread has recorded before it walks over the stack, because the walk ends the process if the
// stack is damaged.
void report_crash(const CaughtSignal& row, const siginfo_t* info, const void* context) noexcept {
  CrashReport report;
  report.out_of_stack = is_stack_overflow(info, context);
  report.what.add(report.out_of_stack ? "a stack overflow (SIGSEGV)" : row.text);
  static LastWords called;
  HandlerText call(called);
  report.in_foreign_code = ForeignCall::describe_here(call);
  if (report.in_foreign_code) report.what.add(" in ").add(call.view());
  if (!report.in_foreign_code) report.in_doing = add_doing(report.what, " in ");
  add_thread(report);
  static std::array<char, 4096> lines;
  HandlerText text(lines);
  text.add("crash: ").add(report.what.view()).add("\n  where    ").add(report.place.view()).add("\n");
  write_text(STDERR_FILENO, text.view().data(), text.view().size());
  report.log();

  const CrashSite site = crash_site(context);
  HandlerText more(lines);
  static LastWords line_room;
  HandlerText line(line_room);
  const bool has_line = add_author_line(site, line.add("at "));
  if (has_line) {
    more.add("           ").add(line.view()).add("\n");
    report.place.add("; ").add(line.view());
  }
  static LastWords address_room;
  HandlerText addresses(address_room);
  add_addresses(site, addresses);
  if (!addresses.view().empty()) {
    more.add("          ").add(addresses.view()).add("\n");
    report.place.add(";").add(addresses.view());
  }
  add_next(report, site, has_line);
  more.add("  next     ").add(report.next.view()).add("\n");
  write_text(STDERR_FILENO, more.view().data(), more.view().size());
  report.log();
}

// Lets one thread report. Other threads that crash meanwhile wait for it.
void report_crash_once(const CaughtSignal& row, const siginfo_t* info, const void* context) noexcept {
  static std::atomic<long> reporter{0};
  const long self = ::syscall(SYS_gettid);
  long nobody = 0;
  if (!reporter.compare_exchange_strong(nobody, self)) {
    if (nobody == self) return;  // this thread crashed again while it reported
    while (true) ::pause();
  }
  constexpr unsigned kMostSeconds = 60;  // seconds that the report may take; addr2line reads all line numbers of the program
  ::signal(SIGALRM, SIG_DFL);
  ::alarm(kMostSeconds);
  report_crash(row, info, context);
  ::alarm(0);
}

extern "C" void on_crash(int number, siginfo_t* info, void* context) {
  CaughtSignal row{number, "a signal", false};
  for (const CaughtSignal& known : kSignals) {
    if (known.number == number) row = known;
  }
  if (row.is_fault) {
    report_crash_once(row, info, context);
  } else {
    LastWords room{};
    HandlerText words(room);
    add_doing(words.add(row.text), " in ");
    std::array<char, 4200> line{};
    HandlerText text(line);
    text.add("ended by ").add(words.view()).add("\n");
    write_text(STDERR_FILENO, text.view().data(), text.view().size());
    log_words("signal", words.view());
  }
  // SA_RESETHAND has restored the default action. A fault of the processor occurs again at the same instruction and takes that
  // action. A signal that a process sent does not occur again, even if it has a fault's number, so it is raised again here.
  if (!row.is_fault || info == nullptr || info->si_code <= 0) ::raise(number);
}

// Lowers the soft limit on CPU time by a second. ulimit -t sets both limits to the same value, at which the system sends SIGKILL
// and no report is possible.
void keep_a_second_for_the_last_line() noexcept {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_CPU, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return;
  constexpr rlim_t kShortest = 2;  // the least limit that is lowered, in seconds
  if (limit.rlim_cur < limit.rlim_max || limit.rlim_max < kShortest) return;
  limit.rlim_cur = limit.rlim_max - 1;
  ::setrlimit(RLIMIT_CPU, &limit);
}

}  // namespace

CrashStack::CrashStack() noexcept {
  stack_t now{};
  if (::sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
  void* memory = ::mmap(nullptr, kHandlerStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = kHandlerStack;
  if (::sigaltstack(&stack, nullptr) == 0) {
    memory_ = memory;
  } else {
    ::munmap(memory, kHandlerStack);
  }
}

CrashStack::~CrashStack() {
  if (memory_ == nullptr) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
  ::munmap(memory_, kHandlerStack);
}

void set_crash_log(int descriptor) noexcept { crash_log.store(descriptor); }

void log_last_signal(const char* text) noexcept {
  LastWords room{};
  HandlerText words(room);
  add_doing(words.add(text), " in ");
  log_words("signal", words.view());
}

void install_crash_line() noexcept {
  prepare_crash_sites();
  stack_t stack{};
  stack.ss_sp = handler_stack.data();
  stack.ss_size = handler_stack.size();
  ::sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = &on_crash;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
  ::sigemptyset(&action.sa_mask);
  for (const CaughtSignal& row : kSignals) {
    struct sigaction before {};
    const bool is_free =
        ::sigaction(row.number, nullptr, &before) == 0 && (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL;
    if (is_free) ::sigaction(row.number, &action, nullptr);
  }
  keep_a_second_for_the_last_line();
}

}  // namespace millrace
