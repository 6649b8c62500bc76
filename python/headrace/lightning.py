"""`headrace.watch` as a callback of Lightning.

    trainer = Trainer(callbacks=[headrace.lightning.Watch("runs/unet")])
    trainer.fit(model, loader)       # at the end it says on stderr where the time went, and what to change
"""
from __future__ import annotations

import os
import sys
from typing import Any

from headrace._watch import Watch as _Watch
from headrace.errors import PackageError

# Who has a Trainer has imported its package; a callback of the other one is refused by it.
if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError as _error:
            raise PackageError(f"Lightning can't be imported: {_error}", "headrace.lightning", "pip install lightning") from _error


class Watch(Callback):
    """Watches each `trainer.fit`. `watch` is that of the latest: its findings, accounts, folder. Of several ranks the first is watched."""

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
