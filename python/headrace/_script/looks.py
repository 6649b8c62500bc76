"""A thread that looks at the loop's thread ten times a second: at which line of the user's it is. It also writes the evidence now and
then, so that a script that is killed leaves what was known."""
from __future__ import annotations

import sys
import threading
import time
from typing import Any

EVERY = 0.1
WRITE_EVERY = 10.0
_TENSOR = "/torch/_tensor.py"


class Looks:
    def __init__(self, watcher: Any):
        self.watcher = watcher
        self.count = 0
        self.in_step = 0
        self.lines: dict[tuple[str, int], int] = {}  # the user's line in steps -> looks
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
        written = time.monotonic()
        while not self._ending.wait(EVERY) and self.watcher.on:
            try:
                self._look()
                if time.monotonic() - written >= WRITE_EVERY:
                    self.watcher.write()
                    written = time.monotonic()
            except Exception as error:
                self.watcher.fail(error)

    def _look(self) -> None:
        from headrace._script.borders import is_users
        self.count += 1
        if self.watcher.busy == "data_wait":
            return
        frame = leaf = sys._current_frames().get(self.watcher.thread)
        self.in_step += 1
        while frame is not None and not is_users(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return
        line = (frame.f_code.co_filename, frame.f_lineno)
        self.lines[line] = self.lines.get(line, 0) + 1
        if self.watcher.busy == "" and (frame is leaf or (leaf.f_back is frame and leaf.f_code.co_filename.endswith(_TENSOR))):
            self.own[line] = self.own.get(line, 0) + 1
