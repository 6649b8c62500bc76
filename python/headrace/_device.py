"""Batches on a GPU, copied while the previous step computes.

The host memory of batches is registered with CUDA, so that a copy needs no help from the CPU. Each batch is one copy, on a separate
stream. Its device memory comes from the stream that the loop uses, and the copy waits for the present work of that stream. So
memory that a step has freed can be used again, and at most two or three batches exist at a time. The host memory of a batch is held
until its copy has ended, because torch's allocator of host memory does not know about the copy.
"""
from __future__ import annotations

import collections
import ctypes
import math
import mmap
import os
import threading
from typing import Any, Callable, Mapping, Sequence

from headrace._arrays import torch_dtype
from headrace._library import MEMORY, Watch
from headrace.errors import UsageError

_COPIES = 2  # the most copies under way: before another copy, the loop's thread waits


def device_of(device: Any) -> Any:
    """The torch.device of a GPU, with its number; None for host memory."""
    if device is None:
        return None
    import torch
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"device is {device!r}: {str(error).splitlines()[0]}", "headrace.Loader()", 'give "cuda" or "cuda:1", or leave it out') from None
    if chosen.type == "cpu":
        return None
    if chosen.type != "cuda":
        raise UsageError(f"device is {device!r}", "headrace.Loader()",
                         'give "cuda" or "cuda:1"; for other devices leave it out, and move batches by batch["x"].to(...)')
    if not torch.cuda.is_available():
        raise UsageError(f"device is {device!r}, and torch {torch.__version__} finds no GPU", "headrace.Loader()",
                         'leave device out to train on the CPU, as by device="cuda" if torch.cuda.is_available() else None')
    if chosen.index is None:
        chosen = torch.device("cuda", torch.cuda.current_device())
    if chosen.index >= torch.cuda.device_count():
        raise UsageError(f"device is {device!r}, and torch finds {torch.cuda.device_count()} GPUs", "headrace.Loader()",
                         f"give cuda:0 to cuda:{torch.cuda.device_count() - 1}")
    return chosen


class Cuda:
    """The parts of torch.cuda that copies need, on one device. Streams and events are torch's."""

    def __init__(self, device: Any):
        import torch
        self._torch, self._device = torch, device
        self._copies = torch.cuda.Stream(device)

    def register(self, address: int, size: int) -> str:
        """Page-locks host memory for this device. Returns the error; "" = success."""
        # CUDA keeps the error of a call for the thread that made it, and torch's next launch in that thread would report it.
        problems: list[str] = []
        thread = threading.Thread(target=self._register, args=(address, size, problems), name="headrace-register")
        thread.start()
        thread.join()
        return problems[0] if problems else ""

    def _register(self, address: int, size: int, problems: list[str]) -> None:
        try:
            with self._torch.cuda.device(self._device):
                cudart = self._torch.cuda.cudart()
                code = cudart.cudaHostRegister(address, size, 0)
                if int(code) != 0:
                    problems.append(f"cudaHostRegister: {cudart.cudaGetErrorString(code)} (error {int(code)})")
        except Exception as error:
            problems.append(str(error))

    def unregister(self, address: int) -> None:
        with self._torch.cuda.device(self._device):
            self._torch.cuda.cudart().cudaHostUnregister(address)

    def stream(self) -> Any:
        """The stream on which this thread's work runs."""
        return self._torch.cuda.current_stream(self._device)

    def empty(self, size: int) -> Any:
        """Memory of this many bytes on the device, from the current stream."""
        return self._torch.empty(size, dtype=self._torch.uint8, device=self._device)

    def copy(self, to: Any, source: Any, after: Any) -> Any:
        """Starts a copy that begins when `after` has done its present work. Returns the copy's event."""
        self._copies.wait_stream(after)
        with self._torch.cuda.stream(self._copies):
            to.copy_(source, non_blocking=True)
            return self._copies.record_event()

    def drain(self) -> None:
        """Returns when all copies have ended."""
        self._copies.synchronize()


class Copy:
    """A batch whose copy to the device is under way."""

    __slots__ = ("arrays", "memory", "stream", "event", "epoch", "index", "rows", "bad")


class DeviceArrays:
    """Makes the tensors of batches on a device. `watch` is for headrace_open(): it must live as long as the loader."""

    def __init__(self, cuda: Any):
        self._cuda = cuda
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._pieces: dict[int, int] = {}  # address -> bytes of the registered memory
        self._problem = ""
        self._on_the_way: collections.deque = collections.deque()  # (event, host memory) of copies that may still be running
        self.watch = Watch(MEMORY(self._taken), MEMORY(self._given_back), None)

    def describe(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Sets the fields of batches. Call it before the first batch."""
        self._groups = [(group["name"], [(field["name"], math.prod(field["shape"]) * torch_dtype(field).itemsize, tuple(field["shape"]),
                                          torch_dtype(field)) for field in group["fields"]]) for group in groups]
        self._plain = len(groups) == 1 and groups[0]["name"] == ""
        self._fields = sum(len(group["fields"]) for group in groups)

    # The library calls these two functions on any thread. No exception may leave them, because it can't pass through the library.

    def _taken(self, address: int, size: int, _context: Any) -> None:
        try:
            # Otherwise each forked process, such as a worker of a DataLoader, gets a copy of locked pages. On an older kernel this
            # process may get the copy, and the GPU continues to read the old pages.
            ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.MADV_DONTFORK)
            problem = self._cuda.register(address, size)
        except Exception as error:
            problem = str(error)
        with self._lock:
            if problem:
                self._problem = problem
            else:
                self._pieces[address] = size

    def _given_back(self, address: int, _size: int, _context: Any) -> None:
        with self._lock:
            known = self._pieces.pop(address, None)
        if known is not None and os.getpid() == self._process:
            try:
                self._cuda.unregister(address)
            except Exception as error:  # the device is lost, so nothing needs to be unregistered
                self._problem = str(error)

    def problem(self) -> str:
        """The reason why memory could not be registered; "" = all memory is registered."""
        return self._problem

    def registered_bytes(self) -> int:
        with self._lock:
            return sum(self._pieces.values())

    def start(self, batch: Any, slot: Any) -> Copy:
        """Starts the copy of a batch. `slot` lives until the copy has ended."""
        rows, places = batch.rows[:len(self._groups)], batch.data[:self._fields]
        base = places[0]
        ends, layout, field = [base], [], 0
        for count, (group, fields) in zip(rows, self._groups):
            for name, size, shape, dtype in fields:
                begin, field = places[field] - base, field + 1
                ends.append(base + begin + count * size)
                layout.append((group, name, begin, begin + count * size, (count, *shape), dtype))
        copy = Copy()
        copy.epoch, copy.index, copy.rows, copy.bad = batch.epoch, batch.index, sum(rows), batch.bad
        host = _host_bytes(base, max(ends) - base, slot)
        copy.stream = self._cuda.stream()
        copy.memory = self._cuda.empty(len(host))
        copy.event = self._cuda.copy(copy.memory, host, copy.stream)
        self._on_the_way.append((copy.event, host))
        copy.arrays = self._arrays(copy.memory, layout)
        return copy

    def _arrays(self, memory: Any, layout: list) -> dict:
        groups: dict = {group: {} for group, _ in self._groups}
        for group, name, begin, end, shape, dtype in layout:
            # Because of .data, a field is not a view: a loop may change one field in place while autograd holds another, as in host
            # memory.
            groups[group][name] = memory[begin:end].view(dtype).view(shape).data
        return groups[""] if self._plain else groups

    def make_room(self) -> None:
        """Waits until fewer than two copies are under way. Call it before the next batch is requested."""
        on_the_way = self._on_the_way
        while on_the_way and (len(on_the_way) >= _COPIES or on_the_way[0][0].query()):
            on_the_way[0][0].synchronize()
            on_the_way.popleft()

    def hand_over(self, copy: Copy) -> dict:
        """Returns the tensors, for the stream that this thread uses now: that stream's later work comes after the copy."""
        stream = self._cuda.stream()
        stream.wait_event(copy.event)
        if stream != copy.stream:
            copy.memory.record_stream(stream)
        return copy.arrays

    def drop(self, copy: Copy) -> None:
        """Discards a batch that was not handed over. Its memory is reused after the copy."""
        if os.getpid() == self._process:
            copy.stream.wait_event(copy.event)

    def close(self) -> None:
        """Waits for all copies, so that the library may free their memory."""
        try:
            if self._on_the_way and os.getpid() == self._process:
                self._cuda.drain()
        finally:
            self._on_the_way.clear()


def _host_bytes(address: int, size: int, slot: Any) -> Any:
    """A tensor over host memory that keeps `slot` alive."""
    import numpy
    import torch
    view = (ctypes.c_ubyte * size).from_address(address)
    view.slot = slot
    return torch.from_numpy(numpy.ndarray((size,), numpy.uint8, view))


# Tests replace it.
cuda_of: Callable[[Any], Any] = Cuda
