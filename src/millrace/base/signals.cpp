#include "millrace/base/signals.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace millrace {
namespace {

struct Row {
  int number;
  const char* name;
};
constexpr std::array<Row, 4> kCaught = {{{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}}};

std::atomic<int> pending{0};
static_assert(std::atomic<int>::is_always_lock_free, "the handler may only touch lock-free atomics");

extern "C" void on_signal(int number) {
  int none = 0;
  if (!pending.compare_exchange_strong(none, number)) ::_exit(exit_code_for(number));
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = &on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (const Row& row : kCaught) {
    struct sigaction before {};
    const bool is_ignored = ::sigaction(row.number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
    if (!is_ignored) ::sigaction(row.number, &action, nullptr);  // nohup, or a shell's trap '' INT
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;  // a closed pipe is a failed write, with an error we can report
  ::sigaction(SIGPIPE, &ignore, nullptr);
}

int pending_signal() noexcept { return pending.load(std::memory_order_relaxed); }

const char* signal_name(int signal) noexcept {
  for (const Row& row : kCaught) {
    if (row.number == signal) return row.name;
  }
  return "signal";
}

void block_signals_in_this_thread() noexcept {
  sigset_t set;
  ::sigemptyset(&set);
  for (const Row& row : kCaught) ::sigaddset(&set, row.number);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void reset_pending_signal_for_test() noexcept { pending.store(0); }

}  // namespace millrace
