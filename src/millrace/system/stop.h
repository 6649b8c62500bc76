// Ends long work before a run's first step if a signal asks the run to stop.
#pragma once

namespace millrace {

// The exception of stop_if_signalled(), which ends the work. It does not derive from std::exception, so that handlers of errors
// let it pass. A `catch (...)` must rethrow it.
struct Stopped {
  int signal = 0;
};

// Call this in the loop of long work before a run's first step, such as a fit, an index of files or the encoding of a text: once
// for each file or for each second of work. Throws Stopped if the run has received SIGTERM, SIGINT, SIGHUP or SIGUSR1. The
// command then writes a line and ends with exit code 128 + the signal's number; the same command starts again. Destructors run,
// so temporary files are removed. Work that never calls this function is ended five seconds after the signal, without
// destructors.
//
// Does nothing in three cases: after the first step, where the loop obeys between micro-batches and saves a snapshot; in threads
// other than the loop's, such as in a source's read(); and in commands that have no run. Costs a few nanoseconds.
void stop_if_signalled();

}  // namespace millrace
