"""Functions of Pipeline.map() in the form in which the library calls them, on its reader threads."""
from __future__ import annotations

import ctypes
import json
import threading
import time
from typing import Any

from headrace._library import CALL, DESCRIBE, Map

_NUMPY = {"bool": "?", "u8": "u1", "i8": "i1", "i16": "<i2", "u16": "<u2", "i32": "<i4", "u32": "<u4", "i64": "<i8", "u64": "<u8",
          "f16": "<f2", "bf16": "<u2", "f32": "<f4", "f64": "<f8", "c64": "<c8", "c128": "<c16"}


def numpy_dtype(name: str):
    """NumPy's dtype for a field. NumPy has no bf16, so such a field has its bits as u16."""
    import numpy
    return numpy.dtype(_NUMPY[name])


class _PythonMap:
    """A Python function of a map. It gets a sample as NumPy arrays over the library's memory; its time is measured."""

    def __init__(self, function: Any):
        self.function = function
        self.seconds = 0.0
        self.error: Exception | None = None  # exception of the latest call that failed
        self.failed = 0.0                    # time of that call
        self.interrupt: BaseException | None = None  # Ctrl-C, if the calling thread reads
        self._lock = threading.Lock()
        self._fields: list = []
        self._made: list = []

    def describe(self, text: bytes, _context: Any) -> None:
        said = json.loads(text)
        self._fields, self._made = self._views(said["fields"]), self._views(said["made"])

    @staticmethod
    def _views(fields: list) -> list:
        views = []
        for field in fields:
            dtype, shape = numpy_dtype(field["dtype"]), tuple(field["shape"])
            count = 1
            for size in shape:
                count *= size
            views.append((field["name"], ctypes.c_ubyte * (count * dtype.itemsize), field["dtype"], dtype, shape))
        return views

    def call(self, fields: Any, made: Any, seed: int, _context: Any) -> int:
        import numpy
        began = time.perf_counter()
        try:
            sample = {}
            for i, (name, memory, _, dtype, shape) in enumerate(self._fields):
                sample[name] = numpy.frombuffer(memory.from_address(fields[i]), dtype).reshape(shape)
                sample[name].flags.writeable = False
            result = self.function(sample, numpy.random.Generator(numpy.random.Philox(seed)))
            for i, (name, memory, kind, dtype, shape) in enumerate(self._made):
                value = numpy.asarray(result[name])
                if value.shape != shape:
                    raise ValueError(f'the function of map() made "{name}" of shape {value.shape}, and makes= says {shape}')
                if kind == "bf16" and value.dtype != dtype:
                    raise ValueError(f'the function of map() made "{name}" of {value.dtype} numbers: NumPy has no bf16, give its bits as uint16, or say f32')
                written = numpy.frombuffer(memory.from_address(made[i]), dtype).reshape(shape)
                with numpy.errstate(invalid="ignore"):  # NaN as a whole number, which is refused below
                    written[...] = value
                # NumPy would cut off 0.7 to 0, and make 44 of 300 in 8 bits, without a word.
                if value.dtype != dtype and dtype.kind in "iu" and not (written == value).all():
                    raise ValueError(f'the function of map() made "{name}" of {value.dtype} numbers that {kind} can\'t hold: say another dtype in makes=, or convert them')
            return 0
        except Exception as error:  # an exception can't pass through the library
            self.error, self.failed = error, time.perf_counter()
            return 1
        except BaseException as interrupt:
            self.interrupt = interrupt
            return 1
        finally:
            with self._lock:
                self.seconds += time.perf_counter() - began


class Maps:
    """The functions of a pipeline for one loader. Keeps the objects alive that the library calls."""

    def __init__(self, functions: list):
        self._python = []
        self.table = (Map * max(1, len(functions)))()
        self.count = len(functions)
        self._kept = list(functions)  # the code at an address may go with the object that has it
        for entry, given in zip(self.table, functions):
            if given.address is not None:
                entry.call = ctypes.cast(given.address, CALL)
                continue
            import numpy  # noqa: F401 - here, since a reader that imports it keeps a loader from being closed
            python = _PythonMap(given.function)
            self._python.append(python)
            entry.call, entry.describe = CALL(python.call), DESCRIBE(python.describe)

    @property
    def seconds(self) -> float:
        """Seconds spent in Python functions, summed over all readers."""
        return sum(python.seconds for python in self._python)

    def error(self) -> Exception | None:
        """The exception of the latest call that failed."""
        return max(self._python, key=lambda python: python.failed).error if self._python else None

    def raise_interrupt(self) -> None:
        """Raises the exception that ended a call from outside, such as Ctrl-C."""
        for python in self._python:
            if python.interrupt is not None:
                interrupt, python.interrupt = python.interrupt, None
                raise interrupt
