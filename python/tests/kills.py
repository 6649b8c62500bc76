#!/usr/bin/env python3
"""Training that is killed at random batches, again and again, with another worker count each time, sees the batches of a run that was not.

    python3 python/tests/kills.py [--kills 200] [--seed 1] [--loops plain lightning ...]

The loops: plain, process (a process that SIGKILL ends), lightning, fabric, accelerate, hf. The dataset draws random numbers from torch,
NumPy, `random` and `headrace.sample_seed()`, collate_fn too. What the model would get at each step is compared by digest with a run in one
piece without workers; between two parts of a run the generators are left anywhere. A loop whose package is not installed is skipped and
counted. Exits 1 when a batch differs.
"""
import argparse
import atexit
import functools
import gc
import hashlib
import importlib.util
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import headrace

SAMPLES, BATCH, EPOCHS, EVERY = 23, 4, 3, 2  # 6 batches an epoch, of which the last has 3 samples; a save after every second step
STEPS = EPOCHS * -(-SAMPLES // BATCH)


class Killed(BaseException):
    """Not an Exception: no framework may take it for one."""


class Noisy:
    """Samples of random numbers: as augmentation would, each is drawn anew in every epoch."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        import numpy
        import torch
        return torch.cat([torch.tensor([float(index)]), torch.rand(2), torch.from_numpy(numpy.random.rand(2)).float(), torch.tensor([random.random()]),
                          torch.from_numpy(numpy.random.default_rng(headrace.sample_seed()).random(2)).float()])


def collate(samples):
    import torch
    rows = torch.stack(samples)
    return {"x": rows, "mask": torch.rand(len(samples))}


def make_loader(workers):
    return headrace.exact(Noisy(), batch_size=BATCH, shuffle=True, seed=11, num_workers=workers, collate_fn=collate)


def make_native(workers):
    """headrace.Loader over a file, with as many readers."""
    data = headrace.npy({"x": native_file(), "mask": native_file()})
    return headrace.Loader(data.augment(["x"], headrace.random_roll([-1]), headrace.gaussian_noise(0.1)), BATCH, shuffle=True, seed=11, readers=workers)


@functools.cache
def native_file():
    import numpy
    file = Path(tempfile.mkdtemp(prefix="headrace-kills-")) / "rows.npy"
    atexit.register(shutil.rmtree, file.parent, ignore_errors=True)
    numpy.save(file, numpy.random.default_rng(0).random((SAMPLES, 8), dtype=numpy.float32))
    return file


MAKERS = {"exact": make_loader, "Loader": make_native}


def digest_of(batch):
    return hashlib.sha256(batch["x"].numpy().tobytes() + batch["mask"].numpy().tobytes()).hexdigest()


def disturb(chance):
    """Leaves the generators as another process, or another training before this one, might."""
    import numpy
    import torch
    torch.manual_seed(chance.getrandbits(30))
    numpy.random.seed(chance.getrandbits(30))
    random.seed(chance.getrandbits(30))


class Record:
    """Digests by step; at the step where `kill_at` steps have been seen it raises Killed."""

    def __init__(self):
        self.digests, self.wrong, self.kill_at, self.seen = {}, [], None, 0

    def part(self, kill_at):
        self.kill_at, self.seen = kill_at, 0

    def __call__(self, step, batch):
        if self.kill_at is not None and self.seen >= self.kill_at:
            raise Killed
        self.seen += 1
        found = digest_of(batch)
        if self.digests.setdefault(step, found) != found:
            self.wrong.append(step)


def net():
    import torch
    return torch.nn.Linear(8, 1)


def plain(loader, folder, record):
    state_file = folder / "state.json"
    state = json.loads(state_file.read_text()) if state_file.exists() else {"step": 0}
    if "loader" in state:
        loader.load_state_dict(state["loader"])
    step = state["step"]
    for _ in range(loader.epoch, EPOCHS):
        for batch in loader:
            record(step, batch)
            step += 1
            if step % EVERY == 0:
                state_file.write_text(json.dumps({"step": step, "loader": loader.state_dict()}))


def process_child(kind, folder, workers, kill_at):
    """Runs in a process of its own, which ends by SIGKILL."""
    folder, seen = Path(folder), itertools.count()
    log = open(folder / "log.txt", "a")

    def record(step, batch):
        if next(seen) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        print(step, digest_of(batch), file=log, flush=True)

    plain(MAKERS[kind](workers), folder, record)


def process(loader, folder, record):
    done = subprocess.run([sys.executable, __file__, "--child", "exact", str(folder), str(loader.num_workers),
                           str(-1 if record.kill_at is None else record.kill_at)])
    for line in (folder / "log.txt").read_text().splitlines():
        step, found = line.split()
        if record.digests.setdefault(int(step), found) != found:
            record.wrong.append(int(step))
    if done.returncode == -signal.SIGKILL:
        raise Killed
    done.check_returncode()


# How a training with Lightning is set up, and when it saves: one of these for each training, in turn.
LIGHTNING = itertools.cycle([
    {"saves": ["train_batch_end"]},
    {"saves": ["train_epoch_end"]},
    {"saves": ["train_batch_end", "train_epoch_end", "validation_end"], "val_check_interval": 2},
    {"saves": ["train_batch_start", "train_epoch_start"]},
    {"saves": ["train_batch_start", "train_batch_end", "train_epoch_start", "train_epoch_end", "validation_end"], "max_steps": STEPS},
    {"saves": ["train_batch_end", "train_epoch_end"], "accumulate_grad_batches": 4},
])


def lightning(loader, folder, record):
    import logging

    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer
    for name in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    checkpoint, words = folder / "last.ckpt", folder / "how.json"
    if not words.exists():
        words.write_text(json.dumps(next(LIGHTNING)))
    how = json.loads(words.read_text())
    saves, validates = how.pop("saves"), "val_check_interval" in how
    length = {"max_steps": STEPS} if "max_steps" in how else {"max_epochs": EPOCHS}

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

        def training_step(self, batch, index):
            record(int(self.steps), batch)
            self.steps += 1
            return self.net(batch["x"]).sum()

        if validates:
            def validation_step(self, batch, index):
                return self.net(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-6)

    class Save(Callback):
        """Saves where a ModelCheckpoint or a signal may: after every second step, and at each border."""

        def save(self, trainer, model, *_):
            if not trainer.sanity_checking and int(model.steps) % EVERY == 0:
                trainer.save_checkpoint(folder / "new.ckpt")
                (folder / "new.ckpt").rename(checkpoint)

    for hook in saves:
        setattr(Save, f"on_{hook}", Save.save)
    trainer = Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", devices=1,
                      callbacks=[Save(), headrace.lightning.callback()], default_root_dir=folder, **{**how, **length})
    trainer.fit(Model(), loader, torch.utils.data.DataLoader(torch.zeros(4, 8), 2) if validates else None,
                ckpt_path=checkpoint if checkpoint.exists() else None)
    if trainer.current_epoch != EPOCHS:
        raise AssertionError(f"Lightning counted {trainer.current_epoch} epochs of {EPOCHS}")


def fabric(loader, folder, record):
    from lightning.fabric import Fabric
    fabric_ = Fabric(accelerator="cpu", devices=1)
    file, place = folder / "fabric.ckpt", {"step": 0}
    state = {"loader": loader, "place": place}
    if file.exists():
        fabric_.load(file, state)
        place = state["place"]
    for _ in range(loader.epoch, EPOCHS):
        for batch in loader:
            record(place["step"], fabric_.to_device(batch))
            place["step"] += 1
            if place["step"] % EVERY == 0:
                fabric_.save(file, {"loader": loader, "place": dict(place)})


class Place:
    """Where a loop is, as accelerate saves objects."""

    def __init__(self):
        self.step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


def accelerate(loader, folder, record):
    from accelerate import Accelerator
    accelerator, place, checkpoint = Accelerator(cpu=True), Place(), folder / "saved"
    prepared = accelerator.prepare(loader)
    accelerator.register_for_checkpointing(prepared, place)
    if checkpoint.exists():
        accelerator.load_state(str(checkpoint))
    for _ in range(prepared.epoch, EPOCHS):
        for batch in prepared:
            record(place.step, batch)
            place.step += 1
            if place.step % EVERY == 0:
                accelerator.save_state(str(folder / "new"))
                shutil.rmtree(checkpoint, ignore_errors=True)
                (folder / "new").rename(checkpoint)


def hf(loader, folder, record):
    import torch
    import transformers
    transformers.logging.set_verbosity_error()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.step = net(), None

        def forward(self, x, mask):
            record(trainer.state.global_step, {"x": x, "mask": mask})
            return {"loss": self.net(x).sum() * 1e-3}

    arguments = transformers.TrainingArguments(str(folder / "hf"), num_train_epochs=EPOCHS, save_steps=EVERY, save_total_limit=1, report_to=[], use_cpu=True,
                                               disable_tqdm=True, logging_strategy="no", per_device_train_batch_size=BATCH, remove_unused_columns=False)
    trainer = transformers.Trainer(Model(), arguments, train_dataset=loader.dataset)
    headrace.hf.attach(trainer, loader)
    trainer.train(resume_from_checkpoint=any((folder / "hf").glob("checkpoint-*")) or None)


LOOPS = {"plain": (plain, None), "process": (process, None), "lightning": (lightning, "lightning"), "fabric": (fabric, "lightning"),
         "accelerate": (accelerate, "accelerate"), "hf": (hf, "transformers")}


def reference(make=make_loader):
    record = Record()
    with tempfile.TemporaryDirectory() as folder:
        plain(make(0), Path(folder), record)
    return record.digests


def killed_often(loop, kills, chance, expected, workers, make=make_loader):
    """Each part of a run has one of the numbers of `workers`. How many kills there were, and the steps at which a batch differed from `expected`. A training that comes to its end begins anew."""
    count, wrong = 0, []
    gc.freeze()  # what is there by now need not be searched at each collection
    while count < kills:
        record = Record()
        with tempfile.TemporaryDirectory() as folder:
            while True:
                disturb(chance)
                record.part(chance.randrange(1, STEPS) if chance.random() < 0.3 else chance.randrange(1, 6))
                if count >= kills:
                    record.part(None)
                try:
                    loop(make(chance.choice(workers)), Path(folder), record)
                    break
                except Killed:
                    count += 1
                gc.collect()  # a worker process that is forked later must not find the killed part's loader
        wrong += record.wrong + [step for step in range(STEPS) if record.digests.get(step) != expected[step]]
        wrong += [step for step in record.digests if step >= STEPS]
    return count, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="of each loop")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loops", nargs="+", choices=LOOPS, default=list(LOOPS))
    parser.add_argument("--loader", choices=MAKERS, default="exact")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return process_child(*options.child[:2], int(options.child[2]), int(options.child[3]))
    warnings.simplefilter("ignore")
    make = MAKERS[options.loader]
    expected, passed, failed, skipped = reference(make), 0, 0, 0
    for name in options.loops:
        loop, package = LOOPS[name]
        if package and importlib.util.find_spec(package) is None:
            print(f"{name}: skipped, there is no package {package}", flush=True)
            skipped += 1
            continue
        began = time.monotonic()
        count, wrong = killed_often(loop, options.kills, random.Random(options.seed), expected, [0, 0, 0, 1, 2, 8], make)
        passed, failed = passed + (not wrong), failed + bool(wrong)
        print(f"{name}: {count} kills, {'one digest' if not wrong else f'{len(wrong)} batches differ, the first at step {wrong[0]}'}  "
              f"({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
