"""Headrace: for every training loop of PyTorch.

Nothing here imports torch or NumPy before it is used.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers, which don't look into __getattr__; the same names as below
    from headrace import errors as errors, hf as hf, lightning as lightning
    from headrace._exact import Exact as Exact, exact as exact, sample_seed as sample_seed
    from headrace._runs import Run as Run, RunError as RunError, runs as runs, train as train
    from headrace._watch import Watch as Watch, watch as watch
    from headrace.errors import (
        DataError as DataError, Error as Error, FileError as FileError, KindError as KindError, MissingError as MissingError,
        MomentError as MomentError, PackageError as PackageError, StateError as StateError, UsageError as UsageError)
    from headrace.loader import Loader as Loader, LoaderWarning as LoaderWarning
    from headrace.pipeline import (
        Pipeline as Pipeline, Step as Step, centre_crop as centre_crop, concat as concat, csv as csv, gaussian_noise as gaussian_noise,
        groups as groups, hdf5 as hdf5, images as images, nifti as nifti, normalise as normalise, npy as npy, npz as npz, pad as pad,
        random_crop as random_crop, random_flip as random_flip, random_roll as random_roll, tokens as tokens)

    __version__: str

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
    if name == "__version__":
        return importlib.import_module("headrace._library").library().version().decode()
    if name in ("hf", "lightning", "errors"):
        return importlib.import_module(f"headrace.{name}")
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES, "__version__"])
