"""Finds losses that stay alive from step to step together with the graph that made them, for example in a list."""
from __future__ import annotations

import gc
import inspect
import linecache
import weakref
from typing import Any

from headrace._script import borders
from headrace._script.memory import resident

MOST = 64        # the most losses that are followed
ENOUGH = 16      # number of them that must be alive; both numbers are doubled if these losses end after all
EARLIER = 8      # least age of these losses, in steps
LEAST_BYTES = 1000


class Kept:
    def __init__(self) -> None:
        self.followed: list[tuple[int, Any]] = []
        self.began: tuple[int, int] | None = None  # step, resident bytes
        self.found: dict[str, Any] | None = None
        self.most, self.enough = MOST, ENOUGH

    def see(self, loss: Any, step: int, frame: Any) -> None:
        """Notes a loss on which the backward pass is called."""
        if loss.grad_fn is None:
            return
        if self.found is not None:
            if not any(followed() is not None for _, followed in self.followed):  # kept only for a time, as by a deque: look for more of them
                self.found, self.most, self.enough = None, 2 * self.most, 2 * self.enough
                self.followed.clear()
            return
        if self.began is None and step >= EARLIER:
            self.began = (step, resident())
        if len(self.followed) < self.most:
            self.followed.append((step, weakref.ref(loss)))
        alive = [followed() for then, followed in self.followed if then + EARLIER <= step and followed() is not None]
        if len(alive) >= self.enough and 2 * len(alive) >= len(self.followed):
            self.found = {"list": "", **self._place(alive[0], frame)}
        elif len(self.followed) == self.most and not alive:
            self.followed.clear()

    def _place(self, loss: Any, frame: Any) -> dict[str, Any]:
        """The list that holds the loss, by its name in the user's function, and the line that appends to it."""
        holders = [holder for holder in gc.get_referrers(loss) if isinstance(holder, list)]
        while frame is not None:
            if borders.is_users(frame.f_code.co_filename):
                for name, value in _names_in(frame).items():
                    if isinstance(value, list) and any(value is holder for holder in holders):
                        return {"list": name, "line": _appending(frame.f_code.co_filename, name)}
            frame = frame.f_back
        return {}

    def evidence(self, step: int, place: Any) -> dict[str, Any] | None:
        if self.found is None or self.began is None:
            return None
        grown = (resident() - self.began[1]) / max(1, step - self.began[0])
        found = {"growth_bytes_per_step": max(grown, LEAST_BYTES), "list": self.found["list"]}
        line = self.found.get("line")
        if line is not None:
            found.update(where=place(line), line=linecache.getline(*line).strip())
        return found


def _names_in(frame: Any) -> dict[str, Any]:
    names, own = frame.f_globals, frame.f_locals
    if own is names:
        return dict(names)
    names = {**names, **own}
    if type(own) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        own.clear()  # a copy of a function's variables, which its frame would hold until the function returns
    return names


def _appending(file: str, name: str) -> tuple[str, int] | None:
    return next(((file, number) for number, text in enumerate(linecache.getlines(file), 1) if f"{name}.append(" in text), None)
