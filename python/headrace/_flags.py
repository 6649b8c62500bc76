"""Values of a config as words of the program `millrace`."""
from __future__ import annotations

import json
import os
from typing import Any, Iterator, Mapping

from headrace.errors import KindError


def _plain(value: Any) -> Any:
    """A value for JSON: numbers and arrays of NumPy and torch as those of Python, paths as texts. Raises TypeError with the type of another."""
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, (list, tuple)):
        return [None if each is None else _plain(each) for each in value]
    if isinstance(value, Mapping):  # in a list
        return {str(key): None if each is None else _plain(each) for key, each in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return _plain(value)
    if not isinstance(value, (str, bool, int, float)):
        raise TypeError(type(value).__name__)
    return value


def flags(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The words --section.key=value of a config, for the program."""
    for key, value in values.items():
        if not isinstance(key, str):
            raise KindError(f"the key {key!r} is no text", "headrace.train", 'write {"section.key": value} or {"section": {"key": value}}')
        if isinstance(value, Mapping):
            yield from flags(value, f"{prefix}{key}.")
            continue
        try:
            plain = _plain(value)
        except TypeError as error:
            raise KindError(f"{prefix}{key} is a {error}", "headrace.train", "give a number, a text, True or False, or a list of them") from None
        yield f"--{prefix}{key}={plain if isinstance(plain, str) else json.dumps(plain)}"
