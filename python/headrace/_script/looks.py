"""A thread that looks at the loop's thread twenty times a second: at which line of the user's it is, and whether it runs Python. It also
writes the evidence now and then, so that a script that is killed leaves what was known."""
from __future__ import annotations

import dis
import sys
import threading
import time
from typing import Any

from headrace._script import run_delay
from headrace._script.moments import Moments

EVERY = 0.05
MOST_PAUSE = 5.0
PAUSES = 50      # times as long as a look had no core is the pause behind it
KEPT = 5e-4    # seconds
_TENSOR = "/torch/_tensor.py"


def _at_loop(frame: Any) -> bool:
    """Whether a frame has just been stopped where only Python stops: at the end of a loop's body, or at a function's beginning."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(("JUMP_BACKWARD", "RESUME"))


class Looks:
    def __init__(self, watcher: Any):
        self.watcher = watcher
        self.count = 0
        self.kept = False
        self.in_step = 0
        self.lines: dict[tuple[str, int], int] = {}  # the user's line in steps -> looks
        self.held: dict[tuple[str, int], int] = {}   # the same, where it ran Python
        self.own: dict[tuple[str, int], int] = {}    # the same, where the line itself was at work, not a function of Python below it
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-looks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread is not threading.current_thread():
            self._thread.join(2)

    def _run(self) -> None:
        writes = Moments()
        self.delay = run_delay.of_this_thread()
        self.delayed = self.delay.read()
        while self._wait() and self.watcher.on:
            try:
                self._look()
                if writes.left() <= 0:
                    self.watcher.write()
                    writes.next()
            except Exception as error:
                self.watcher.fail(error)

    def _wait(self) -> bool:
        """Until the next look; False at the end. `kept` is then whether another thread kept the interpreter's lock when this one wanted it: it
        ran Python. What computes in torch has let go of it."""
        began, delayed = time.perf_counter_ns(), self.delay.read()
        # Where there are more threads than cores, this one may lose its core while the loop waits for the lock that it has.
        pause = min(MOST_PAUSE, max(EVERY, PAUSES * (delayed - self.delayed) / 1e9))
        self.delayed = delayed
        if self._ending.wait(pause):
            return False
        self.kept = time.perf_counter_ns() - began - (self.delay.read() - delayed) > 1e9 * (pause + KEPT)
        return True

    def _look(self) -> None:
        from headrace._script.borders import is_users
        self.count += 1
        if self.watcher.busy == "data_wait":
            return
        self.in_step += 1
        frame = leaf = sys._current_frames().get(self.watcher.thread)
        while frame is not None and not is_users(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return
        line = (frame.f_code.co_filename, frame.f_lineno)
        self.lines[line] = self.lines.get(line, 0) + 1
        if self.watcher.busy not in ("", "passing"):
            return
        if self.kept or _at_loop(leaf):
            self.held[line] = self.held.get(line, 0) + 1
        if frame is leaf or (leaf.f_back is frame and leaf.f_code.co_filename.endswith(_TENSOR)):
            self.own[line] = self.own.get(line, 0) + 1
