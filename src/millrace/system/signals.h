// Requests to stop that come as signals. The handler only sets a flag; the loop asks for it between micro-steps.
#pragma once

#include <string>

namespace millrace {

// Catches SIGTERM, SIGINT, SIGHUP and SIGUSR1 and ignores SIGPIPE, for the whole process. One that was ignored before, as SIGHUP
// under nohup, stays ignored. The first signal is kept for pending_signal(); a second one leaves at once with 128 + n, which
// loses nothing that is already on disk, and says so in the run's log (log_last_signal()). Once, a signal from the parent process
// beside one from another is the same wish: a batch system stops launcher and ranks, and the launcher hands its signal on.
void install_signal_handlers();
// The first signal that came, 0 while there is none. Safe from any thread.
[[nodiscard]] int pending_signal() noexcept;
// Who sent it: "process 123 (timeout)", "the terminal or the kernel"; "" while there is none. Not for signal handlers.
[[nodiscard]] std::string pending_signal_sender();
[[nodiscard]] constexpr int exit_code_for(int signal) noexcept { return 128 + signal; }
[[nodiscard]] const char* signal_name(int signal) noexcept;  // "SIGTERM"; "signal" for one we don't catch
// For worker threads: lets the kernel deliver the signals above to the loop's thread only.
void block_signals_in_this_thread() noexcept;
// Forgets a pending signal, so that a test can send the next one.
void reset_pending_signal_for_test() noexcept;

}  // namespace millrace
