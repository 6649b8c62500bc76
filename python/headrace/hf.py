"""A headrace loader in the Trainer of transformers, which makes its own DataLoader and skips batches to resume.

    trainer = transformers.Trainer(model, args)
    headrace.hf.attach(trainer, headrace.exact(dataset, batch_size=16, shuffle=True, seed=7, collate_fn=collate))
    trainer.train(resume_from_checkpoint=True)      # continues at the next batch; nothing is read only to be skipped
"""
from __future__ import annotations

import sys
from typing import Any

from headrace.errors import KindError, MomentError, StateError


class _Next:
    """A dataset whose samples are the loader's next batches; the index does not matter."""

    def __init__(self, loader: Any):
        self.loader, self.loop = loader, iter(loader)

    def __len__(self) -> int:
        return len(self.loader.dataset)

    def __getitem__(self, _: int) -> Any:
        for batch in self.loop:
            return batch
        self.loop = iter(self.loader)
        return next(self.loop)


def _first(batches: list) -> Any:
    return batches[0]


def _epoch_of(loader: Any) -> Any:
    """A DataLoader over one epoch's batches. After a resume the Trainer skips some of its keys, but nothing is read for them."""
    import torch
    # Because of this separate generator, it draws nothing from the caller's generator.
    return torch.utils.data.DataLoader(_Next(loader), batch_sampler=[[0]] * len(loader), collate_fn=_first, generator=torch.Generator())


def attach(trainer: Any, loader: Any) -> Any:
    """Lets `trainer` train from `loader`, and saves the loader's state in each of its checkpoints. Returns the trainer.

    Batch size, order and workers are the loader's; the Trainer's arguments for them have no effect on training. Raises `StateError`
    if training resumes from a checkpoint that was saved without the loader.
    """
    transformers = sys.modules.get("transformers")  # a Trainer exists, so transformers has been imported
    if transformers is None or not isinstance(trainer, transformers.Trainer):
        raise KindError(f"{type(trainer).__name__} is no transformers.Trainer", "headrace.hf.attach(trainer, loader)", "give the trainer first, then the loader")
    if not all(hasattr(loader, name) for name in ("state_dict", "load_state_dict", "dataset", "__len__")):
        raise KindError(f"{type(loader).__name__} has no state that could be saved", "headrace.hf.attach(trainer, loader)",
                        "make the loader by headrace.exact(dataset, ...)")

    from transformers.trainer_callback import ExportableState, TrainerCallback

    class HeadraceLoader(TrainerCallback, ExportableState):
        """The name of the class is the name of the state in trainer_state.json."""

        def state(self) -> dict:
            return {"args": {}, "attributes": {"loader_state": loader.state_dict()}}

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 0:
                return
            saved = state.stateful_callbacks.get("HeadraceLoader", {}).get("attributes", {}).get("loader_state")
            if saved is None:
                raise StateError(f"the checkpoint of step {state.global_step} holds no state of the loader", "trainer.train(resume_from_checkpoint=...)",
                                 "resume from a checkpoint that was saved with headrace.hf.attach, or begin anew")
            loader.load_state_dict(saved)

    if any(type(callback).__name__ == "HeadraceLoader" for callback in trainer.callback_handler.callbacks):
        raise MomentError("this trainer has a loader already", "headrace.hf.attach(trainer, loader)", "attach one loader to each trainer")
    trainer.get_train_dataloader = lambda: _epoch_of(loader)
    trainer.add_callback(HeadraceLoader())
    return trainer
