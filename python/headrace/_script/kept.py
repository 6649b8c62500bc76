"""Finds losses that live on from step to step with the graph that made them, such as those of a list."""
from __future__ import annotations

import gc
import linecache
import weakref
from typing import Any

from headrace._script import borders

MOST = 64        # losses that are followed
ENOUGH = 16      # of which so many must be alive
EARLIER = 8      # steps ago, at least
LEAST_BYTES = 1000


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class Kept:
    def __init__(self) -> None:
        self.followed: list[tuple[int, Any]] = []
        self.began: tuple[int, int] | None = None  # step, resident bytes
        self.found: dict[str, Any] | None = None

    def see(self, loss: Any, step: int, frame: Any) -> None:
        """A loss on which the backward pass is called."""
        if self.found is not None or loss.grad_fn is None:
            return
        if self.began is None and step >= EARLIER:
            self.began = (step, _resident())
        if len(self.followed) < MOST:
            self.followed.append((step, weakref.ref(loss)))
        alive = [followed() for then, followed in self.followed if then + EARLIER <= step and followed() is not None]
        if len(alive) >= ENOUGH and 2 * len(alive) >= len(self.followed):
            self.found = {"list": "", **self._place(alive[0], frame)}
        elif len(self.followed) == MOST and not alive:
            self.followed.clear()

    def _place(self, loss: Any, frame: Any) -> dict[str, Any]:
        """The list that holds it, by the name in the user's function, and the line that appends to it."""
        holders = [holder for holder in gc.get_referrers(loss) if isinstance(holder, list)]
        while frame is not None:
            if borders.is_users(frame.f_code.co_filename):
                for name, value in {**frame.f_globals, **frame.f_locals}.items():
                    if isinstance(value, list) and any(value is holder for holder in holders):
                        return {"list": name, "line": _appending(frame.f_code.co_filename, name)}
            frame = frame.f_back
        return {}

    def evidence(self, step: int, place: Any) -> dict[str, Any] | None:
        if self.found is None or self.began is None:
            return None
        grown = (_resident() - self.began[1]) / max(1, step - self.began[0])
        found = {"growth_bytes_per_step": max(grown, LEAST_BYTES), "list": self.found["list"]}
        line = self.found.get("line")
        if line is not None:
            found.update(where=place(line), line=linecache.getline(*line).strip())
        return found


def _appending(file: str, name: str) -> tuple[str, int] | None:
    return next(((file, number) for number, text in enumerate(linecache.getlines(file), 1) if f"{name}.append(" in text), None)
