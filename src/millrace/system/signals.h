// Signals that ask the process to stop. The handler only sets a flag; the loop checks it between micro-steps.
#pragma once

#include <string>

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
// Called by worker threads: lets the kernel deliver the signals above to the loop's thread only.
void block_signals_in_this_thread() noexcept;
// Forgets a pending signal, so that a test can send the next one.
void reset_pending_signal_for_test() noexcept;

}  // namespace millrace
