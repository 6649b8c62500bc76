"""Batches as NumPy arrays or torch tensors over the library's memory."""
from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import sys
from typing import Any, Mapping, Sequence

from headrace._maps import numpy_dtype
from headrace.errors import PackageError, UsageError

_TORCH = {"bool": "bool", "u8": "uint8", "i8": "int8", "i16": "int16", "u16": "uint16", "i32": "int32", "u32": "uint32", "i64": "int64",
          "u64": "uint64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}


def torch_dtype(field: Mapping[str, Any]) -> Any:
    """torch's dtype for a field."""
    import torch
    dtype = getattr(torch, _TORCH[field["dtype"]], None)
    if dtype is None:
        raise PackageError(f'field "{field["name"]}" has {_TORCH[field["dtype"]]} numbers, which torch {torch.__version__} does not know',
                           "headrace.Loader()", 'use a newer torch, or as_="numpy"')
    return dtype


def chosen(as_: str | None) -> str:
    """"torch" or "numpy": as the caller asks; without a wish, torch if it is installed."""
    if as_ not in (None, "torch", "numpy"):
        raise UsageError(f"as_ is {as_!r}", "headrace.Loader()", 'give "torch" or "numpy"')
    if as_ is None:
        as_ = "torch" if "torch" in sys.modules or importlib.util.find_spec("torch") else "numpy"
    if not (as_ in sys.modules or importlib.util.find_spec(as_)):
        raise PackageError(f"{as_} is not installed", "headrace.Loader()", f"{sys.executable} -m pip install {as_}")
    return as_


@functools.lru_cache(maxsize=256)
def _memory(size: int) -> type:
    """The type for the memory of a batch of `size` bytes, which keeps `slot` alive. A __slots__ entry takes half the time of a
    __dict__."""
    return type("Memory", (ctypes.c_ubyte * size,), {"__slots__": ("slot",)})


class HostArrays:
    """Makes the arrays of a batch in host memory, without a copy. Batches differ only in their address and number of rows. All
    other values are computed once for each number of rows."""

    def __init__(self, groups: Sequence[Mapping[str, Any]], as_: str):
        self._groups = groups
        self._torch = as_ == "torch"
        self._plain = len(groups) == 1 and groups[0]["name"] == ""  # no names of groups in a batch
        self._fields = sum(len(group["fields"]) for group in groups)
        self._layouts: dict[tuple, list] = {}
        if self._torch:
            for group in groups:
                for field in group["fields"]:
                    torch_dtype(field)

    def made(self, batch: Any, slot: Any) -> dict:
        """{field: array}, or {group: {field: array}}. `slot` lives until the last array is freed."""
        rows = tuple(batch.rows[:len(self._groups)])
        layout = self._layouts.get(rows)
        if layout is None:
            layout = self._layouts[rows] = [(group["name"], [self._layout(field, count) for field in group["fields"]])
                                            for group, count in zip(self._groups, rows)]
        place = iter(batch.data[:self._fields])
        groups: dict = {}
        for group, fields in layout:
            made = groups[group] = {}
            for name, memory, array, shape, bits, tensor, dtype in fields:
                view = memory(next(place))
                view.slot = slot
                value = array(shape, bits, view)
                if tensor is not None:  # from_numpy takes a third of the time of frombuffer and view
                    value = tensor(value)
                    if dtype is not None:
                        value = value.view(dtype)
                made[name] = value
        return made if self._plain else groups

    def _layout(self, field: Mapping[str, Any], rows: int) -> tuple:
        import numpy
        shape, bits, tensor, dtype = (rows, *field["shape"]), numpy_dtype(field["dtype"]), None, None
        if self._torch:
            import torch
            tensor = torch.from_numpy
            if field["dtype"] == "bf16":  # NumPy can hold only its bits
                bits, dtype = numpy.dtype("<i2"), torch.bfloat16
        memory = _memory(math.prod(shape) * bits.itemsize).from_address
        return field["name"], memory, numpy.ndarray, shape, bits, tensor, dtype
