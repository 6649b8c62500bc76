"""Writes made-up data for the scripts in before/ and after/: python data.py FOLDER [--large]

Radio maps as HDF5, stimuli and spikes as NumPy files, volumes as NIfTI, a text as tokens, photographs as JPEG. Small: in seconds, to see that
the scripts run. --large: some 300 MB, to compare their speed.
"""
import sys
from pathlib import Path

import h5py
import nibabel
import numpy
from PIL import Image


def write(folder: Path, large: bool) -> None:
    draws = numpy.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / "sky.h5", "w") as file:
        for name in ("vis", "truth"):
            maps = draws.standard_normal((22, 4, 16), dtype=numpy.float32)
            file.create_dataset(name, data=maps, chunks=(1, 4, 16), compression="gzip")
    rows = 200_000 if large else 500
    numpy.save(folder / "stimulus.npy", draws.standard_normal((rows, 64), dtype=numpy.float32))
    numpy.save(folder / "spikes.npy", draws.poisson(2, (rows, 8)).astype(numpy.float32))
    for number in range(24 if large else 5):
        edge = 96 if large else 8
        volume = draws.normal(100, 20, (edge, edge, edge)).astype(numpy.int16)
        nibabel.save(nibabel.Nifti1Image(volume, numpy.eye(4)), folder / f"scan{number}.nii.gz")
    draws.integers(0, 50, 40 * 32, dtype=numpy.uint16).tofile(folder / "text.bin")
    for label in ("sharp", "blurred"):
        (folder / "photos" / label).mkdir(parents=True, exist_ok=True)
        for number in range(200 if large else 6):
            height, width = (375, 500) if large else (80, 96)
            coarse = draws.integers(0, 255, (height // 8, width // 8, 3), dtype=numpy.uint8)
            Image.fromarray(coarse).resize((width, height)).save(folder / "photos" / label / f"{number}.jpg", quality=90)


if __name__ == "__main__":
    write(Path(sys.argv[1]), "--large" in sys.argv)
