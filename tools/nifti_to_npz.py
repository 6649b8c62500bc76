#!/usr/bin/env python3
"""Turns NIfTI volumes into pairs that recipe autoencoder_3d reads: arrays (2, D, H, W) of 32-bit floats, low count, then high count.

    tools/nifti_to_npz.py IN.nii.gz ... --out DATA [--q 40] [--blocks 64] [--block 32 64 64] [--val 0.25] [--seed 0]

A series of volumes gives its first two. A single volume is its own high-count image; its low-count copy is Poisson(q v) / q, where v is
0 at the least value and 1 at percentile 99.5, brought back to the volume's values. D, H, W are z, y, x.

Without --blocks writes DATA/NAME.npz. A run takes one crop of each file in an epoch, so one large volume would be one sample: --blocks N
writes N overlapping blocks of each volume to DATA/train, and as many to DATA/val as makes up the share --val. The two do not overlap: the last
--val of the longest axis is for validation. --block is the size of a block in D, H, W, at least the crop that is trained on; a volume that is
smaller gives smaller blocks. Needs nibabel.
"""

import argparse
from pathlib import Path

import numpy as np

from dset_to_h5 import fail


def pair_of(values, q, rng, name):
    """(2, D, H, W) of an array (x, y, z) or (x, y, z, t)."""
    if values.ndim == 4 and values.shape[3] == 1:
        values = values[..., 0]
    if values.ndim not in (3, 4) or 0 in values.shape:
        fail(f"the volume is {list(values.shape)}, expected (x, y, z) or (x, y, z, t)", name, "give a volume or a series of volumes")
    if not np.isfinite(values).all():
        fail("a voxel is not finite", name, "repair the volume")
    if values.ndim == 4:
        pair = np.stack([values[..., 0].T, values[..., 1].T])
    else:
        high = np.asarray(values.T, np.float64)
        low, top = high.min(), np.percentile(high, 99.5)
        width = top - low if top > low else 1.0
        pair = np.stack([rng.poisson(q * (high - low) / width) / q * width + low, high])
    return np.ascontiguousarray(pair, np.float32)


def blocks_of(pair, count, size, share, rng):
    """Training and validation blocks, from two parts of the volume along its longest axis."""
    shape = pair.shape[1:]
    axis = int(np.argmax(shape))
    cut = shape[axis] - max(1, round(share * shape[axis])) if share > 0 else shape[axis]
    held_out = max(1, round(count * share / (1 - share))) if share > 0 else 0
    parts = []
    for begin, end, number in ((0, cut, count), (cut, shape[axis], held_out)):
        low, high = [0, 0, 0], list(shape)
        low[axis], high[axis] = begin, end
        blocks = []
        for _ in range(number):
            place = []
            for a in range(3):
                length = min(size[a], high[a] - low[a])
                first = int(rng.integers(low[a], high[a] - length + 1))
                place.append(slice(first, first + length))
            blocks.append(pair[(slice(None), *place)])
        parts.append(blocks)
    return parts


def stem(path):
    name = Path(path).name
    for ending in (".nii.gz", ".nii", ".hdr", ".img"):
        name = name.removesuffix(ending)
    return name


def convert(volumes, out, q=40.0, blocks=0, block=(64, 64, 64), share=0.25, seed=0):
    """`volumes`: (name, array) pairs. Writes the files and returns their number in each folder."""
    out = Path(out)
    written = {}

    def write(folder, name, array):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.npz"
        if path.exists():
            fail("there is a file of that name", path, "give another --out, or volumes of different names")
        np.savez(path, array)
        written[folder.name] = written.get(folder.name, 0) + 1

    for number, (name, values) in enumerate(volumes):
        rng = np.random.default_rng([seed, number])
        pair = pair_of(values, q, rng, name)
        if blocks == 0:
            write(out, stem(name), pair)
            continue
        for folder, parts in zip(("train", "val"), blocks_of(pair, blocks, block, share, rng)):
            for index, part in enumerate(parts):
                write(out / folder, f"{stem(name)}-{index:03d}", part)
    return written


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("volumes", nargs="+")
    parser.add_argument("--out", required=True)
    parser.add_argument("--q", type=float, default=40.0, help="counts at intensity 1 of the low-count copy")
    parser.add_argument("--blocks", type=int, default=0, help="training blocks of each volume; 0 = whole volumes")
    parser.add_argument("--block", type=int, nargs=3, default=(64, 64, 64), metavar=("D", "H", "W"))
    parser.add_argument("--val", type=float, default=0.25, help="part of the longest axis that validates, with --blocks")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not options.q > 0 or not 0 <= options.val < 1 or options.blocks < 0 or min(options.block) < 1:
        fail("a number is out of range", "--q, --val, --blocks or --block", "give q > 0, 0 <= val < 1, blocks of 1 and more")
    try:
        import nibabel
    except ImportError:
        fail("nibabel is missing", "import nibabel", "pip install nibabel")

    def arrays():
        for path in options.volumes:
            try:
                yield path, np.asarray(nibabel.load(path).dataobj)
            except (OSError, EOFError, nibabel.filebasedimages.ImageFileError) as error:
                fail(str(error), path, "give a readable NIfTI file")

    written = convert(arrays(), options.out, options.q, options.blocks, tuple(options.block), options.val, options.seed)
    print(f"{options.out}: " + ", ".join(f"{count} files in {folder}" for folder, count in written.items()))


if __name__ == "__main__":
    main()
