"""`headrace.watch` as a callback of Lightning.

    trainer = Trainer(callbacks=[headrace.lightning.Watch("runs/unet")])
    trainer.fit(model, loader)       # at the end it says on stderr where the time went, and what to change
"""
from __future__ import annotations

import os
import sys
from typing import Any

from headrace._lightning import base, callback
from headrace._watch import Watch as _Watch

__all__ = ["Watch", "callback"]


class Watch(base()):
    """Watches each `trainer.fit`. `watch` is the watch of the latest fit: its findings, accounts, folder. Of several ranks only the
    first is watched."""

    def __init__(self, run: str | os.PathLike | None = None):
        self._run = run
        self.watch: _Watch | None = None

    def on_fit_start(self, trainer: Any, module: Any) -> None:
        if trainer.global_rank == 0:
            self.watch = _Watch(self._run, module)
            self.watch.__enter__()

    def _end(self, error: BaseException | None) -> None:
        if self.watch is not None and self.watch.is_watching:
            self.watch.__exit__(type(error) if error is not None else None, error, None)
            print(self.watch, file=sys.stderr)

    def on_fit_end(self, trainer: Any, module: Any) -> None:
        self._end(None)

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        self._end(exception)
