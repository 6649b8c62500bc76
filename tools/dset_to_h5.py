#!/usr/bin/env python3
"""Turns a session's .dset (a Python pickle of {covariates, metadata}) into the HDF5 file that recipe neural_response reads.

    tools/python-peer tools/dset_to_h5.py IN.dset OUT/SESSION/TYPE.h5 [--trusted] [--source-rate 240]

Covariates: stim (T,H,W), robs (T,U), eyepos (T,2), dpi_valid (T), trial_inds (T), t_bins (T), and missing_pct (T,U) where there is
one. A file that holds tensors alone is read without running anything in it. Most hold objects as metadata too: they are read with
--trusted only, and then the file can run any program. Use it for files that you trust. Needs torch and h5py.
"""

import argparse
import importlib
import pickle
import sys
import types
from pathlib import Path


def fail(what, where, next_):
    sys.exit(f"DataError  {what}\n  where    {where}\n  next     {next_}")


def needed(name):
    """A module that not every Python has."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:  # OSError: a library of torch is missing
        fail(f"{name} can't be imported: {error}", sys.executable, f"start this with tools/python-peer in place of python3, or install {name}")


np = needed("numpy")

# name: (axes, type in the file; None: any of u8, u16, f32)
COVARIATES = {
    "stim": (3, np.uint8),
    "robs": (2, None),
    "eyepos": (2, np.float32),
    "dpi_valid": (1, np.uint8),
    "trial_inds": (1, np.int64),
    "t_bins": (1, np.float64),
}
OPTIONAL = {"missing_pct": (2, np.float32)}
FRAMES_PER_CHUNK = 64


def counts_type(values):
    """The smallest of u8, u16 and f32 that holds all values."""
    if values.size and ((values < 0) | ~np.isfinite(values)).any():
        return np.float32  # the recipe reports which value it is, and in which session
    if (values != np.floor(values)).any() or values.max(initial=0) > 65535:
        return np.float32
    return np.uint8 if values.max(initial=0) < 256 else np.uint16


def convert(covariates, name):
    """Arrays of the session file, from the covariates of a .dset."""
    arrays = {}
    for key, (axes, dtype) in {**COVARIATES, **OPTIONAL}.items():
        if key not in covariates:
            if key in OPTIONAL:
                continue
            fail(f"no covariate {key} (has: {', '.join(sorted(map(str, covariates)))})", name, "is this a .dset of a session?")
        values = np.asarray(covariates[key])
        if key == "stim" and values.ndim == 4 and values.shape[1] == 1:
            values = values[:, 0]
        if key != "stim" and values.ndim == axes + 1 and values.shape[-1] == 1:
            values = values[..., 0]
        if values.ndim != axes:
            fail(f"{key} is {list(values.shape)}, expected {axes} axes", name, "the first axis is time")
        if key == "stim" and values.dtype != np.uint8:
            if values.size and (values.min() < 0 or values.max() > 255 or (values != np.round(values)).any()):
                fail(f"stim is {values.dtype} and not grey levels from 0 to 255", name, "convert the .dset before its stimulus was normalised")
        if key == "dpi_valid":
            values = values > 0
        arrays[key] = np.ascontiguousarray(values, dtype=dtype or counts_type(values))
    for key, values in arrays.items():
        if len(values) != len(arrays["stim"]):
            fail(f"{key} has {len(values)} bins, stim has {len(arrays['stim'])}", name, "write all covariates with the same bins")
    return arrays


def write_session(out, arrays, session, type_, source_rate):
    h5py = needed("h5py")
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(out, "w") as file:
        for key, values in arrays.items():
            chunk = (min(FRAMES_PER_CHUNK, len(values)), *values.shape[1:]) if key == "stim" and len(values) else None
            file.create_dataset(key, data=values, chunks=chunk)
        file.attrs.update({"session": session, "type": type_, "source_rate": source_rate})


class Missing:
    """Stands for an object whose class is not installed: its state is read and forgotten."""

    def __init__(self, *_, **__):
        pass

    def __setstate__(self, _):
        pass


class Forgiving(pickle.Unpickler):
    def find_class(self, module, name):
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return Missing


def load(path, trusted):
    """The covariates of a .dset."""
    torch = needed("torch")
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        if not trusted:
            fail(
                "the file holds more than tensors: reading it can run any program",
                path,
                "if you trust whoever made it, run this again with --trusted",
            )
        print(f"notice: {path} is unpickled, as --trusted allows", file=sys.stderr)
        forgiving = types.ModuleType("forgiving")
        forgiving.Unpickler, forgiving.load = Forgiving, lambda *a, **k: Forgiving(*a, **k).load()
        stored = torch.load(path, map_location="cpu", weights_only=False, pickle_module=forgiving)
    if not isinstance(stored, dict) or "covariates" not in stored:
        fail("no covariates in the file", path, "is this a .dset of a session?")
    return stored["covariates"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("out")
    parser.add_argument("--trusted", action="store_true", help="unpickle objects too: the file can then run any program")
    parser.add_argument("--source-rate", type=float, default=240.0, help="bins per second")
    options = parser.parse_args()
    arrays = convert(load(options.source, options.trusted), options.source)
    out = Path(options.out)
    write_session(out, arrays, out.absolute().parent.name, out.stem, options.source_rate)
    print(f"{out}: {len(arrays['stim'])} bins, frames {list(arrays['stim'].shape[1:])}, {arrays['robs'].shape[1]} units as {arrays['robs'].dtype}")


if __name__ == "__main__":
    main()
