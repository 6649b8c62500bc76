// Signals that ask the process to stop. The handler only sets a flag; the loop checks it between micro-steps. Before the first
// step, where a stop loses nothing, the process does not wait for the loop.
#pragma once

#include <string>

#include "millrace/system/stop.h"

namespace millrace {

// Catches SIGTERM, SIGINT, SIGHUP and SIGUSR1 and ignores SIGPIPE, for the whole process. A signal that was ignored before, as
// SIGHUP under nohup, stays ignored. The first signal is kept for pending_signal(). A second signal ends the process at once with
// exit status 128 + n and is reported in the run's log (log_last_signal()); files already on disk are safe. A signal from the
// parent process and the same request from another process count as one signal: a batch system stops both the launcher and the
// ranks, and the launcher forwards its signal to the ranks.
void install_signal_handlers();
// The first signal received; 0 if there is none. Safe from any thread.
[[nodiscard]] int pending_signal() noexcept;
// The sender of that signal: "process 123 (timeout)", "the terminal or the kernel"; "" if there is no signal. Not for signal
// handlers.
[[nodiscard]] std::string pending_signal_sender();
[[nodiscard]] constexpr int exit_code_for(int signal) noexcept { return 128 + signal; }
[[nodiscard]] const char* signal_name(int signal) noexcept;  // "SIGTERM"; "signal" for signals that are not caught

// "stopped by SIGTERM before the first step; …": for the console.
[[nodiscard]] std::string stopped_text(int signal);

// The time before the first step. Until first_step_is_made() or its destruction, stop_if_signalled() obeys the first signal in
// the thread that made the object; where the thread does not get there within `patience_s`, the process ends at once:
// stopped_text() goes to `descriptor` (-1 = nowhere), a line to the run's log, and the exit code is exit_code_for() the signal.
// Files must be such that a killed process may leave them. One at a time; uses SIGALRM.
class BeforeFirstStep {
 public:
  explicit BeforeFirstStep(int descriptor, unsigned patience_s = 3);
  ~BeforeFirstStep();
  BeforeFirstStep(const BeforeFirstStep&) = delete;
  BeforeFirstStep& operator=(const BeforeFirstStep&) = delete;
};
void first_step_is_made() noexcept;

// For worker threads: lets the kernel deliver the signals above to the loop's thread only.
void block_signals_in_this_thread() noexcept;
// Forgets a pending signal, so that a test can send the next one.
void reset_pending_signal_for_test() noexcept;

}  // namespace millrace
