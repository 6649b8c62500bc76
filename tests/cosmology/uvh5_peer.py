#!/usr/bin/env python3
"""Files that pyuvdata writes, made into runs by `millrace uvh5`: values compared to the bit, and one short training each.

    uvh5_peer.py MILLRACE FOLDER

MILLRACE is the built program, FOLDER is emptied and used. Where this Python has no pyuvdata, an environment with it is made
beside FOLDER from uvh5_requirements.txt (downloads about 190 MB, once).
"""
import os
import shutil
import subprocess
import sys
import venv
import warnings
from pathlib import Path

CHANNELS = 1024
POLARISATIONS = ("xx", "yy")
WARNING = "times the power of the signal"


def with_pyuvdata(folder):
    """Goes on in a Python that has pyuvdata."""
    try:
        import pyuvdata  # noqa: F401

        return
    except ImportError:
        pass
    place = folder.parent / "pyuvdata-environment"
    python = place / "bin" / "python"
    if os.environ.get("MILLRACE_UVH5_PEER") == str(place):
        sys.exit(f"Error  the environment has no pyuvdata\n  where    {place}\n  next     remove it and run this again")
    if not python.exists():
        venv.create(place, with_pip=True)
    requirements = Path(__file__).resolve().parent / "uvh5_requirements.txt"
    subprocess.run([python, "-m", "pip", "install", "-q", "--require-hashes", "--no-deps", "-r", requirements], check=True)
    os.execve(python, [str(python), *sys.argv], {**os.environ, "MILLRACE_UVH5_PEER": str(place)})


def observe(path, antennas, times, order, interfered=0, turned=False, packing="lzf", integers=False):
    """A smooth sky with noise and flags, and as many channels with interference; returns what was written."""
    import numpy as np
    from astropy.coordinates import EarthLocation
    from pyuvdata import Telescope, UVData

    rng = np.random.default_rng(antennas * 100 + times)
    telescope = Telescope.new(
        name="made up", location=EarthLocation.from_geodetic(21.428, -30.72, 1073), instrument="made up",
        antenna_positions={a: rng.normal(size=3) * 20 for a in range(antennas)}, antenna_diameters=np.full(antennas, 14.0),
        x_orientation="east", feeds=["x", "y"], mount_type="fixed")
    pairs = [(a, b) for a in range(antennas) for b in range(a, antennas)]
    if turned:
        pairs = [(b, a) if (a + b) % 2 else (a, b) for a, b in pairs]
    begin = 2459000.5
    sky = UVData.new(
        freq_array=100e6 + 97656.25 * np.arange(CHANNELS), polarization_array=list(POLARISATIONS), telescope=telescope,
        times=begin + np.arange(times) * 10.7 / 86400, integration_time=10.7, antpairs=pairs, do_blt_outer=True,
        time_axis_faster_than_bls=order == "baseline", vis_units="Jy", empty=True)
    spectrum = (sky.freq_array / 150e6) ** -2.5
    slope = (sky.freq_array - sky.freq_array.mean()) / sky.freq_array.std()
    data = np.zeros(sky.data_array.shape, complex)
    for pair in pairs:
        rows = sky.antpair2ind(*pair)
        turns = (sky.time_array[rows] - begin) * 86400 / 600
        for k in range(4):
            shape = sum(rng.normal() * np.exp(2j * np.pi * (m * turns + rng.random())) for m in range(-2, 3))
            data[rows] += 100 * 10.0**-k * shape[:, None, None] * (spectrum * slope**k)[None, :, None] * np.array([1, 0.7j])

    def noise(shape):
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    data += noise(data.shape) * 1e-3
    hot = rng.choice(CHANNELS, interfered, replace=False)
    data[:, hot] += 300 * noise((data.shape[0], interfered, data.shape[2]))
    sky.data_array = data
    sky.flag_array = rng.random(data.shape) < 0.03
    sky.nsample_array = np.ones(data.shape, np.float32)
    packed = {"data_compression": packing, "flags_compression": "lzf", "nsample_compression": "lzf"}
    if integers:  # as correlators write them
        sky.data_array = np.round(sky.data_array * 1e4)
        packed["data_write_dtype"] = np.dtype([("r", "<i4"), ("i", "<i4")])
    sky.write_uvh5(path, run_check=False, **packed)
    return sky


def run(*words):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\nended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr


def compare(folder, path):
    """/vis of every polarisation against pyuvdata's own reading of the file; how many values were compared."""
    import h5py
    import numpy as np
    from pyuvdata import UVData

    sky = UVData.from_file(path, run_check=False)
    compared = flagged = 0
    for polarisation in POLARISATIONS:
        with h5py.File(folder / "kept" / "foreground" / f"{polarisation}-t0000.h5") as kept:
            values, antennas = kept["vis"][:], kept["index_map/antennas"][:]
            assert bytes(kept["index_map/unit"][:]) == b"Jy"
            assert np.array_equal(kept["index_map/freq"][:], sky.freq_array / 1e6)
            assert np.array_equal(kept["index_map/times"][:], np.unique(sky.time_array))
            lengths = kept["index_map/baselines"][:]
        with h5py.File(folder / "filled" / "foreground" / f"{polarisation}-t0000.h5") as file:
            filled = file["vis"][:]
        assert values.dtype == sky.data_array.dtype
        assert (antennas[:, 0] != antennas[:, 1]).all()
        enu = dict(zip(sky.telescope.antenna_numbers, sky.telescope.get_enu_antpos()))
        for i, (a, b) in enumerate(antennas):
            theirs = sky.get_data(a, b, polarisation).T
            flags = sky.get_flags(a, b, polarisation).T
            assert values[i].tobytes() == np.ascontiguousarray(theirs).tobytes(), (path, polarisation, a, b)
            assert np.array_equal(filled[i][~flags], theirs[~flags])
            # Between the nearest values that are not flagged, as NumPy has it.
            for time in range(theirs.shape[1]):
                good = ~flags[:, time]
                channels = np.arange(CHANNELS)
                expected = np.interp(channels, channels[good], theirs[good, time])
                assert np.allclose(filled[i][:, time], expected, rtol=1e-9, atol=1e-9)
            assert np.allclose(lengths[i], (enu[b] - enu[a])[:2], atol=1e-3)
            compared += values[i].size
            flagged += int(flags.sum())
    return compared, flagged


def main():
    program, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    with_pyuvdata(folder)
    warnings.simplefilter("ignore")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for antennas, baselines in ((3, 3), (5, 10)):
        for times in (12, 60):
            for order in ("baseline", "time"):
                place = folder / f"{baselines}x{times}-{order}"
                place.mkdir()
                path = place / "night.uvh5"
                observe(path, antennas, times, order, turned=order == "time")
                run(program, "uvh5", path, "--out", place / "kept", "--flags=keep", "--times-per-file=all")
                run(program, "uvh5", path, "--out", place / "filled", "--times-per-file=all")
                compared, flagged = compare(place, path)
                run(program, "uvh5", path, "--out", place / "sky", "--make-signal=0.01", "--signals=8")
                said = train(program, place)
                assert WARNING not in said, said
                print(f"{place.name}: {compared:,} values equal to the bit, {flagged:,} flagged; trained, no warning", flush=True)
                shutil.rmtree(place)
    for name, packing, integers in (("bitshuffle", "bitshuffle", False), ("integers", "bitshuffle", True)):
        place = folder / name
        place.mkdir()
        observe(place / "night.uvh5", 3, 12, "time", turned=True, packing=packing, integers=integers)
        run(program, "uvh5", place / "night.uvh5", "--out", place / "kept", "--flags=keep", "--times-per-file=all")
        run(program, "uvh5", place / "night.uvh5", "--out", place / "filled", "--times-per-file=all")
        compared, _ = compare(place, place / "night.uvh5")
        print(f"{name}: {compared:,} values equal to the bit", flush=True)
    place = folder / "interference"
    place.mkdir()
    observe(place / "night.uvh5", 5, 60, "time", interfered=60)
    run(program, "uvh5", place / "night.uvh5", "--out", place / "sky", "--make-signal=0.01", "--signals=8")
    said = train(program, place)
    assert WARNING in said, said
    print("interference: " + next(line for line in said.splitlines() if WARNING in line))


def train(program, place):
    words = ["--train.max_steps=2", "--recipe.filters=4", "--run", place / "run", "--precision.dtype=fp32"]
    said = run(program, "train", "cosmology", "--config", place / "sky" / "train.json", *words)
    assert "done at step 2" in said, said
    return said


if __name__ == "__main__":
    main()
