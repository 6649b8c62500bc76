"""Reads a safetensors file as torch tensors or NumPy arrays over a private mapping of it, and writes such files."""
from __future__ import annotations

import json
import math
import mmap
import struct
from pathlib import Path
from typing import Any, Mapping

from headrace.errors import FileError, KindError, PackageError

# Name in the file -> (torch's name, NumPy's name; None: NumPy has no such type).
_KINDS = {"F64": ("float64", "<f8"), "F32": ("float32", "<f4"), "F16": ("float16", "<f2"), "BF16": ("bfloat16", None), "I64": ("int64", "<i8"),
          "I32": ("int32", "<i4"), "I16": ("int16", "<i2"), "I8": ("int8", "i1"), "U8": ("uint8", "u1"), "BOOL": ("bool", "?"),
          "U16": ("uint16", "<u2"), "U32": ("uint32", "<u4"), "U64": ("uint64", "<u8")}
_BYTES = {kind: 1 if kind == "BOOL" else int(kind.lstrip("BFIU")) // 8 for kind in _KINDS}
_MOST_HEADER = 100 << 20  # bytes


def _header(path: Path, mapped: mmap.mmap) -> tuple[dict[str, Any], int]:
    """The header without its metadata, and the offset at which the data begins."""
    try:
        (length,) = struct.unpack_from("<Q", mapped)
        if length > min(_MOST_HEADER, len(mapped) - 8):
            raise ValueError(f"its header would be {length} bytes long")
        header = json.loads(mapped[8:8 + length])
        header.pop("__metadata__", None)
        for name, each in header.items():
            begin, end = each["data_offsets"]
            if each["dtype"] not in _KINDS or not 0 <= begin <= end <= len(mapped) - 8 - length:
                raise ValueError(f"{name} is of type {each['dtype']} at bytes {begin} to {end}")
            if min(each["shape"], default=0) < 0 or math.prod(each["shape"]) * _BYTES[each["dtype"]] != end - begin:
                raise ValueError(f"{name} of shape {each['shape']} has {end - begin} bytes")
        return header, 8 + length
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise FileError(f"{path} is no safetensors file, or damaged: {error}", str(path), "take another snapshot of the run") from error


def _torch_tensor(mapped: mmap.mmap, offset: int, count: int, kind: str, shape: list[int]) -> Any:
    import torch
    dtype = getattr(torch, _KINDS[kind][0])
    return torch.frombuffer(mapped, dtype=dtype, count=count, offset=offset).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def _numpy_array(mapped: mmap.mmap, offset: int, count: int, kind: str, shape: list[int]) -> Any:
    import numpy
    if kind == "BF16":
        halves = numpy.frombuffer(mapped, "<u2", count, offset).astype("<u4")
        return (halves << 16).view("<f4").reshape(shape)
    return numpy.frombuffer(mapped, _KINDS[kind][1], count, offset).reshape(shape)


def load(path: Path, to: str) -> dict[str, Any]:
    """{name: array of its shape}. `to`: "torch" or "numpy"; bfloat16 becomes float32 in NumPy."""
    if to == "torch":
        try:
            import torch  # noqa: F401
        except ImportError as error:
            raise PackageError(f"torch can't be imported: {error}", "run.weights()", 'install torch, or take NumPy arrays: run.weights(to="numpy")') from error
    make = _torch_tensor if to == "torch" else _numpy_array
    with open(path, "rb") as file:
        if path.stat().st_size == 0:
            raise FileError(f"{path} is empty", str(path), "take another snapshot of the run")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    header, begin = _header(path, mapped)
    found = {}
    for name, each in header.items():
        count = 1
        for size in each["shape"]:
            count *= size
        try:
            found[name] = make(mapped, begin + each["data_offsets"][0], count, each["dtype"], each["shape"])
        except (ValueError, RuntimeError) as error:
            raise FileError(f"{path} is damaged: {name}: {error}", str(path), "take another snapshot of the run") from error
    return found


def _bytes_of(name: str, value: Any, where: str) -> tuple[str, list[int], Any]:
    """(type, shape, contiguous NumPy array of the same bytes) for a torch tensor, or for a value that NumPy can turn into an array."""
    import numpy
    kinds = {names[0]: kind for kind, names in _KINDS.items()}
    if hasattr(value, "detach"):
        tensor = value.detach().cpu().contiguous()
        kind, shape = str(tensor.dtype).rpartition(".")[2], list(tensor.shape)
        if kind == "bfloat16":
            import torch
            tensor = tensor.view(torch.int16)  # NumPy can hold only its bits
        array = tensor.numpy() if kind in kinds else None
    else:
        try:
            array = numpy.asarray(value, order="C")
        except ValueError as error:  # rows of several lengths
            raise KindError(f"{name} is no array: {error}", where, "give an array of numbers") from None
        kind, shape = array.dtype.name, list(array.shape)
    if kind not in kinds:
        raise KindError(f"{name} is of type {kind}", where, "give an array of numbers")
    return kinds[kind], shape, array if array.dtype.byteorder != ">" else array.astype(array.dtype.newbyteorder("<"))


def save(path: Path, arrays: Mapping[str, Any], where: str) -> None:
    """Writes torch tensors and NumPy arrays by name. Raises `KindError` for a value that is not an array of numbers."""
    parts = {str(name): _bytes_of(str(name), value, where) for name, value in arrays.items()}
    header, offset = {}, 0
    for name, (kind, shape, array) in sorted(parts.items(), key=lambda part: -part[1][2].itemsize):  # so that each is aligned
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in header:
            file.write(memoryview(parts[name][2].reshape(-1)).cast("B"))
