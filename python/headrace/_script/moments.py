"""Decides when a running script's measurements are written: soon at first, because it may be killed at any moment, then seldom."""
from __future__ import annotations

import time

FIRST, LAST = 1.0, 10.0  # seconds


class Moments:
    """1, 2, 4 and 8 seconds apart, then 10."""

    def __init__(self) -> None:
        self.pause = FIRST
        self.due = time.monotonic() + self.pause

    def left(self) -> float:
        """Seconds to the next moment; 0 or less if it is due."""
        return self.due - time.monotonic()

    def next(self) -> None:
        self.pause = min(LAST, 2 * self.pause)
        self.due = time.monotonic() + self.pause
