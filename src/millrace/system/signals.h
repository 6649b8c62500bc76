// Signals that ask the process to stop. The handler only sets a flag, which the loop checks between micro-steps. Before the
// first step a stop loses nothing, so the process does not wait for the loop.
#pragma once

#include <string>

#include "millrace/system/stop.h"

namespace millrace {

// Catches SIGTERM, SIGINT, SIGHUP and SIGUSR1 and ignores SIGPIPE, for the whole process. A signal that was ignored before,
// such as SIGHUP under nohup, stays ignored. The first signal is kept for pending_signal(). A second signal ends the process at
// once with exit status 128 + n and is reported in the run's log (log_last_signal()); files already on disk are safe. A signal
// from the parent process and the same request from another process count as one signal. A batch system sends both, because it
// stops the launcher and the ranks, and the launcher forwards its signal to the ranks.
void install_signal_handlers();
// Returns the first signal received; 0 if there is none. Safe from any thread.
[[nodiscard]] int pending_signal() noexcept;
// Returns the sender of the pending signal: "process 123 (timeout)", "the terminal or the kernel"; "" if there is no signal. Not
// for signal handlers.
[[nodiscard]] std::string pending_signal_sender();
[[nodiscard]] constexpr int exit_code_for(int signal) noexcept { return 128 + signal; }
[[nodiscard]] const char* signal_name(int signal) noexcept;  // such as "SIGTERM"; "signal" if it is not caught

// Returns the text for the console: "stopped by SIGTERM before the first step; …".
[[nodiscard]] std::string stopped_text(int signal);

// The time before the first step. While this object exists, and until first_step_is_made(), stop_if_signalled() obeys the first
// signal in the thread that made the object. If that thread does not call it within `patience_s`, the process writes
// stopped_text() to `descriptor` (-1 = not at all) and a line to the run's log, and ends at once with the signal's
// exit_code_for(). So files must always be in a state that a killed process may leave. Only one object may exist at a time. It
// uses SIGALRM.
class BeforeFirstStep {
 public:
  explicit BeforeFirstStep(int descriptor, unsigned patience_s = 3);
  ~BeforeFirstStep();
  BeforeFirstStep(const BeforeFirstStep&) = delete;
  BeforeFirstStep& operator=(const BeforeFirstStep&) = delete;
};
void first_step_is_made() noexcept;

// For worker threads. After this call the kernel delivers the signals of install_signal_handlers() only to the loop's thread.
void block_signals_in_this_thread() noexcept;
// Forgets a pending signal, so that a test can send the next one.
void reset_pending_signal_for_test() noexcept;

}  // namespace millrace
