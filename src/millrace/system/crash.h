// The last line of a process that a signal ends.
#pragma once

namespace millrace {

// From here on SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT say on stderr what the process was doing (base/doing.h) and what to
// try; SIGQUIT, SIGXCPU, SIGALRM, SIGUSR2 and others that would end it without a word say their name and what it was doing. Then
// they do what they did before: the exit status and a core dump stay. A signal that somebody else handles already, as a sanitizer
// does, is left alone, as is one that is ignored. A limit on CPU time that would kill at once (ulimit -t) sends SIGXCPU a second
// earlier.
void install_crash_line() noexcept;
// From now on also as a line {"kind": "crash", "text": ...} of this open file, a run's log.jsonl, of kind "signal" for those of
// the second sort; -1 = no more. The descriptor stays the caller's.
void set_crash_log(int descriptor) noexcept;
// Writes there, and nowhere else, that a signal ends the process: `text` and what it was doing. For signal handlers.
void log_last_signal(const char* text) noexcept;
inline constexpr const char* kCrashRemedy =
    "try --precision.dtype=fp32, or ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 (or AVX2) before the command";

}  // namespace millrace
