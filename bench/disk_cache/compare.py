"""Compares data.cache=disk on packed volumes with decoding them each time, and with Python that keeps decoded volumes in its own files.

    cmake --preset release -DMILLRACE_BENCH=ON && ninja -C build/release bench_disk_cache
    tools/python-peer bench/disk_cache/compare.py build/release/bench/disk_cache/bench_disk_cache --json disk.json

Volumes of 16-bit numbers (--shape, --files) are made once under build/. Both sides deliver batches of 32-bit float crops, one random crop
of each volume an epoch. Ours: data.cache=disk, and off. Python: a Dataset that reads with nibabel and numpy.saves the volume in the first
epoch, and numpy.loads it with mmap_mode="r" after; and one that reads with nibabel each time; DataLoader with 0 and with 2 workers. A
round runs all of them one after the other, each with an empty folder; seconds of an epoch are those of the first, and the mean of the
later ones. Figures are medians over rounds; a ratio is the median of the rounds' ratios.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import nibabel
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

ROOT = Path(__file__).resolve().parents[2]


class Volumes(Dataset):
    def __init__(self, files, crop, kept):
        self.files, self.crop, self.kept = files, crop, kept

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path = self.files[index]
        mine = self.kept / (path.name + ".npy") if self.kept else None
        if mine and mine.exists():
            volume = np.load(mine, mmap_mode="r")
        else:
            volume = np.ascontiguousarray(np.asarray(nibabel.load(path).dataobj).T)
            if mine:
                part = mine.with_name(f"{mine.name}.{os.getpid()}.npy")
                np.save(part, volume)
                part.rename(mine)
        place = [int(torch.randint(0, n - c + 1, ())) for n, c in zip(volume.shape, self.crop)]
        block = volume[tuple(slice(p, p + c) for p, c in zip(place, self.crop))]
        return torch.from_numpy(block.astype(np.float32))[None]


def python_epochs(files, crop, batch, workers, kept, epochs):
    loader = DataLoader(Volumes(files, crop, kept), batch_size=batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    seconds = []
    for _ in range(epochs):
        began = time.perf_counter()
        for block in loader:
            float(block.view(-1)[0])
        seconds.append(time.perf_counter() - began)
    return seconds


def make(folder, count, shape):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    grid = np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij")
    smooth = np.exp(-3 * sum(g * g for g in grid)) * 900
    for i in range(count):
        path = folder / f"v{i:03d}.nii.gz"
        if not path.exists():
            values = (smooth * rng.uniform(0.5, 1) + rng.normal(0, 12, shape)).astype(np.int16)
            nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), path)
    return sorted(folder.glob("*.nii.gz"))[:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--shape", type=int, nargs=3, default=(192, 192, 96))
    parser.add_argument("--crop", type=int, nargs=3, default=(64, 64, 64))
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    name = "x".join(map(str, options.shape))
    folder = ROOT / "build" / f"disk-cache-{name}"
    files = make(folder / f"volumes-{options.files}", options.files, tuple(options.shape))
    kept = folder / "kept"
    sides = {}

    def add(side, seconds):
        sides.setdefault(side + ", first epoch", []).append(seconds[0])
        sides.setdefault(side + ", later epochs", []).append(statistics.mean(seconds[1:]))

    def ours(readers, off=False):
        words = [options.program, files[0].parent, kept, readers, options.batch, *options.crop, options.epochs]
        done = subprocess.run([*map(str, words), *(["off"] if off else [])], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)["seconds"]

    for _ in range(options.rounds):
        for workers in (0, 2):
            for side, run in ((f"ours, disk, {workers}", lambda w=workers: ours(w)), (f"ours, off, {workers}", lambda w=workers: ours(w, True)),
                              (f"python, kept, {workers}", lambda w=workers: python_epochs(files, options.crop, options.batch, w, kept, options.epochs)),
                              (f"python, anew, {workers}", lambda w=workers: python_epochs(files, options.crop, options.batch, w, None, 2))):
                shutil.rmtree(kept, ignore_errors=True)
                kept.mkdir()
                add(side, run())
    shutil.rmtree(kept, ignore_errors=True)
    result = {"machine": next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?"),
              "load": os.getloadavg()[0], "decoded_mb": options.files * np.prod(options.shape) * 2 / 1e6,
              "milliseconds_a_crop": {side: statistics.median(s) / len(files) * 1e3 for side, s in sides.items()}, "ratios": {}}
    later = {side.removesuffix(", later epochs"): seconds for side, seconds in sides.items() if side.endswith("later epochs")}

    def ratio(text, over, under):
        result["ratios"][text] = statistics.median(a / b for a, b in zip(over, under))

    for workers in (0, 2):
        kept_by_us = later[f"ours, disk, {workers}"]
        ratio(f"decoding anew (ours) / disk, {workers} readers", later[f"ours, off, {workers}"], kept_by_us)
        ratio(f"first epoch / later epochs of disk, {workers} readers", sides[f"ours, disk, {workers}, first epoch"], kept_by_us)
        ratio(f"first epoch that keeps / one that does not, {workers} readers", sides[f"ours, disk, {workers}, first epoch"],
              sides[f"ours, off, {workers}, first epoch"])
        ratio(f"decoding anew (python) / disk, {workers}", later[f"python, anew, {workers}"], kept_by_us)
        ratio(f"python that keeps / disk, {workers}", later[f"python, kept, {workers}"], kept_by_us)
    best = [min(a, b) for a, b in zip(later["python, kept, 0"], later["python, kept, 2"])]
    mine = [min(a, b) for a, b in zip(later["ours, disk, 0"], later["ours, disk, 2"])]
    ratio("best python that keeps / best disk", best, mine)
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n")


if __name__ == "__main__":
    main()
