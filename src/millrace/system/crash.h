// The last line of a process that a signal ends.
#pragma once

namespace millrace {

// From here on SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT report on stderr what the crashing thread was in
// (system/foreign_call.h, else base/doing.h), which thread it is, the line of the author's source if the build has it, addresses
// in the program, and what to try; SIGQUIT, SIGXCPU, SIGALRM, SIGUSR2 and others that would end it silently report their name and
// what it was doing. Then they have their usual effect: the exit status and a core dump stay. A signal that is ignored or already
// has a handler, such as a sanitizer's, is left alone. A limit on CPU time that would kill at once (ulimit -t) sends SIGXCPU a
// second earlier.
void install_crash_line() noexcept;
// A stack of this thread for the report, needed where the thread's own stack has run out. install_crash_line() gives the calling
// thread one; every other thread that calls an author's code makes this object and lets it live as long as those calls. If the
// thread has such a stack already, such as a sanitizer's, or if memory is short, it does nothing.
class CrashStack {
 public:
  CrashStack() noexcept;
  ~CrashStack();
  CrashStack(const CrashStack&) = delete;
  CrashStack& operator=(const CrashStack&) = delete;

 private:
  void* memory_ = nullptr;  // null: this object does nothing
};
// From now on also writes the report as a line {"kind": "crash", "text": ...} to this open file, a run's log.jsonl or, before it
// has one, its lock; of two such lines the second says more. The kind is "signal" for the second group of signals. -1 = stop. The
// descriptor stays the caller's.
void set_crash_log(int descriptor) noexcept;
// Writes to that file, and not to stderr, that a signal ends the process: `text`, and what the process was doing. For signal
// handlers.
void log_last_signal(const char* text) noexcept;
inline constexpr const char* kCrashRemedy =
    "try --precision.dtype=fp32, or ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 (or AVX2) before the command";

}  // namespace millrace
