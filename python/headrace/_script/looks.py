"""A thread that samples the loop's thread: the user's line, and whether the thread runs Python. It does so twenty times a second, and
after half a minute five times. It also writes the evidence from time to time, so that a script that is killed leaves its
measurements."""
from __future__ import annotations

import _thread
import dis
import itertools
import linecache
import re
import sys
import threading
import time
from typing import Any

from headrace._script import memory, run_delay
from headrace._script.borders import is_users, line_of
from headrace._script.moments import Moments

EVERY = 0.05
# After DENSE looks (half a minute) the pause is FEWER times as long, and each look counts FEWER times. More looks would hardly change
# the shares, and each look takes a core from the loop for a moment.
DENSE, FEWER = 600, 4
MOST_PAUSE = 5.0
PAUSES = 50      # the pause after a look is this many times as long as the look waited for a core
KEPT = 5e-4    # seconds
_TENSOR = "/torch/_tensor.py"
_READS = re.compile(rb"(?<![\w.])float\((?![\"'])|\.(?:item|cpu|tolist|numpy)\(")  # matches neither x.float() nor float("-inf")
_READS_LAST = re.compile(rb"\.(?:item|cpu|tolist|numpy)\([^()]*\)$")


def _at_loop(frame: Any) -> bool:
    """True if a frame has just been stopped at a place where only Python stops: the end of a loop's body, or the beginning of a
    function."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(("JUMP_BACKWARD", "RESUME"))


def _is_reading(frame: Any) -> bool:
    """True if the frame's current call reads a value of a tensor: item(), float(). Before Python 3.11: if the frame's line has such
    a call."""
    file, line = line_of(frame)
    if not hasattr(frame.f_code, "co_positions"):
        return _READS.search(linecache.getline(file, line).encode()) is not None
    first, last, begin, end = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    if first is None or begin is None:
        return False
    call = linecache.getline(file, first).encode()[begin:], linecache.getline(file, last).encode()[:end]
    return _READS.match(call[0]) is not None or _READS_LAST.search(call[1]) is not None


class Looks:
    def __init__(self, watcher: Any):
        self.watcher = watcher
        self.count = 0
        self.weight = 1
        self.kept = False
        self.in_step = 0
        self.lines: dict[tuple[str, int], int] = {}  # the user's line in steps -> number of looks, weighted
        self.held: dict[tuple[str, int], int] = {}   # the same, for looks that found Python running
        self.own: dict[tuple[str, int], int] = {}    # the same, for looks that found the line itself at work, not a function of Python below it
        self.reads: dict[tuple[str, int], int] = {}  # the same, for looks that found it reading a value of a tensor
        self._ending = threading.Event()
        self._running = threading.Lock()
        self._ident = 0

    def start(self) -> None:
        """Starts the thread. It is not a threading.Thread, because a script may wait for all threads that threading.enumerate()
        lists."""
        self._running.acquire()
        self._ident = _thread.start_new_thread(self._run, ())

    def stop(self) -> None:
        self._ending.set()
        if self._ident != threading.get_ident() and self._running.acquire(timeout=2):
            self._running.release()

    def _run(self) -> None:
        try:
            self._look_around()
        finally:
            self._running.release()

    def _look_around(self) -> None:
        writes, memory_due = Moments(), 0.0
        self.delay = run_delay.of_this_thread()
        self.delayed = self.delay.read()
        while self._wait() and self.watcher.on:
            self.watcher.attempt("its lines", self._look)
            if (now := time.monotonic()) >= memory_due:
                self.watcher.attempt("memory", self._see_memory)
                memory_due = now + memory.EVERY
            if writes.left() <= 0:
                self.watcher.attempt("what a kill would leave", self.watcher.write)
                writes.next()

    def _see_memory(self) -> None:
        self.watcher.memory.see(self.watcher.accounts.steps, memory.resident())

    def _wait(self) -> bool:
        """Waits until the next look; False at the end. Afterwards `kept` is true if another thread kept the interpreter's lock when
        this thread wanted it. That thread ran Python, because code that computes in torch releases the lock."""
        began, delayed = time.perf_counter_ns(), self.delay.read()
        # If there are more threads than cores, this thread may lose its core while the loop waits for the lock that this thread
        # holds.
        self.weight = 1 if self.count < DENSE else FEWER
        pause = min(MOST_PAUSE, max(EVERY * self.weight, PAUSES * (delayed - self.delayed) / 1e9))
        self.delayed = delayed
        if self._ending.wait(pause):
            return False
        self.kept = time.perf_counter_ns() - began - (self.delay.read() - delayed) > 1e9 * (pause + KEPT)
        return True

    def _look(self) -> None:
        self.count += 1
        if self.watcher.busy == "data_wait":
            return
        self.in_step += self.weight
        frame = leaf = sys._current_frames().get(self.watcher.thread)
        while frame is not None and not is_users(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return
        line = line_of(frame)
        self.lines[line] = self.lines.get(line, 0) + self.weight
        if self.watcher.busy not in ("", "passing"):
            return
        if self.kept or _at_loop(leaf):
            self.held[line] = self.held.get(line, 0) + self.weight
        is_tensors = leaf.f_back is frame and leaf.f_code.co_filename.endswith(_TENSOR)
        if frame is leaf or is_tensors:
            self.own[line] = self.own.get(line, 0) + self.weight
            if leaf.f_code.co_name == "__format__" if is_tensors else _is_reading(frame):
                self.reads[line] = self.reads.get(line, 0) + self.weight
