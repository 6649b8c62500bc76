// The last line of a process that a signal ends.
#pragma once

namespace millrace {

// Installs handlers that print a last line on stderr when a signal ends the process. For SIGSEGV, SIGBUS, SIGILL, SIGFPE and
// SIGABRT the line says what the process was doing (base/doing.h) and what to try. For SIGQUIT, SIGXCPU, SIGALRM, SIGUSR2 and
// other signals that would end it silently, the line has the signal's name and what the process was doing. Then the signal has
// its usual effect: the exit status and a core dump stay. A signal that is ignored or already has a handler, such as a
// sanitizer's, is left alone. A limit on CPU time that would kill at once (ulimit -t) sends SIGXCPU a second earlier.
void install_crash_line() noexcept;
// From now on the last line is also written as {"kind": "crash", "text": ...} to this open file, a run's log.jsonl. The kind is
// "signal" for the second group of signals. -1 = stop. The caller keeps and closes the descriptor.
void set_crash_log(int descriptor) noexcept;
// Writes to that file, and not to stderr, that a signal ends the process: `text`, and what the process was doing. For signal
// handlers.
void log_last_signal(const char* text) noexcept;
inline constexpr const char* kCrashRemedy =
    "try --precision.dtype=fp32, or ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 (or AVX2) before the command";

}  // namespace millrace
