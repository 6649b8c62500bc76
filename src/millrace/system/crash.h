// Prints the last line of a process that a signal ends.
#pragma once

namespace millrace {

// After this call SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT print a report on stderr. It names the code that crashed
// (system/foreign_call.h, else base/doing.h), the thread, the line of the author's source if the build has it, addresses in the
// program, and what to try. SIGQUIT, SIGXCPU, SIGALRM, SIGUSR2 and other signals that would end the process silently report
// their name and what the process was doing. Each signal then has its usual effect, so the exit status and a core dump do not
// change. A signal that is ignored or already has a handler, such as a sanitizer's, is left alone. If a limit on CPU time would
// kill at once (ulimit -t), SIGXCPU is sent a second earlier.
void install_crash_line() noexcept;
// A separate stack on which this thread's crash is reported, because the thread's own stack may have overflowed.
// install_crash_line() makes it for the calling thread. Every other thread that calls an author's code makes this object, which
// must live as long as those calls. It does nothing if the thread already has such a stack, such as a sanitizer's, or if memory
// is short.
class CrashStack {
 public:
  CrashStack() noexcept;
  ~CrashStack();
  CrashStack(const CrashStack&) = delete;
  CrashStack& operator=(const CrashStack&) = delete;

 private:
  void* memory_ = nullptr;  // null: this object does nothing
};
// After this call the report is also written as a line {"kind": "crash", "text": ...} to this open file: a run's log.jsonl or,
// before the run has one, its lock. If there are two such lines, the second says more. For signals that are not crashes the kind
// is "signal". -1 = no file. The caller still owns the descriptor.
void set_crash_log(int descriptor) noexcept;
// Writes a line to the file of set_crash_log(), not to stderr. The line says that a signal ends the process, with `text` and
// what the process was doing. For signal handlers.
void log_last_signal(const char* text) noexcept;
inline constexpr const char* kCrashRemedy =
    "try --precision.dtype=fp32, or ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 (or AVX2) before the command";

}  // namespace millrace
