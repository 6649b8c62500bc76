"""Measures the time until the first batch over many HDF5 files: without an index, with one, and h5py opening the same files.

    tools/python-peer bench/start/compare.py build/release/bench/start/bench_start [--files 3000] [--rounds 7] [--json FILE]

Makes files of two small data sets (a compressed 16 x 16 and 16 floats) below build/, once. In every round each side runs in a
process of its own, one after the other; a figure is the median of the rounds, a ratio that of the rounds' ratios. h5py opens each
file and asks both data sets for their shape, which is less than what a reader must know (where each chunk is). Exit status 1 when
a bar is missed: 1.2 s without an index and 0.3 s with one, for 3,000 files.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import h5py
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BARS = {"without": 1.2, "with": 0.3}
PEER = """
import os, sys, time, h5py
began = time.perf_counter()
for name in sorted(os.listdir(sys.argv[1])):
    with h5py.File(os.path.join(sys.argv[1], name)) as file:
        file["x"].shape, file["y"].shape
print(time.perf_counter() - began)
"""


def make_files(folder, count):
    if folder.exists() and len(os.listdir(folder)) == count:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    originals = []
    for i in range(count):
        path = folder / f"s{i:06d}.h5"
        if i < 100:
            with h5py.File(path, "w") as file:
                numbers = draw.normal(size=(16, 16)).astype("f4")
                file.create_dataset("x", data=numbers, chunks=(8, 16), compression="gzip", shuffle=True)
                file.create_dataset("y", data=draw.normal(size=16).astype("f4"))
            originals.append(path)
        else:
            shutil.copyfile(originals[i % 100], path)
    time.sleep(3)  # the index keeps nothing about files that have just changed


def ours(program, folder, *index):
    return json.loads(subprocess.run([program, folder, *index], check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--files", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json")
    options = parser.parse_args()
    folder = ROOT / "build" / f"start-data-{options.files}"
    index = ROOT / "build" / f"start-index-{options.files}"
    make_files(folder, options.files)
    shutil.rmtree(index, ignore_errors=True)
    first = ours(options.program, folder, index)  # makes the index
    seconds = {"without": [], "with": [], "h5py": []}
    for _ in range(options.rounds):
        seconds["without"].append(ours(options.program, folder)["first_batch_s"])
        known = ours(options.program, folder, index)
        assert known["described"] == 0, known
        seconds["with"].append(known["first_batch_s"])
        peer = subprocess.run([sys.executable, "-c", PEER, folder], check=True, capture_output=True, text=True).stdout
        seconds["h5py"].append(float(peer))
    result = {"files": options.files, "load": os.getloadavg()[0], "writing_the_index_s": first["first_batch_s"]}
    failed = False
    print(f"{options.files} files, first batch; load {result['load']:.2f}; with the index to write {first['first_batch_s']:.3f} s")
    for side, values in seconds.items():
        ratio = median(b / a for a, b in zip(values, seconds["h5py"]))
        result[side] = {"s": median(values), "h5py_over_this": ratio}
        missed = options.files == 3000 and median(values) > BARS.get(side, float("inf"))
        failed = failed or missed
        print(f"  {side:8} {median(values):8.3f} s   h5py / this {ratio:6.2f}{'   MISSED' if missed else ''}")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
