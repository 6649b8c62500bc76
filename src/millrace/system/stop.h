// Ends long work that a signal interrupts before a run's first step.
#pragma once

namespace millrace {

// Leaves the work that stop_if_signalled() ends. No std::exception: handlers of errors let it pass. A `catch (...)` must throw it
// on.
struct Stopped {
  int signal = 0;
};

// For long work before a run's first step, such as a fit, an index of files, a text that is encoded: call it in the loop, once
// for each file or for each second of work. Throws Stopped if the run has received SIGTERM, SIGINT, SIGHUP or SIGUSR1; the
// command then writes a line and ends with exit code 128 + the signal's number, and the same command starts again. Destructors
// run, so that temporary files go. Work that never calls it is ended too, five seconds after the signal, but without destructors.
//
// Does nothing after the first step, where the loop obeys between micro-batches and saves a snapshot; in other threads than the
// loop's, such as in a source's read(); and in commands that have no run. Costs a few nanoseconds.
void stop_if_signalled();

}  // namespace millrace
