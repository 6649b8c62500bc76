"""A loader whose samples and random numbers are a function of seed, epoch and position, for any map-style dataset.

The order is one permutation for each epoch. Before each sample, the three generators from which datasets draw (torch, NumPy's
global generator, `random`) are seeded by (seed, epoch, position). So a batch is the same for any number of workers, and after a
resume.
"""
from __future__ import annotations

import math
import random
import traceback
from hashlib import blake2b
from typing import Any, Callable, Iterator

from headrace import _exact_checks as checks
from headrace import _ranks
from headrace.errors import DataError, KindError, MomentError

STATE_VERSION = 1
_ORDER, _SAMPLE, _COLLATE = 0, 1, 2  # the purpose of random numbers
_current_seed: int | None = None


def sample_seed() -> int:
    """The seed of the sample that is being read, 64 bits, for your own generators:
    `numpy.random.default_rng(headrace.sample_seed())`.

    Call it in `dataset[i]` or in `collate_fn`, under `headrace.exact`. Elsewhere it raises `MomentError`.
    """
    if _current_seed is None:
        raise MomentError("no sample is being read", "headrace.sample_seed()", "call it in the dataset's __getitem__ or in collate_fn")
    return _current_seed


def _digest(seed: int, epoch: int, position: int, purpose: int) -> bytes:
    return blake2b(b"%d %d %d %d" % (seed, epoch, position, purpose), digest_size=24).digest()


class _Generators:
    """The three global generators: seeds them by a digest, saves and restores their states."""

    def __init__(self):
        import numpy
        import torch
        self._torch, self._numpy = torch.default_generator, numpy.random

    def seed(self, digest: bytes) -> None:
        global _current_seed
        self._torch.manual_seed(int.from_bytes(digest[:8], "little"))
        self._numpy.seed(int.from_bytes(digest[8:12], "little"))
        random.seed(int.from_bytes(digest[12:16], "little"))
        _current_seed = int.from_bytes(digest[16:], "little")

    def kept(self) -> tuple:
        return self._torch.get_state(), self._numpy.get_state(legacy=False), random.getstate()

    def put_back(self, states: tuple) -> None:
        global _current_seed
        self._torch.set_state(states[0])
        self._numpy.set_state(states[1])
        random.setstate(states[2])
        _current_seed = None


def _seeder(part: Any) -> Callable[[int], Any] | None:
    """The function that seeds a transform with a separate generator: set_random_seed in Albumentations, whose set_random_state takes
    generators, and set_random_state in MONAI."""
    if isinstance(part, type):
        return None
    seed = next((found for name in ("set_random_seed", "set_random_state") if callable(found := getattr(part, name, None))), None)
    if seed is None or not hasattr(part, "_get_effective_seed"):
        return seed
    # In worker processes, newer versions of Albumentations add torch's seed to the given seed.
    return lambda number: seed((number - part._get_effective_seed(0)) % (1 << 32))


def _seeders(dataset: Any) -> list[Callable[[int], Any]]:
    """The functions that seed the transforms of a dataset, of its attributes, and of the datasets inside it."""
    found, left, seen = [], [dataset], set()
    while left:
        holder = left.pop()
        if id(holder) in seen:
            continue
        seen.add(id(holder))
        attributes = getattr(holder, "__dict__", {})
        found.extend(seeder for part in (holder, *attributes.values()) if (seeder := _seeder(part)) is not None)
        inner = [attributes.get("dataset"), *(attributes["datasets"] if isinstance(attributes.get("datasets"), (list, tuple)) else ())]
        left.extend(each for each in inner if each is not None)
    return found


class _RemoteError(Exception):
    """The traceback of a worker process, as text."""


class _Failure:
    """Stands for a batch that could not be made: the parts of a DataError and its cause. It is sent from worker processes as it is;
    DataLoader would turn an exception into one text."""

    def __init__(self, what: str, where: str, next: str, cause: BaseException, in_worker: bool):
        self.parts, self.cause, self.text = (what, where, next), cause, None
        if in_worker:
            import pickle
            self.text = "".join(traceback.format_exception(type(cause), cause, cause.__traceback__))
            try:
                pickle.loads(pickle.dumps(cause))
            except Exception:
                self.cause = None

    def error(self) -> DataError:
        error = DataError(*self.parts)
        error.__cause__ = self.cause
        if self.text is not None:
            remote = _RemoteError("\n" + self.text)
            if self.cause is None:
                error.__cause__ = remote
            else:
                self.cause.__cause__ = remote
        return error


def _is_of_pickle(error: BaseException) -> bool:
    """True if pickle raised the error. The error's type and words differ between versions of Python."""
    modules = {frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)}
    return "pickle" in f"{type(error).__name__} {error}".lower() or "multiprocessing.reduction" in modules


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


class _Batches:
    """The dataset that the DataLoader sees. Its samples are batches, by (epoch, position of the first sample, indices). Each
    process that reads has one copy."""

    def __init__(self, dataset: Any, collate: Callable | None, seed: int):
        self.dataset, self.collate, self.seed = dataset, collate, seed
        self.generators: _Generators | None = None
        self.seeders: list[Callable[[int], Any]] = []
        self.seeders_epoch = -1  # the epoch in which they were looked up, because a script may replace a transform between two epochs

    def __getstate__(self) -> dict:
        return {**self.__dict__, "generators": None, "seeders": [], "seeders_epoch": -1}

    def __getitem__(self, key: tuple[int, int, list[int]]) -> Any:
        from torch.utils.data import default_collate, get_worker_info
        epoch, first, indices = key
        if self.generators is None:
            self.generators = _Generators()
        if epoch != self.seeders_epoch:
            self.seeders, self.seeders_epoch = _seeders(self.dataset), epoch
        in_worker = get_worker_info() is not None
        samples, where = [], f"epoch {epoch}, position {first}"
        for position, index in enumerate(indices, first):
            try:
                self.generators.seed(digest := _digest(self.seed, epoch, position, _SAMPLE))
                for seed in self.seeders:
                    seed(int.from_bytes(digest[:4], "little"))
                samples.append(self.dataset[index])
            except Exception as error:
                return _Failure(f"sample {index} of the dataset raised {_first_line(error)}", f"epoch {epoch}, position {position}",
                                f"read it alone: dataset[{index}]; the traceback above says where it fails", error, in_worker)
        try:
            self.generators.seed(_digest(self.seed, epoch, first, _COLLATE))
            return (self.collate or default_collate)(samples)
        except Exception as error:
            empty = [index for index, sample in zip(indices, samples) if sample is None]
            if empty and self.collate is None:
                return _Failure(f"sample {empty[0]} of the dataset is None", where,
                                "let __getitem__ return a sample for every index, or give a collate_fn that leaves None out", error, in_worker)
            shown = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
            return _Failure(f"samples {shown} make no batch: {_first_line(error)}", where,
                            "give collate_fn, which makes a batch of a list of samples, or return samples of one shape" if self.collate is None
                            else "look at collate_fn with these samples: collate_fn([dataset[i] for i in ...])", error, in_worker)


def _unchanged(batch: Any) -> Any:
    return batch


class _Keys:
    """The sampler for the DataLoader: the remaining batches of an epoch, as the loader sets them. It holds no reference to the
    loader, so that the workers end with the loader."""

    def __init__(self):
        self.batches: Iterator[tuple[int, int, list[int]]] = iter(())

    def __iter__(self) -> Iterator[tuple[int, int, list[int]]]:
        return self.batches


def _keys_of(epoch: int, begin: int, order: Any, batch_size: int, ranks: tuple[int, int], drop_last: bool) -> Iterator[tuple[int, int, list[int]]]:
    """The batches of a rank from position `begin` to the epoch's end: (epoch, position of the first sample, indices).

    A step of all ranks is a section of the order, which the ranks divide among them in turn. The rest at the end is divided
    equally. If its length is not a multiple of the number of ranks, it is filled up with the first samples of the order.
    """
    rank, world = ranks
    for start in range(begin, len(order), batch_size * world):
        left = len(order) - start
        if drop_last and left < batch_size * world:
            return
        rows = min(batch_size, math.ceil(left / world))
        first = start + rank * rows
        yield epoch, first, order.take(range(first, first + rows), mode="wrap").tolist()


class _Loop:
    """One pass over a loader. It begins with the first batch; iter() alone changes nothing."""

    def __init__(self, loader: "Exact"):
        self.loader, self.turn, self.batches, self.ended = loader, None, None, False

    def __iter__(self) -> "_Loop":
        return self

    def __next__(self) -> Any:
        if self.ended:
            raise StopIteration
        if self.turn is None:
            self.turn, self.batches = self.loader._begin()
        return self.loader._next(self)


class Exact:
    """A loader with a state, see `exact()`. Iterate it once for each epoch. Not for several threads."""

    def __init__(self, dataset: Any, batch_size: int, options: dict[str, Any]):
        checks.dataset(dataset)
        checks.options(dataset, batch_size, options)
        self.dataset, self.batch_size = dataset, batch_size
        self.shuffle, self.seed, self.drop_last = options["shuffle"], options["seed"], options["drop_last"]
        self.num_workers = options["num_workers"]
        self._given_ranks = None if options["rank"] is None else (options["rank"], options["ranks"])
        self._passed_on = {name: value for name, value in options.items() if name in checks.PASSED_ON and value is not None}
        self._source = _Batches(dataset, options["collate_fn"], self.seed)
        self._length = len(dataset)
        self._keys, self._loader = _Keys(), None
        self._epoch, self._position = 0, 0    # of the next sample
        self._untouched = True                # no batch of a loop was returned since (_epoch, _position) was set
        self._turn, self._ranks_now = 0, (0, 1)
        self._alone: _Generators | None = None

    # -- what training loops call ------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Batches of a whole epoch, on each rank. The first loop after a resume inside an epoch has fewer."""
        share = self.batch_size * self._ranks()[1]
        return self._length // share if self.drop_last else math.ceil(self._length / share)

    def __iter__(self) -> _Loop:
        return _Loop(self)

    def state_dict(self) -> dict[str, int | bool]:
        """The position of the next sample: a small dictionary of numbers, the same on every rank. Valid at any time, also inside an
        epoch."""
        return {"headrace": STATE_VERSION, "length": self._length, "seed": self.seed, "shuffle": self.shuffle, "epoch": self._epoch,
                "position": self._position}

    def load_state_dict(self, state: dict[str, int | bool]) -> None:
        """Continues from a state of `state_dict()`. The next loop begins with that sample; it is empty if the state was taken at an
        epoch's end. Number of workers, batch size and number of ranks may differ. Raises `StateError` for the state of another
        dataset, seed or order."""
        checks.state(state, self._length, self.seed, self.shuffle, STATE_VERSION)
        self._place(state["epoch"], state["position"])

    def set_epoch(self, epoch: int) -> None:
        """Optional, because each loop is the next epoch. If `epoch` is not the epoch that comes next, the next loop is the whole of
        `epoch`."""
        checks.whole_number("epoch", epoch, 0, "loader.set_epoch")
        if epoch != self._epoch + (not self._untouched):
            self._place(epoch, 0)

    @property
    def epoch(self) -> int:
        """The epoch of the next sample, from 0: `for epoch in range(loader.epoch, 10)` continues after a resume."""
        return self._epoch

    def __repr__(self) -> str:
        return (f"headrace.exact({type(self.dataset).__name__} of {self._length} samples, batch_size={self.batch_size}, shuffle={self.shuffle}, "
                f"seed={self.seed}, num_workers={self.num_workers}; epoch {self._epoch}, position {self._position})")

    # -- the order ---------------------------------------------------------------------------------------------------------

    def _ranks(self) -> tuple[int, int]:
        """(rank, world): the given values, or the present values of the process."""
        return self._given_ranks if self._given_ranks is not None else _ranks.world_now()

    def _order(self, epoch: int) -> Any:
        """Indices by position. Uses RandomState, because NumPy promises that its numbers never change; torch's permutations have
        changed."""
        import numpy
        if not self.shuffle:
            return numpy.arange(self._length)
        return numpy.random.RandomState(numpy.frombuffer(_digest(self.seed, epoch, 0, _ORDER), "<u4")).permutation(self._length)

    # -- a loop ------------------------------------------------------------------------------------------------------------

    def _place(self, epoch: int, position: int) -> None:
        self._epoch, self._position, self._untouched = epoch, position, True
        self._turn += 1  # A loop that has already begun belongs to the old position.

    def _begin(self) -> tuple[int, Iterator]:
        checks.same_length(self.dataset, self._length)
        ranks = self._ranks()
        checks.some_batch(self._length, self.batch_size, ranks[1], self.drop_last)
        if not self._untouched:
            self._epoch, self._position = self._epoch + 1, 0  # The previous loop was left early.
        self._untouched = False
        self._turn += 1
        self._ranks_now = ranks
        if self._loader is None:
            self._loader = self._make_loader()
        self._keys.batches = _keys_of(self._epoch, self._position, self._order(self._epoch), self.batch_size, self._ranks_now, self.drop_last)
        try:
            return self._turn, iter(self._loader)
        except Exception as error:
            self._untouched = True
            if self.num_workers and _is_of_pickle(error):
                raise KindError(f"the dataset can't be sent to worker processes: {_first_line(error)}", repr(self),
                                "define its class, its transforms and collate_fn at the top of a module, without lambda; or num_workers=0") from error
            raise

    def _make_loader(self) -> Any:
        import torch
        # A separate generator: DataLoader draws a number from it for each epoch, and the caller's numbers must not depend on that.
        generator = torch.Generator()
        generator.manual_seed(self.seed)
        options = {"persistent_workers": True, **self._passed_on} if self.num_workers else self._passed_on
        return torch.utils.data.DataLoader(self._source, batch_size=None, sampler=self._keys, collate_fn=_unchanged, generator=generator,
                                           num_workers=self.num_workers, **options)

    def _next(self, loop: _Loop) -> Any:
        if loop.turn != self._turn:
            raise MomentError("this loop is over: another one began over the same loader, or the loader was given another place", repr(self),
                              "for two loops at a time make two loaders; call load_state_dict and set_epoch before a loop")
        try:
            batch = self._fetch(loop.batches)
        except StopIteration:
            loop.ended = True
            self._epoch, self._position, self._untouched = self._epoch + 1, 0, True
            raise
        if isinstance(batch, _Failure):
            loop.ended = True
            raise batch.error()
        self._position = min(self._position + self.batch_size * self._ranks_now[1], self._length)
        return batch

    def _fetch(self, batches: Iterator) -> Any:
        if self.num_workers:
            try:
                return next(batches)
            except RuntimeError as error:
                if "DataLoader" not in str(error):
                    raise
                self._loader = None
                raise DataError(f"a worker process of the loader ended or gave no answer: {_first_line(error)}", repr(self),
                                "num_workers=0 shows an exception at its line; where memory ran out, take fewer workers or a smaller prefetch_factor; "
                                "in a container give more shared memory (--shm-size)") from error
        # The samples are read in this process, so the model's own random numbers must not change.
        if self._alone is None:
            self._alone = _Generators()
        kept = self._alone.kept()
        try:
            return next(batches)
        finally:
            self._alone.put_back(kept)


def exact(dataset: Any, batch_size: int = 1, *, shuffle: bool = False, seed: int = 0, num_workers: int = 0, drop_last: bool = False,
          collate_fn: Callable[[list], Any] | None = None, pin_memory: bool = False, rank: int | None = None, ranks: int | None = None,
          **more: Any) -> Exact:
    """A loader over a map-style dataset. It can repeat its batches, to the bit.

        loader = headrace.exact(MyDataset(), batch_size=64, shuffle=True, seed=7, num_workers=8)
        for epoch in range(10):
            for batch in loader: ...
            torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, "last.pt")
        loader.load_state_dict(state)   # continues at that batch with the same random numbers, for any number of workers

    Each loop over it is the next epoch. `collate_fn` (default: torch's `default_collate`) makes a batch from a list of `batch_size`
    samples `dataset[i]`. The last batch of an epoch may be smaller, unless `drop_last`. The dataset and `collate_fn` may draw random
    numbers from the global generators of torch, NumPy or Python. These numbers are a function of (`seed`, epoch, position). For other
    generators use `sample_seed()`. With `num_workers=0` the states of the caller's generators do not change.

    `batch_size`: samples per rank. `rank` and `ranks` (number of ranks) come from torch.distributed by default. `more`: prefetch_factor,
    persistent_workers (default True), timeout in seconds, worker_init_fn, multiprocessing_context, pin_memory_device, as for DataLoader.
    """
    return Exact(dataset, batch_size, {"shuffle": shuffle, "seed": seed, "num_workers": num_workers, "drop_last": drop_last, "collate_fn": collate_fn,
                                       "pin_memory": pin_memory, "rank": rank, "ranks": ranks, **more})
