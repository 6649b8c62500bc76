// The last line of a process that a library crashes.
#pragma once

namespace millrace {

// From here on SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT say on stderr what the process was doing (base/doing.h) and what to
// try; then they do what they did before: the exit status and a core dump stay. A signal that somebody else handles already, as a
// sanitizer does, is left alone.
void install_crash_line() noexcept;
// From now on also as a line {"kind": "crash", "text": ...} of this open file, a run's log.jsonl; -1 = no more. The descriptor
// stays the caller's.
void set_crash_log(int descriptor) noexcept;
inline constexpr const char* kCrashRemedy =
    "try --precision.dtype=fp32, or ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 (or AVX2) before the command";

}  // namespace millrace
