"""DataLoaders as the watcher sees them: their parameters, how long the loop waited for them, and the cost of reading in the
workers.

Workers are processes. Each worker counts in a slot of a file that all processes of the script map. The process that started the
workers reads the slots.
"""
from __future__ import annotations

import mmap
import operator
import os
import struct
import time
from pathlib import Path
from typing import Any

from headrace._script import run_delay

_now = time.perf_counter_ns
SLOTS = 2048
# The process id, then Reading.COUNTED.
_SLOT = struct.Struct("=qqqddqqqddqqd")
_SIZE = 128
ONE_BY_ONE = 100e-6  # seconds; samples that take longer on average are timed one by one
MOST_TIMES = 4096
SLOW = 4.0           # as a multiple of the mean: a sample that takes longer is slow


class Page:
    """Slots for worker processes, by process number."""

    def __init__(self, path: Path):
        with open(path, "a+b") as file:
            if os.fstat(file.fileno()).st_size < SLOTS * _SIZE:
                os.ftruncate(file.fileno(), SLOTS * _SIZE)
            self.map = mmap.mmap(file.fileno(), SLOTS * _SIZE)

    def write(self, process: int, reading: "Reading") -> None:
        _SLOT.pack_into(self.map, process % SLOTS * _SIZE, process, *reading.values())

    def read(self, process: int) -> "Reading | None":
        found, *values = _SLOT.unpack_from(self.map, process % SLOTS * _SIZE)
        return Reading(*values) if found == process else None


class Reading:
    """The cost of reading batches: sums over `batches`."""

    # "timed": number of samples that were timed one by one; "slow": number of slow ones among them; "slowest": an index.
    __slots__ = ("batches", "samples", "wall", "cpu", "torch_threads", "threads", "slowest", "slowest_seconds", "timed_seconds", "timed", "slow",
                 "slow_seconds", "left")
    COUNTED = __slots__[:-1]

    def __init__(self, *values: Any):
        self.left = 1  # batches until the next one is counted
        for name, value in zip(self.COUNTED, values or (0, 0, 0.0, 0.0, 0, 0, -1, 0.0, 0.0, 0, 0, 0.0)):
            setattr(self, name, value)

    def values(self) -> tuple:
        return tuple(getattr(self, name) for name in self.COUNTED)

    def count(self, samples: int, wall_ns: int, cpu_ns: int) -> None:
        """Counts a batch that was timed, for all `left` batches that it represents."""
        self.batches += self.left
        self.samples += self.left * samples
        self.wall += self.left * wall_ns / 1e9
        self.cpu += self.left * cpu_ns / 1e9

    def add(self, other: "Reading") -> None:
        for name in ("batches", "samples", "wall", "cpu", "timed_seconds", "timed", "slow", "slow_seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.torch_threads, self.threads = max(self.torch_threads, other.torch_threads), max(self.threads, other.threads)
        if other.slowest_seconds > self.slowest_seconds:
            self.slowest, self.slowest_seconds = other.slowest, other.slowest_seconds

    def scale(self, factor: float) -> None:
        self.batches, self.samples = round(self.batches * factor), round(self.samples * factor)
        self.wall, self.cpu = self.wall * factor, self.cpu * factor

    def is_slow_enough(self) -> bool:
        return self.samples > 0 and self.wall > ONE_BY_ONE * self.samples

    def time_one(self, index: Any, seconds: float) -> None:
        if self.timed >= 16 and seconds > SLOW * self.timed_seconds / self.timed:
            self.slow += 1
            self.slow_seconds += seconds
        self.timed += 1
        self.timed_seconds += seconds
        if seconds > self.slowest_seconds:
            try:
                self.slowest = operator.index(index)  # samplers may return numbers of NumPy and torch
            except TypeError:
                self.slowest = -1
            self.slowest_seconds = seconds


class Timed:
    """A dataset whose samples are timed, for one batch."""

    __slots__ = ("dataset", "reading", "delay")

    def __init__(self, dataset: Any, reading: Reading):
        self.dataset, self.reading, self.delay = dataset, reading, run_delay.of_this_thread()

    def __getitem__(self, index: Any) -> Any:
        began, delayed = _now(), self.delay.read()
        sample = self.dataset[index]
        # Time in which other programs had the cores does not make a sample slow.
        self.reading.time_one(index, (_now() - began - (self.delay.read() - delayed)) / 1e9)
        return sample


def gives_samples(dataset: Any) -> bool:
    """True if samples are requested one by one, so that they can be timed. A Subset forwards the request to its dataset."""
    if type(dataset).__name__ == "Subset" and type(dataset).__module__.startswith("torch.utils.data"):
        return gives_samples(dataset.dataset)
    return not hasattr(dataset, "__getitems__")


class Loader:
    """A DataLoader that the script made, and its measurements. Times are nanoseconds."""

    def __init__(self, facts: dict[str, Any], watcher: Any = None):
        self.facts, self.watcher = facts, watcher
        self.line: tuple[str, int] | None = None
        self.iterable = False
        self.made = 1           # loaders that this one represents
        self.trained = False
        self.taken = 0          # batches since the last backward pass
        self.wait_ns = self.between_ns = 0  # ns of which it is not known yet whether they are training or validation
        self.judged_ns = 0      # part of wait_ns that is known to be validation
        self.begin_ns = 0       # time of iter(), until the first batch is there
        self.begun = False
        self.epochs = 0         # passes begun
        self.first_ns: list[int] = []  # for each epoch: times of iter(), the first batch, and the end
        self.waits: list[int] = []     # waits for other batches: the first MOST_TIMES
        self.works: list[int] = []     # times of steps on its batches, without waiting for them: the first MOST_TIMES
        self.first_works: list[int] = []  # the same, for steps on the first batch of an epoch
        self.is_first = False   # whether the latest batch was an epoch's first
        self.batches = 0
        self.workers: set[int] = set()  # worker processes whose slots are not added yet
        self.reading = Reading()

    def iterator_made(self, took: int) -> None:
        self.begin_ns, self.begun = took, True

    def batch_came(self, took: int) -> None:
        self.batches += 1
        self.is_first = self.begun
        if self.begun:
            self.begun = False
            self.epochs += 1
            if len(self.first_ns) < MOST_TIMES:
                self.first_ns.append(self.begin_ns + took)
        elif len(self.waits) < MOST_TIMES:
            self.waits.append(took)

    def step_done(self, took: int) -> None:
        kept = self.first_works if self.is_first else self.works
        if len(kept) < MOST_TIMES:
            kept.append(took)

    def ended(self, took: int) -> None:
        """Adds the time of the call that found no more batches. That call ends the workers, unless they are kept."""
        self.begun = False
        if self.first_ns and len(self.first_ns) == self.epochs:
            self.first_ns[-1] += took

    def is_like(self, other: "Loader") -> bool:
        """True if the script may have made `other` as a replacement of this loader, as for each pass."""
        return self.line is not None and self.line == other.line and self.facts == other.facts

    def add(self, other: "Loader") -> None:
        """Adds another loader that was made at the same line."""
        self.made, self.batches, self.epochs = self.made + other.made, self.batches + other.batches, self.epochs + other.epochs
        self.first_ns, self.waits = (self.first_ns + other.first_ns)[:MOST_TIMES], (self.waits + other.waits)[:MOST_TIMES]
        self.works, self.first_works = (self.works + other.works)[:MOST_TIMES], (self.first_works + other.first_works)[:MOST_TIMES]
        self.workers = self.workers | other.workers
        self.judged_ns += other.judged_ns + other.wait_ns
        self.reading.add(other.reading)

    def collect(self, page: Page | None) -> None:
        """Adds the counts of its workers, when they are done or at the end."""
        for process in self.workers if page else ():
            reading = page.read(process)
            if reading is not None:
                self.reading.add(reading)
        self.workers.clear()


def dataset_name(dataset: Any) -> str:
    while type(dataset).__name__ in ("Subset", "ConcatDataset") and type(dataset).__module__.startswith("torch.utils.data"):
        dataset = getattr(dataset, "dataset", None) or dataset.datasets[0]
    return type(dataset).__name__


def facts_of(loader: Any) -> dict[str, Any]:
    """The parameters of a DataLoader, by the names of the evidence."""
    workers = getattr(loader, "num_workers", 0)
    context = getattr(loader, "multiprocessing_context", None)
    if context is None:
        import multiprocessing
        # allow_none is needed: otherwise the call would fix the start method, and a later set_start_method of the script would
        # fail.
        method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    else:
        method = context.get_start_method() if hasattr(context, "get_start_method") else str(context)
    batch = getattr(loader, "batch_size", None)
    if batch is None:
        batch = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return {"workers": workers, "prefetch": getattr(loader, "prefetch_factor", None) or 2, "persistent": bool(getattr(loader, "persistent_workers", False)),
            "pinned": bool(getattr(loader, "pin_memory", False)), "batch_size": batch if isinstance(batch, int) else 0, "multiprocessing": method,
            "dataset": dataset_name(loader.dataset) if hasattr(loader, "dataset") else ""}
