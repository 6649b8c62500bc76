#!/usr/bin/env python3
"""Turns a uvh5 file (visibilities, times before baselines) into the HDF5 layout that recipe cosmology reads.

    tools/uvh5_to_vis.py IN.uvh5 OUT.h5 [--drop-autos] [--times N] [--scale FACTOR]

/Data/visdata (time * baselines, [1,] frequencies, polarisations), time-major -> /vis (baselines, frequencies, times) complex64 of
the first polarisation; /Header/freq_array -> /index_map/freq in MHz; antenna separations -> /index_map/baselines in metres where
the header has them. Units stay those of the file: a signal to go with it must be scaled to them. Needs h5py.
"""

import argparse
import sys

import numpy as np


def fail(what, where, next_):
    sys.exit(f"DataError  {what}\n  where    {where}\n  next     {next_}")


def layout_of(header, blts):
    """Number of baselines, checked: every time must have the same ones in the same order."""
    ants = np.stack([header["ant_1_array"][:], header["ant_2_array"][:]], axis=1)
    times = header["time_array"][:]
    baselines = int(np.count_nonzero(times == times[0]))
    if blts % baselines:
        fail(f"{blts} rows are not whole times of {baselines} baselines", "/Data/visdata", "complete the file first")
    order = ants.reshape(-1, baselines, 2)
    if not (order == order[0]).all() or not (times.reshape(-1, baselines) == times.reshape(-1, baselines)[:, :1]).all():
        fail("the baselines are not in the same order at each time", "/Header/ant_1_array", "reorder the file to time, then baseline")
    return baselines, order[0]


def separations(header, ants):
    """East and north in metres, or None."""
    if "antenna_positions" not in header or "antenna_numbers" not in header:
        return None
    latitude = np.deg2rad(float(header["latitude"][()])) if "latitude" in header else 0.0
    longitude = np.deg2rad(float(header["longitude"][()])) if "longitude" in header else 0.0
    place = {int(n): p for n, p in zip(header["antenna_numbers"][:], header["antenna_positions"][:])}
    d = np.array([place[int(b)] - place[int(a)] for a, b in ants])  # ITRF, relative to the telescope
    east = -np.sin(longitude) * d[:, 0] + np.cos(longitude) * d[:, 1]
    north = (-np.sin(latitude) * (np.cos(longitude) * d[:, 0] + np.sin(longitude) * d[:, 1]) + np.cos(latitude) * d[:, 2])
    return np.stack([east, north], axis=1)


def convert(source, drop_autos=False, times=None, scale=1.0):
    """The arrays of an open uvh5 file: vis, freq_mhz, baselines (or None)."""
    if "Data/visdata" not in source or "Header" not in source:
        fail("no /Data/visdata and /Header", source.filename, "is this a uvh5 file?")
    data, header = source["Data/visdata"], source["Header"]
    cube = data[..., 0]
    if cube.dtype.names:
        cube = cube["r"] + 1j * cube["i"]
    cube = cube.reshape(cube.shape[0], -1)  # rows, frequencies
    baselines, ants = layout_of(header, cube.shape[0])
    cube = cube.reshape(-1, baselines, cube.shape[1]).transpose(1, 2, 0)  # (baselines, frequencies, times)
    keep = ants[:, 0] != ants[:, 1] if drop_autos else np.ones(baselines, bool)
    where = separations(header, ants)
    vis = np.ascontiguousarray(cube[keep][..., : times or cube.shape[2]]) * scale
    freq = np.asarray(header["freq_array"][:]).reshape(-1) / 1e6
    return vis, freq, None if where is None else where[keep]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("out")
    parser.add_argument("--drop-autos", action="store_true", help="leave out baselines of an antenna with itself")
    parser.add_argument("--times", type=int, help="keep this many times")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply by this, e.g. from jansky to kelvin")
    options = parser.parse_args()
    import h5py

    with h5py.File(options.source) as source:
        vis, freq, baselines = convert(source, options.drop_autos, options.times, options.scale)
    for size, name in ((vis.shape[0], "baselines"), (vis.shape[1], "frequencies")):
        if size % 4:
            print(f"notice: {size} {name} do not divide by 4; the U-Net needs that", file=sys.stderr)
    with h5py.File(options.out, "w") as out:
        out["vis"] = vis.astype(np.complex64)
        out["index_map/freq"] = freq
        if baselines is not None:
            out["index_map/baselines"] = baselines
    print(f"{options.out}: /vis {list(vis.shape)} complex64, {freq[0]:.3f} to {freq[-1]:.3f} MHz")


if __name__ == "__main__":
    main()
