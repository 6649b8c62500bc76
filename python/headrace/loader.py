"""A loader for a training loop: batches of torch tensors, or NumPy arrays, read by native threads.

    loader = headrace.Loader(train, batch_size=16, shuffle=True, seed=7)
    for epoch in range(loader.epoch, 10):
        for batch in loader:                       # {"vis": tensor, "truth": tensor}
            ...
        torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, "last.pt")
"""
from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import html
import json
import os
import sys
import threading
import warnings
import weakref
from typing import Any, Iterator, Mapping

from headrace import _device, _library, _ranks
from headrace._arrays import HostArrays, chosen
from headrace._library import BATCH, END, NOT_YET, check, in_python, library
from headrace._maps import Maps
from headrace.errors import KindError, MomentError, StateError, UsageError
from headrace.pipeline import Pipeline, described

_PATIENCE_MS = 100  # after this time without a batch the call returns once, so that Ctrl-C is noticed


class LoaderWarning(UserWarning):
    """A bad sample that was left out, a reader that is stuck, or batches that are kept."""


class _Slot:
    """Owns the memory of a batch after it got the batch's address. The memory returns to the loader when the last array over it is
    freed."""

    __slots__ = ("address", "_release")

    def __init__(self, release: Any):
        self.address, self._release = None, release

    def __del__(self):
        self._release(self.address)


class _Samples:
    """Stands for loader.dataset, for programs that need its length."""

    def __init__(self, count: int):
        self._count = count

    def __len__(self) -> int:
        return self._count


class _Epoch:
    """One pass over a loader. It begins when its first batch is requested."""

    __slots__ = ("_loader", "mark", "begun", "over")

    def __init__(self, loader: Loader):
        self._loader, self.begun, self.over = loader, False, False
        self.mark = object()  # identifies this pass; a reference back would keep a forgotten loader until garbage collection

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> dict:
        return self._loader._next(self)


_open: weakref.WeakSet = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # Reader threads must end before the objects that they use: the interpreter and the library's own memory.
    for loader in list(_open):
        loader.close()


def _renew_locks() -> None:
    # After a fork, the child must not wait for locks that other threads of its parent held.
    for loader in list(_open):
        loader._lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)


def _promised_bytes() -> int:
    """The part of the free memory that the caches of the open loaders may still take."""
    promised = 0
    for loader in list(_open):
        with contextlib.suppress(MomentError):  # closed, or of the parent from which this process was forked
            cache = loader.counters()["cache"]
            promised += cache["budget_bytes"] - cache["bytes"] if cache else 0
    return promised


def _levels_to_the_caller() -> int:
    """The stacklevel of the nearest caller outside this file."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        level, frame = level + 1, frame.f_back
    return level


class Loader:
    """Batches of a pipeline's samples, which native threads read ahead of the loop, without the GIL.

    Each `for` is an epoch. The first gives epoch 0, or continues where load_state_dict() points to. Every other gives the next
    epoch, even if the previous one was left early. iter() alone does nothing.

    A batch is {field: tensor [rows, ...]}, or {group: {field: tensor}} for groups. Tensors are views of the loader's host memory,
    without a copy. They may be changed and kept, also after the loader is closed. But each batch that is kept takes the memory of
    another batch, and beyond max_buffer_bytes the loader refuses: clone() tensors that you keep for long. The last batch of an
    epoch may be smaller. With `device` the tensors are torch's memory on that device, one piece for each batch.

    The same arguments give the same batches for any number of readers, because order and augmentation are functions of seed, epoch
    and position. The numbers of readers and of batches ahead are chosen, and adapted while the loop waits; plan() gives the
    reasons.

    Arguments:
        pipeline: the source of samples, such as the result of headrace.hdf5().
        batch_size: samples per rank (of each data set if there are groups).
        shuffle: True: a new order in each epoch; False: the order of the files.
        seed: the seed of order and augmentation.
        drop_last: leaves out a smaller last batch of an epoch.
        readers: number of reader threads; None: chosen; 0: the calling thread reads.
        prefetch: number of batches that are ready ahead, at first.
        cache: "auto" keeps all samples in memory after their first read if they fit into cache_bytes (default: half of the free
            memory); "ram" keeps the samples that fit; "off" keeps none. Random changes are made after the cache.
        max_buffer_bytes: limit for the memory of all batches; None: 1 GiB, or three batches.
        bad_samples: what happens to a sample that can't be read: "fail" raises DataError, "skip" leaves it out, "substitute" replaces
            it, "quarantine" replaces it and never reads it again. More than max_bad_fraction of an epoch raises DataError.
        rank, ranks: of this process; None: those of torch.distributed if it is initialised. Every rank has the same number of batches.
        as_: "torch" or "numpy"; None: torch if it is installed.
        device: "cuda" or "cuda:1": tensors on that GPU. They are copied while the previous step computes, and are ready for the
            stream that is current when the loop gets them. The loop is one batch behind the readers. None: host memory.

    A loader belongs to one process: in a fork of it, it raises MomentError. Calls from several threads wait for each other.
    """

    _handle: int | None = None  # of the library; None: not opened yet, or closed

    def __init__(self, pipeline: Pipeline, batch_size: int = 1, shuffle: bool = False, *, seed: int = 0, drop_last: bool = False,
                 readers: int | None = None, prefetch: int = 2, cache: str = "auto", cache_bytes: int | None = None,
                 max_buffer_bytes: int | None = None, bad_samples: str = "fail", max_bad_fraction: float = 0.001,
                 rank: int | None = None, ranks: int | None = None, as_: str | None = None, device: Any = None):
        self._device = None
        self._ahead: collections.deque = collections.deque()  # with a device: batches, an epoch's end or a failure, not yet passed to the loop
        if not isinstance(pipeline, Pipeline):
            raise KindError(f"a loader of {type(pipeline).__name__}", "headrace.Loader()",
                            "give a pipeline, as of headrace.hdf5(); for a torch Dataset there is headrace.exact()")
        self.batch_size, self.drop_last = batch_size, drop_last
        self.rank, self.ranks, here = _ranks.of_loader(rank, ranks)
        self._ranks_given = ranks is not None
        as_ = chosen("torch" if as_ is None and device is not None else as_)
        if as_ == "numpy" and device is not None:
            raise UsageError(f'device={device!r} with as_="numpy"', "headrace.Loader()", "leave one of them out: NumPy has arrays in host memory")
        self._place = _device.device_of(device)
        if self._place is not None:
            self._device = _device.DeviceArrays(_device.cuda_of(self._place))
        functions: list = []
        description = {"data": described(pipeline._part, functions), "batch_size": batch_size, "shuffle": shuffle, "seed": seed,
                       "drop_last": drop_last, "readers": "auto" if readers is None else readers, "prefetch": prefetch, "cache": cache,
                       "cache_bytes": "auto" if cache_bytes is None else cache_bytes, "memory_promised": _promised_bytes(),
                       "max_buffer_bytes": "auto" if max_buffer_bytes is None else max_buffer_bytes, "bad_samples": bad_samples,
                       "max_bad_fraction": max_bad_fraction, "rank": self.rank, "ranks": self.ranks, "ranks_here": here}
        self._maps = Maps(functions)
        text = _library.encoded(description)
        self._library = library()
        self._lock = threading.RLock()
        # Until the loop gets a batch, one of these two owns it: an exception of a signal can't lose the batch, and handlers may
        # call the loader.
        self._batch = _library.Batch()     # its slot is not null
        self._slot: _Slot | None = None
        self._batch_at = ctypes.byref(self._batch)
        self._handle = self._library.open(text, self._maps.table, self._maps.count,
                                         None if self._device is None else self._device.watch)
        if self._handle is None:
            self._maps.raise_interrupt()
            raise self._failure()
        _open.add(self)
        said = _library.text(self._library.describe(self._handle))
        self._groups, self._batches, self._samples = said["groups"], said["batches"], said["samples"]
        self._arrays = HostArrays(self._groups, as_)
        if self._device is not None:
            self._device.describe(self._groups)
            if self._device.problem():
                warnings.warn(f"batches are copied from pageable memory, slowly: {self._device.problem()}", LoaderWarning,
                              stacklevel=_levels_to_the_caller())
        self._current: object = None  # the mark of the loop that may take batches now
        self._epoch, self._handed = 0, 0  # batches of this epoch that a loop has got
        self._bad = 0                     # samples of these batches that could not be read
        self._resumed = False             # the next loop continues this epoch
        self._notes: list[str] = []
        self._show_messages()  # what the opening found, such as files that a folder leaves out

    # -- the loop

    def __iter__(self) -> Iterator[dict]:
        return _Epoch(self)

    def __len__(self) -> int:
        """The number of batches of an epoch, on each rank."""
        return self._batches

    def _next(self, epoch: _Epoch) -> dict:
        if epoch.over:
            raise StopIteration
        with self._lock:
            self._opened()
            if epoch.mark is not self._current:
                self._begin(epoch)
            if self._device is not None:
                return self._next_on_device(epoch)
            if self._pull() == END:
                epoch.over = True
                self._end()
                raise StopIteration
            batch, slot = self._batch, self._taken()
            made = self._arrays.made(batch, slot)
            self._refuse_moved(slot)
            self._epoch, self._handed = batch.epoch, batch.index + 1
            self._bad += batch.bad
            self._slot = None
            return made

    def _pull(self, waits: bool = True) -> int:
        """Asks the library for the next batch. Returns BATCH or END, or NOT_YET if it must not wait."""
        if self._slot is not None or self._batch.slot:
            return BATCH
        call, at = self._library.next, self._batch_at
        while True:
            code = call(self._opened(), _PATIENCE_MS if waits else 0, at)
            if code == BATCH or code == END:
                return code
            if code != NOT_YET:
                self._maps.raise_interrupt()
                error = self._failure()
                self._show_messages()
                raise error
            if not waits:
                return code
            self._show_messages()

    def _taken(self) -> _Slot:
        """The owner of the batch that _pull() got."""
        self._maps.raise_interrupt()
        slot = self._slot
        if slot is None:
            self._slot = slot = _Slot(self._library.release)
            slot.address, self._batch.slot = self._batch.slot, None  # Python handles no signal since the slot was made
            if slot.address is None:
                self._slot = None
                self._refuse_moved(slot)
        return slot

    def _refuse_moved(self, slot: _Slot) -> None:
        if self._slot is not slot:
            self._opened()
            raise MomentError("a signal handler gave the loader another place", "headrace.Loader", "begin another loop, which starts there")

    def _next_on_device(self, epoch: _Epoch) -> dict:
        """Returns the batch whose copy was started one step ago. First starts the copy of the next batch, if that batch has been
        read."""
        ahead = self._ahead
        if not ahead:
            self._look_ahead(waits=True)
        first = ahead[0]
        if isinstance(first, Exception):
            ahead.clear()
            try:
                raise first
            finally:
                del first  # otherwise it would keep its traceback, and all objects of those calls
        if first == END:
            ahead.clear()
            epoch.over = True
            self._end()
            raise StopIteration
        made = self._device.hand_over(first)
        if len(ahead) == 1:
            try:
                self._look_ahead(waits=False)
            except Exception as error:  # it belongs to the next batch
                ahead.append(error)
        ahead.popleft()
        self._epoch, self._handed = first.epoch, first.index + 1
        self._bad += first.bad
        return made

    def _look_ahead(self, waits: bool) -> None:
        self._device.make_room()
        code = self._pull(waits)
        if code == END:
            self._ahead.append(END)
        elif code == BATCH:
            slot = self._taken()
            copy = self._device.start(self._batch, slot)  # if the device has no memory, the same batch comes again
            self._refuse_moved(slot)
            self._slot = None
            self._ahead.append(copy)

    def _drop_ahead(self) -> None:
        while self._ahead:
            dropped = self._ahead.popleft()
            if isinstance(dropped, _device.Copy):
                self._device.drop(dropped)
        self._give_back()

    def _give_back(self) -> None:
        """Returns a batch that the loop will not get."""
        self._slot = None
        slot, self._batch.slot = self._batch.slot, None
        self._library.release(slot)

    def _not_had(self) -> list:
        """(epoch, number, samples, bad samples) of each batch that the library has returned but the loop has not got yet."""
        batches = [(copy.epoch, copy.index, copy.rows, copy.bad) for copy in self._ahead if isinstance(copy, _device.Copy)]
        last = self._batch
        if self._slot is not None or last.slot:
            batches.append((last.epoch, last.index, sum(last.rows[:len(self._groups)]), last.bad))
        return batches

    def _begin(self, epoch: _Epoch) -> None:
        if epoch.begun:
            raise MomentError("this loop has been overtaken: another loop over the same loader, or load_state_dict(), came after its first "
                              "batch", "headrace.Loader", "make a loader for each loop")
        if not self._ranks_given:
            _ranks.check(self.rank, self.ranks)
        if self._handed and not self._resumed:
            if self._handed == self._batches:
                if not self._ahead:
                    self._pull()  # takes the end of the epoch
                self._ahead.clear()
                self._end()
            else:
                self._drop_ahead()
                check(self._library.restart(self._handle, self._epoch + 1))
                self._epoch, self._handed, self._bad = self._epoch + 1, 0, 0
        self._resumed = False
        epoch.begun, self._current = True, epoch.mark

    def _end(self) -> None:
        self._current = None
        self._epoch, self._handed, self._bad = self._epoch + 1, 0, 0
        self._show_messages()

    # -- state

    @property
    def epoch(self) -> int:
        """The epoch of the next batch. If the latest loop has got all batches of its epoch, the epoch after it."""
        return self._epoch + (self._handed == self._batches)

    def state_dict(self) -> dict:
        """The position after the batches that the loop has got: about 400 bytes of plain numbers and texts. Valid in mid-epoch too;
        at the end of an epoch it is the beginning of the next. After a `break` it is the position of the break, and a loop that
        loads it continues there. The first call reads parts of the files, for their digest."""
        with self._lock:
            state = {"headrace": 1, **_library.text(self._library.state(self._opened()))}
            for epoch, number, _, _ in self._not_had()[:1]:
                state.update(epoch=epoch, next_batch=number, bad_in_epoch=self._bad)
            return state

    def load_state_dict(self, state: Mapping[str, Any], accept_changed: bool = False) -> None:
        """Makes the next `for` continue at that position, with the same batches, for any number of readers. The number of ranks may
        change if batch_size times ranks stays the same. Raises StateError for a state of another pipeline, seed or batch size.
        Also raises it if the files have other contents, unless `accept_changed`. For large files only parts are compared; names
        and folders do not count."""
        if not isinstance(state, Mapping) or state.get("headrace") != 1:
            raise StateError("this is no state of a headrace.Loader", "load_state_dict()", "give what state_dict() returned")
        with self._lock:
            handle = self._opened()
            left_out = ("headrace", "content") if accept_changed else ("headrace",)
            check(self._library.load_state(handle, json.dumps({key: state[key] for key in state if key not in left_out}, default=_library._plain).encode()))
            self._drop_ahead()
            self._current = None
            self._epoch, self._handed, self._bad = (int(state[key]) for key in ("epoch", "next_batch", "bad_in_epoch"))  # NumPy's, if saved so
            self._resumed = True

    # -- what it does

    def counters(self) -> dict:
        """Counts since the loader was made: batches, samples and bad_samples returned; wait_seconds of the loop; read_seconds and
        read_cpu_seconds over all readers; python_seconds in Python functions of map(); readers, buffer_bytes, cache, slow_files."""
        with self._lock:
            said = _library.text(self._library.counters(self._opened()))
            for _, _, rows, bad in self._not_had():
                for name, value in (("batches", 1), ("samples", rows), ("bad_samples", bad)):
                    said[name] -= value
        return {**said, "python_seconds": self._maps.seconds}

    def plan(self) -> str:
        """The loader's choices and their reasons (readers, cache, memory, how files are read), and each later change."""
        return "\n".join(f"{name:<10}{text}" for name, text in self._plan())

    def _plan(self) -> list[tuple[str, str]]:
        with self._lock:
            said = _library.text(self._library.plan(self._opened()))
            self._show_messages()
        rows = [("epoch", f"{self._samples:,} samples in {self._batches:,} batches on each of {self.ranks} ranks" if self.ranks > 1 else
                 f"{self._samples:,} samples in {self._batches:,} batches")]
        for data in said["data"]:
            words = [word for word in (data["rule"], data["read_as"]) if word]
            if words:
                rows.append(("data", ": ".join(word for word in (data["name"], "; ".join(words)) if word)))
        rows += [("readers", in_python(said["readers_reason"])), ("cache", in_python(said["cache_reason"])),
                 ("memory", f"{said['buffer_bytes'] / 2**20:,.0f} MiB for batches")]
        if self._device is not None:
            problem = self._device.problem()
            words = f"copied from pageable memory, slowly: {problem}" if problem else "copied by a stream of its own, one batch ahead"
            rows.append(("device", f"{self._place}, {words}; {self._device.registered_bytes() / 2**20:,.0f} MiB of host memory registered"))
        counters = self.counters()
        if counters["python_seconds"] > 0:
            share = counters["python_seconds"] / max(counters["read_seconds"], 1e-9)
            rows.append(("map", f"Python functions take {share:.0%} of the readers' time, one thread at a time: compile them with numba.cfunc"))
        return rows + [("change", note) for note in self._notes]

    def _repr_html_(self) -> str:
        rows = self._plan() if self._handle else [("state", "closed")]
        cells = "".join(f"<tr><td>{html.escape(name)}</td><td>{html.escape(text)}</td></tr>" for name, text in rows)
        fields = ", ".join(f"{each['name']} {each['dtype']} {each['shape']}" for group in self._groups for each in group["fields"])
        return f"<b>headrace.Loader</b> {html.escape(fields)}<table>{cells}</table>"

    def __repr__(self) -> str:
        state = f"{self._batches:,} batches of {self.batch_size}" if self._handle else "closed"
        return f"<headrace.Loader: {state}>"

    @property
    def dataset(self) -> _Samples:
        """For programs that call len(loader.dataset): the number of samples in an epoch over all ranks."""
        return _Samples(self._samples)

    @property
    def sampler(self) -> None:
        """None, because the loader itself decides the order."""
        return None

    # -- life

    def close(self) -> None:
        """Stops the readers. Batches stay valid as long as they are held. Further calls do nothing."""
        if self._handle is None:
            return
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                try:
                    self._give_back()
                    if self._device is not None:
                        try:
                            self._device.close()
                        finally:
                            self._ahead.clear()  # after the copies, because memory that another thread allocates may be memory of these copies
                finally:
                    self._library.close(handle)

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self):
        self.close()

    def __reduce__(self):
        raise MomentError("a loader can't be copied or sent to another process: it has threads", "headrace.Loader",
                          "send the pipeline, and make a loader there")

    def _opened(self) -> int:
        if self._handle is None:
            raise MomentError("this loader is closed", "headrace.Loader", "make another one")
        return self._handle

    def _failure(self) -> Exception:
        error = _library.failure()
        if "function of map()" in str(error):
            error.__cause__ = self._maps.error()
        return error

    def _show_messages(self) -> None:
        said = self._library.messages(self._handle)
        for line in json.loads(said) if said else []:
            if line["kind"] == "warning":
                warnings.warn(in_python(line["text"]), LoaderWarning, stacklevel=_levels_to_the_caller())
            else:
                self._notes.append(in_python(line["text"]))
