#include "millrace/base/crash.h"

#include <signal.h>
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
};
constexpr std::array<Row, 5> kCrashes = {{{SIGSEGV, "a segmentation fault (SIGSEGV)"},
                                          {SIGBUS, "a bus error (SIGBUS)"},
                                          {SIGILL, "an illegal instruction (SIGILL)"},
                                          {SIGFPE, "an arithmetic exception (SIGFPE)"},
                                          {SIGABRT, "an abort (SIGABRT)"}}};

// Room for the handler where a thread's own stack is what ran out.
alignas(16) std::array<char, 32768> handler_stack;

std::atomic<int> crash_log{-1};

void say(int descriptor, const char* text, std::size_t size) noexcept {
  while (size > 0) {
    const ssize_t written = ::write(descriptor, text, size);
    if (written <= 0) return;
    text += written;
    size -= static_cast<std::size_t>(written);
  }
}

// One write, so that other threads' lines don't come between: built here, from what handlers may call.
extern "C" void on_crash(int number, siginfo_t* info, void*) {
  std::array<char, 1024> line{};
  std::size_t used = 0;
  const auto add = [&](const char* text) {
    for (; *text != '\0' && used + 1 < line.size(); ++text) line[used++] = *text;
  };
  add("crash: ");
  for (const Row& row : kCrashes) {
    if (row.number == number) add(row.text);
  }
  std::array<char, 512> doing{};
  const bool is_known = describe_doing(doing.data(), doing.size()) > 0;
  if (is_known) {
    add(" in ");
    add(doing.data());
    add("; next: ");
    add(kCrashRemedy);
  }
  add("\n");
  say(STDERR_FILENO, line.data(), used);
  if (const int log = crash_log.load(); log >= 0) {
    constexpr std::size_t kPrefix = 7;  // "crash: "
    std::array<char, 1200> entry{};
    std::size_t size = 0;
    const auto put = [&](const char* text, std::size_t count) {
      for (std::size_t i = 0; i < count && size + 4 < entry.size(); ++i) entry[size++] = text[i];
    };
    put("{\"kind\":\"crash\",\"text\":\"", 24);
    for (std::size_t i = kPrefix; i + 1 < used; ++i) {
      const char c = line[i];
      put(c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? "'" : &c, 1);
    }
    put("\"}\n", 3);
    say(log, entry.data(), size);
  }
  // SA_RESETHAND: what comes now is the default action, at the faulting instruction where the processor found it.
  if (info == nullptr || info->si_code <= 0) ::raise(number);
}

}  // namespace

void set_crash_log(int descriptor) noexcept { crash_log.store(descriptor); }

void install_crash_line() noexcept {
  stack_t stack{};
  stack.ss_sp = handler_stack.data();
  stack.ss_size = handler_stack.size();
  ::sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = &on_crash;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
  ::sigemptyset(&action.sa_mask);
  for (const Row& row : kCrashes) {
    struct sigaction before {};
    const bool is_free =
        ::sigaction(row.number, nullptr, &before) == 0 && (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL;
    if (is_free) ::sigaction(row.number, &action, nullptr);
  }
}

}  // namespace millrace
