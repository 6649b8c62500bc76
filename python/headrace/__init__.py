"""Headrace: for every training loop of PyTorch.

Nothing here imports torch or NumPy before it is used.
"""
from __future__ import annotations

import importlib

# Maps each name to the module that has it. A module is imported when one of its names is used. No module may have the name of a
# function, because importing it would put the module in the function's place.
_PLACES = {
    "exact": "_exact", "Exact": "_exact", "sample_seed": "_exact",
    "runs": "_runs", "Run": "_runs", "RunError": "_runs", "train": "_runs",
    "watch": "_watch", "Watch": "_watch",
    "Loader": "loader", "LoaderWarning": "loader",
    "Pipeline": "pipeline", "Step": "pipeline",
    "hdf5": "pipeline", "nifti": "pipeline", "images": "pipeline", "npy": "pipeline", "npz": "pipeline", "csv": "pipeline",
    "tokens": "pipeline", "concat": "pipeline", "groups": "pipeline",
    "random_crop": "pipeline", "centre_crop": "pipeline", "pad": "pipeline", "random_flip": "pipeline", "random_roll": "pipeline",
    "normalise": "pipeline", "gaussian_noise": "pipeline",
    "Error": "errors", "UsageError": "errors", "KindError": "errors", "StateError": "errors", "MomentError": "errors", "DataError": "errors",
    "FileError": "errors", "MissingError": "errors", "PackageError": "errors",
}

__all__ = list(_PLACES)


def __getattr__(name: str):
    if name in _PLACES:
        return getattr(importlib.import_module(f"headrace.{_PLACES[name]}"), name)
    if name in ("hf", "lightning", "errors"):
        return importlib.import_module(f"headrace.{name}")
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
