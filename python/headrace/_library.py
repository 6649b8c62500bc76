"""Calls libheadrace.so through ctypes, and turns its failures into exceptions of this package."""
from __future__ import annotations

import ctypes
import functools
import json
import os
import re
from pathlib import Path

from headrace.errors import DataError, Error, KindError, MissingError, MomentError, StateError, UsageError

FAILED, END, BATCH, NOT_YET = -1, 0, 1, 2


class Batch(ctypes.Structure):
    """headrace_batch of headrace.h."""

    _fields_ = [("slot", ctypes.c_void_p), ("epoch", ctypes.c_uint64), ("index", ctypes.c_uint64),
                ("rows", ctypes.POINTER(ctypes.c_int64)), ("data", ctypes.POINTER(ctypes.c_void_p)),
                ("items", ctypes.POINTER(ctypes.POINTER(ctypes.c_int64))), ("bad", ctypes.c_uint64)]


CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.c_void_p)
DESCRIBE = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)


class Map(ctypes.Structure):
    """headrace_map of headrace.h."""

    _fields_ = [("call", CALL), ("describe", DESCRIBE), ("context", ctypes.c_void_p)]


MEMORY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class Watch(ctypes.Structure):
    """headrace_watch of headrace.h."""

    _fields_ = [("taken", MEMORY), ("given_back", MEMORY), ("context", ctypes.c_void_p)]


_TEXT, _HANDLE = ctypes.c_char_p, ctypes.c_void_p
_FUNCTIONS = {
    "version": (_TEXT, []),
    "error": (_TEXT, []),
    "open": (_HANDLE, [_TEXT, ctypes.POINTER(Map), ctypes.c_size_t, ctypes.POINTER(Watch)]),
    "describe": (_TEXT, [_HANDLE]),
    "next": (ctypes.c_int, [_HANDLE, ctypes.c_int64, ctypes.POINTER(Batch)]),
    "release": (None, [ctypes.c_void_p]),
    "state": (_TEXT, [_HANDLE]),
    "load_state": (ctypes.c_int, [_HANDLE, _TEXT]),
    "restart": (ctypes.c_int, [_HANDLE, ctypes.c_uint64]),
    "counters": (_TEXT, [_HANDLE]),
    "plan": (_TEXT, [_HANDLE]),
    "messages": (_TEXT, [_HANDLE]),
    "close": (None, [_HANDLE]),
    "diagnose": (_TEXT, [_TEXT]),
    "machine": (_TEXT, []),
    "sampler_start": (_HANDLE, [ctypes.c_int]),
    "sampler_read": (_TEXT, [_HANDLE]),
    "sampler_stop": (_TEXT, [_HANDLE]),
}


class Library:
    """The functions of the library, by their names without "headrace_"."""

    def __init__(self, path: Path):
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            place = "HEADRACE_LIBRARY" if "HEADRACE_LIBRARY" in os.environ else str(path)
            raise MissingError(f"the library of headrace can't be loaded: {error}", place,
                               "install headrace again from its wheel, which is for Linux on x86-64") from None
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, f"headrace_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)


@functools.lru_cache(maxsize=1)
def library() -> Library:
    """The library, loaded once. HEADRACE_LIBRARY names another library, for tests of a build."""
    return Library(Path(os.environ.get("HEADRACE_LIBRARY") or Path(__file__).resolve().parent / "lib" / "libheadrace.so"))


_KINDS = {"ConfigError": UsageError, "UsageError": MomentError, "DataError": DataError, "SnapshotError": StateError}
# The library's messages name config keys, which are arguments here. Only these keys are replaced, because a file may be called
# data.npy.
_KEYS = re.compile(r"\bdata\.(accept_changed|bad_samples|batch_size|cache|cache_bytes|drop_last|max_bad_fraction|max_buffer_bytes|prefetch|shuffle|workers)\b(?!\.)"
                   r"(=(?:true|false)\b)?")
_ARGUMENTS = {"workers": "readers"}


def in_python(text: str) -> str:
    """Turns a sentence of the library into the terms of this package: data.batch_size=4 becomes batch_size=4."""
    text = _KEYS.sub(lambda found: _ARGUMENTS.get(found[1], found[1]) + {"=true": "=True", "=false": "=False"}.get(found[2], ""), text)
    text = text.replace("take a smaller crop", "give a smaller crop=(height, width)")
    text = text.replace("or accept that they have changed", "or load with accept_changed=True").replace("set train.seed as it was, or begin a new run", "make the loader with that seed")
    return text.replace("the recipe's data()", "the pipeline").replace("the recipe holds", "the loop holds")


def failure() -> Exception:
    """This thread's latest failure as an exception."""
    said = json.loads(library().error())
    if said["kind"] == "MemoryError":
        return MemoryError(f"{said['what']}; {said['next']}")
    return _KINDS.get(said["kind"], Error)(*(in_python(said[part]) for part in ("what", "where", "next")))


def _plain(value):
    """Turns a number of NumPy or torch into a number of Python."""
    try:
        return value.item()
    except (AttributeError, ValueError, RuntimeError):  # or an array of several numbers
        raise TypeError(f"{value!r} is neither a number nor a text") from None


def encoded(description: dict) -> bytes:
    """The description as JSON for the library. Values that JSON can't hold raise an error here, because the library's error would
    not name arguments."""
    try:
        return json.dumps(description, default=_plain, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as error:  # UnicodeEncodeError too
        raise UsageError(f"an argument can't be passed on: {error}", "headrace.Loader()", "give finite numbers, and texts and paths in UTF-8") from None
    except TypeError as error:
        raise KindError(f"an argument is of the wrong type: {error}", "headrace.Loader()", "give plain numbers and texts") from None


def text(result: bytes | None):
    """Parses the JSON text that a function returned."""
    if result is None:
        raise failure()
    return json.loads(result)


def check(code: int) -> int:
    if code == FAILED:
        raise failure()
    return code
