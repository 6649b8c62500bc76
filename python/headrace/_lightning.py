"""A callback that makes Lightning resume exactly. If headrace is installed, every Trainer has it (through Lightning's entry point
for callbacks).

Lightning saves the state of a loader with its checkpoints, but loads it only in mid-epoch: after the end of an epoch it begins the
order of the first epoch again. Lightning also counts an epoch wrongly after it was resumed at an epoch's last batch. The callback
corrects the checkpoint's counters of a completed epoch, and loads the states. It does nothing for checkpoints without the state of
a headrace loader.
"""
from __future__ import annotations

import sys
from typing import Any

from headrace.errors import PackageError, StateError


def _stateful(trainer: Any) -> list[Any]:
    """The training loaders whose states Lightning saves, in the order of the states."""
    combined = trainer.fit_loop._combined_loader
    return [] if combined is None else [loader for loader in combined.flattened if hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")]


def _is_ours(state: Any) -> bool:
    return isinstance(state, dict) and "headrace" in state


def _in_next_epoch(state: dict) -> dict:
    """Turns the state at the end of a loader's epoch into the state at the beginning of the next epoch."""
    place = "position" if "position" in state else "next_batch"
    return {**state, "epoch": state["epoch"] + 1, place: 0} if state[place] else state


def _place(loader: Any) -> dict:
    """The part of a loader's state that changes from batch to batch."""
    return {"epoch": loader._epoch, **({"position": loader._position} if hasattr(loader, "_position") else {"next_batch": loader._handed})}


def _set(progress: dict, kind: str, count: int) -> None:
    progress[kind] = {name: count for name in progress[kind]}


def _mend(loop: dict) -> bool:
    """If the epoch of a saved FitLoop is over, or has not begun, rewrites its counters to those of a run between two epochs.
    Returns whether it did."""
    epochs, batches, stepping = loop["epoch_progress"], loop["epoch_loop.batch_progress"], loop["epoch_loop.state_dict"]
    epoch, batch = epochs["current"], batches["current"]
    between = epoch["started"] < epoch["ready"] or epoch["processed"] == epoch["ready"]  # in on_train_epoch_start, or after on_train_epoch_end began
    at_last = batches["is_last_batch"] and batch["processed"] == batch["ready"]
    in_last = at_last and batch["completed"] < batch["processed"] and not between         # in on_train_batch_end
    if between or in_last:
        for kind in ("total", "current"):
            _set(epochs, kind, epochs[kind]["processed"] + in_last)
        _set(batches, "current", 0)
        _set(batches, "total", batches["total"]["processed"])
        batches["is_last_batch"] = False
        stepping["_batches_that_stepped"] = stepping.get("_batches_that_stepped", 0) + in_last
    elif batch["processed"] < batch["ready"]:                                             # inside a step, which is repeated
        for kind in ("total", "current"):
            _set(batches, kind, batches[kind]["processed"])
    if between or at_last or batch["processed"] == 0:
        loop["state_dict"]["combined_loader"] = [_in_next_epoch(state) if _is_ours(state) else state for state in loop["state_dict"]["combined_loader"]]
    return between or in_last


class _Exactness:
    """The hooks; a Callback of either package inherits them."""

    def __init__(self):
        self._saved: list | None = None   # states that are still to be loaded
        self._between = False             # whether these states are between two epochs
        self._behind: list = []           # positions of the loaders after the latest complete step

    def setup(self, trainer: Any, module: Any, stage: str) -> None:
        self._saved, self._between = None, False

    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: dict) -> None:
        loop = checkpoint.get("loops", {}).get("fit_loop", {})
        if any(_is_ours(state) for state in loop.get("state_dict", {}).get("combined_loader", [])):
            self._between = _mend(loop)
            self._saved = loop["state_dict"]["combined_loader"]

    def on_train_start(self, trainer: Any, module: Any) -> None:
        loaders, saved = _stateful(trainer), self._saved
        if saved is not None:
            if len(saved) != len(loaders):
                raise StateError(f"the checkpoint holds the states of {len(saved)} loaders, training has {len(loaders)}", "trainer.fit(ckpt_path=...)",
                                 "give the loaders with which the checkpoint was saved")
            for loader, state in zip(loaders, saved):
                if _is_ours(state):
                    loader.load_state_dict(state)
            if self._between:
                trainer.fit_loop.epoch_loop.restarting = False
        self._saved = None
        self._note(loaders)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self._note(_stateful(trainer))

    def _note(self, loaders: list) -> None:
        # Does not call state_dict(), because its first call reads parts of a Loader's files.
        self._behind = [_place(loader) if type(loader).__module__.startswith("headrace.") else {} for loader in loaders]

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict) -> None:
        """A checkpoint that is saved inside a step, for example by a signal, holds the weights from before the step. So it gets the
        loader's position from before the step too."""
        loop = checkpoint["loops"]["fit_loop"]
        batch, states = loop["epoch_loop.batch_progress"]["current"], loop["state_dict"].get("combined_loader", [])
        if batch["processed"] < batch["ready"] and len(states) == len(self._behind):
            loop["state_dict"]["combined_loader"] = [{**state, **place} for state, place in zip(states, self._behind)]


def base() -> type:
    """The Callback class of the package in use, because a Trainer refuses a callback of the other package. Raises PackageError
    without Lightning."""
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning.callbacks import Callback
        return Callback
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        try:
            from pytorch_lightning.callbacks import Callback
        except ImportError as error:
            raise PackageError(f"Lightning can't be imported: {error}", "headrace.lightning", "pip install lightning") from error
    return Callback


def _made_for(callback: type) -> Any:
    return type("HeadraceLoaders", (_Exactness, callback), {"__module__": __name__, "__doc__": __doc__})()


def of_lightning() -> Any:
    """The function that Lightning calls for each Trainer of `lightning`."""
    from lightning.pytorch.callbacks import Callback
    return _made_for(Callback)


def of_pytorch_lightning() -> Any:
    """The function that Lightning calls for each Trainer of `pytorch_lightning`."""
    from pytorch_lightning.callbacks import Callback
    return _made_for(Callback)


def callback() -> Any:
    """The callback, if headrace is not installed but on PYTHONPATH: `Trainer(callbacks=[headrace.lightning.callback()])`. A second
    callback does no harm."""
    return _made_for(base())
