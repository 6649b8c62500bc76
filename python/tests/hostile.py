"""What users do to a loader: breaks off early, forks, keeps tensors, ends the interpreter, presses Ctrl-C, damages files, raises.

    tools/python-peer python/tests/hostile.py [--times 10000] [--only forks,damage]

Each part says how often it was done, how much memory and how many threads and descriptors it left, and what went wrong. It must leave none,
never hang, never crash, and say a sentence wherever the loader can't go on. hostile_peer_test.py does a little of each.
"""
import argparse
import collections
import gc
import gzip
import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings
from pathlib import Path

import h5py
import numpy as np

PACKAGE = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("MILLRACE_BUILD") or PACKAGE.parent / "build/release").resolve()
os.environ.setdefault("HEADRACE_LIBRARY", str(BUILD / "libheadrace.so"))
sys.path.insert(0, str(PACKAGE))
import headrace as mr  # noqa: E402

ROWS = 48
SECONDS = 120  # a process that takes longer hangs
AS = None      # what batches are in the processes of exits and ctrl_c: importing torch takes most of their time


def held():
    """(MB of memory, threads, descriptors) of this process."""
    gc.collect()
    memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
    return memory, len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


class Files:
    """Small data of every kind in a folder."""

    def __init__(self, folder, count=100):
        self.folder = Path(folder)
        draws = np.random.default_rng(0)
        self.x = draws.random((ROWS, 3, 4), dtype=np.float32)
        np.save(self.folder / "x.npy", self.x)
        np.save(self.folder / "n.npy", np.arange(ROWS))
        for kind in ("npz", "h5", "nii.gz", "jpg"):
            (self.folder / kind).mkdir(exist_ok=True)
        header = np.zeros(352, np.uint8)
        for at, value in ((0, np.int32(348)), (40, np.array([3, 8, 8, 8, 1, 1, 1, 1], np.int16)), (70, np.array([4, 16], np.int16)),
                          (76, np.ones(8, np.float32)), (108, np.array([352, 1, 0], np.float32)), (344, np.frombuffer(b"n+1\0", np.uint8))):
            header[at:at + value.nbytes] = np.frombuffer(value.tobytes(), np.uint8)
        for i in range(count):
            np.savez(self.folder / f"npz/{i:04}.npz", n=np.array(i), x=draws.random(64, dtype=np.float32))
            with h5py.File(self.folder / f"h5/{i:04}.h5", "w") as file:
                file.create_dataset("x", data=draws.random((4, 16, 16), dtype=np.float32), chunks=(1, 16, 16), compression="gzip")
            volume = draws.integers(0, 99, (8, 8, 8), dtype=np.int16)
            (self.folder / f"nii.gz/{i:04}.nii.gz").write_bytes(gzip.compress(header.tobytes() + volume.tobytes(), 1))
        try:
            from PIL import Image
            for i in range(count):
                Image.fromarray(draws.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(self.folder / f"jpg/{i:04}.jpg")
        except ImportError:
            pass

    def rows(self):
        return mr.npy({"x": self.folder / "x.npy", "n": self.folder / "n.npy"})

    def pipelines(self):
        """Kind -> its pipeline, of those that have files."""
        makes = {"npz": lambda path: mr.npz(path), "h5": lambda path: mr.hdf5(path, {"x": "/x"}), "nii.gz": lambda path: mr.nifti(path, crop=(4, 4, 4)),
                 "jpg": lambda path: mr.images(path, crop=(32, 32))}
        return {kind: make(str(self.folder / kind / f"*.{kind}")) for kind, make in makes.items() if any((self.folder / kind).iterdir())}


def broken_off(files, times, draws):
    """Loaders that a loop leaves at a random batch; some are closed, some are forgotten."""
    for _ in range(times):
        loader = mr.Loader(files.rows(), 8, shuffle=True, readers=draws.choice([0, 1, 2]), prefetch=draws.randint(1, 4))
        stop = draws.randrange(7)
        for number, batch in enumerate(loader):
            if number == stop:
                break
        if draws.random() < 0.5:
            loader.close()


def kept(files, times, draws):
    """Arrays that outlive their loader, and die in any order."""
    held_arrays = collections.deque()
    for _ in range(times):
        with mr.Loader(files.rows(), 8, readers=draws.choice([0, 2]), as_=draws.choice(["numpy", None])) as loader:
            stop = draws.randrange(1, 6)
            held_arrays.extend((number, batch["x"][2:]) for number, batch in zip(range(stop), loader))
        while len(held_arrays) > 20:
            held_arrays.rotate(draws.randrange(20))
            number, rows = held_arrays.pop()
            assert np.array_equal(np.asarray(rows), files.x[8 * number + 2:8 * number + 8]), "a kept array has changed"


def forks(files, times, draws):
    """A child of a process with an open loader: the loader says so there, another one works, and the parent's goes on."""
    for _ in range(times):
        loader = mr.Loader(files.rows(), 8, readers=draws.choice([0, 2]), as_="numpy")
        batches = iter(loader)
        batch = next(batches)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                next(batches)
            except mr.MomentError as error:
                status = 0 if "fork" in error.what else 2
            del batch
            loader.close()
            with mr.Loader(files.rows(), 8, readers=1, as_="numpy") as other:
                status += 10 * (sum(len(some["n"]) for some in other) != ROWS)
            os._exit(status)
        _, status = os.waitpid(child, 0)
        assert status == 0, f"a fork ended with {status}"
        assert sum(len(some["n"]) for some in batches) == ROWS - 8
        loader.close()


def process(files, code, **options):
    prologue = f"""
        import atexit, functools, os, signal, sys, threading, time
        sys.path.insert(0, {str(PACKAGE)!r})
        import headrace as mr
        import {AS or "torch"}, numpy  # Ctrl-C while they are imported is theirs
        os.chdir({str(files.folder)!r})
        Loader = functools.partial(mr.Loader, as_={AS!r})
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def slow(sample, draws):
            time.sleep(0.02)
            return {{"y": 1}}
        rows = mr.npy({{"x": "x.npy", "n": "n.npy"}})
        slow_rows = rows.map(slow, {{"y": ("i64", ())}})
    """
    script = textwrap.dedent(prologue) + textwrap.dedent(code)
    return subprocess.Popen([sys.executable, "-X", "faulthandler", "-c", script], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


ENDS = {  # how a program ends in the middle of an epoch: (code, exit status, what it may say)
    "the end of the script": ("l = Loader(rows, 4, readers=2)\nb = next(iter(l))", 0, ""),
    "sys.exit": ("l = Loader(rows, 4, readers=2)\nb = next(iter(l))\nsys.exit(3)", 3, ""),
    "an exception": ("l = Loader(rows, 4, readers=2)\nfor b in l: raise ValueError('mine')", 1, "mine"),
    "os._exit": ("l = Loader(slow_rows, 4, readers=2)\nb = next(iter(l))\nos._exit(3)", 3, ""),
    "readers in Python": ("l = Loader(slow_rows, 4, readers=4)\nb = next(iter(l))\nsys.exit(3)", 3, ""),
    "a loop in atexit": ("l = Loader(rows, 4, readers=2)\natexit.register(lambda: next(iter(l)))\nsys.exit(3)", 3, ""),
    "a daemon thread in a loop": ("l = Loader(slow_rows, 4, readers=2)\nthreading.Thread(target=lambda: [None for b in l], daemon=True).start()\n"
                                  "time.sleep(0.1)\nsys.exit(3)", 3, ""),
    "a reference cycle": ("l = Loader(rows, 4, readers=2)\nl.me = l\nl.batch = next(iter(l))\nsys.exit(3)", 3, ""),
}


def finished(started, what):
    try:
        out, err = started.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        started.kill()
        raise AssertionError(f"{what}: hangs; {started.communicate()[1][-2000:]}") from None
    return started.returncode, out, err


def exits(files, times, draws):
    """The interpreter ends in mid-epoch."""
    for number in range(times):
        what, (code, status, word) = list(ENDS.items())[number % len(ENDS)]
        got, _, err = finished(process(files, code), what)
        assert got == status and (word in err if word else err == ""), f"{what}: status {got}: {err}"


PHASES = {  # what is going on when Ctrl-C comes; each prints "begun" just before
    "opening": "print('begun', flush=True)\nfor _ in range(100000): Loader(rows, 4, readers=2).close()",
    "waiting for a reader": "l = Loader(slow_rows, 16, readers=1)\nprint('begun', flush=True)\nwhile True:\n    for b in l: pass",
    "reading in the loop's thread": "l = Loader(slow_rows, 16, readers=0)\nprint('begun', flush=True)\nwhile True:\n    for b in l: pass",
    "a step": "l = Loader(rows, 16, readers=2)\nprint('begun', flush=True)\nwhile True:\n    for b in l: time.sleep(0.01)",
    "quick epochs": "l = Loader(rows, 16, readers=0)\nprint('begun', flush=True)\nwhile True:\n    for b in l: pass",
    "states": "l = Loader(rows, 16, readers=1)\nprint('begun', flush=True)\nwhile True:\n    l.load_state_dict(l.state_dict())\n    next(iter(l))",
}


def ctrl_c(files, times, draws):
    """Ctrl-C at a random moment of each phase: it is heard, and the program ends by itself."""
    for number in range(times):
        what, code = list(PHASES.items())[number % len(PHASES)]
        whole = "try:\n" + textwrap.indent(code, "    ") + "\nexcept KeyboardInterrupt:\n    print('heard', flush=True)\n    sys.exit(5)\n"
        started = process(files, whole)
        begun = started.stdout.readline()
        assert begun == "begun\n", finished(started, what)
        time.sleep(draws.random() * 0.3)
        started.send_signal(signal.SIGINT)
        try:
            started.wait(timeout=10)
        except subprocess.TimeoutExpired:  # in a __del__ an interruption is printed and dropped by Python itself: users press again
            started.send_signal(signal.SIGINT)
        status, out, err = finished(started, f"Ctrl-C while {what}")
        assert (status, out) == (5, "heard\n"), f"Ctrl-C while {what}: status {status}: {out}{err}"


def damaged(path, draws):
    """A file cut, emptied, overwritten in part or replaced by a folder."""
    whole = path.read_bytes()
    way = draws.choice(["cut", "empty", "bits", "zeros", "folder"])
    if way == "cut":
        path.write_bytes(whole[:draws.randrange(len(whole))])
    elif way == "empty":
        path.write_bytes(b"")
    elif way == "folder":
        path.unlink()
        path.mkdir()
    else:
        broken = bytearray(whole)
        for _ in range(20):
            at = draws.randrange(len(broken))
            broken[at] = 0 if way == "zeros" else draws.randrange(256)
        path.write_bytes(bytes(broken))
    return whole


def restored(path, whole):
    if path.is_dir():
        path.rmdir()
    path.write_bytes(whole)


def damage(files, times, draws):
    """One file in a hundred is damaged: the loader names it, or goes on without it."""
    said = collections.Counter()
    for number in range(times):
        kind = draws.choice(list(files.pipelines()))
        paths = sorted((files.folder / kind).iterdir())
        before = {path: damaged(path, draws) for path in draws.sample(paths, max(1, len(paths) // 100))}
        policy = draws.choice(["fail", "skip", "substitute", "quarantine"])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", mr.LoaderWarning)
                with mr.Loader(files.pipelines()[kind], 8, shuffle=True, bad_samples=policy, max_bad_fraction=0.1, readers=draws.choice([0, 2])) as loader:
                    for _ in range(2):
                        for _ in loader:
                            pass
            said["read"] += 1
        except mr.Error as error:
            assert any(path.name in str(error) for path in before), f"{kind} {policy}: no damaged file is named: {error}"
            assert error.next, f"{kind} {policy}: it is not said what to do: {error}"
            said["refused"] += 1
        finally:
            for path, whole in before.items():
                restored(path, whole)
    print(f"    damage: {dict(said)}")


class Mine(Exception):
    pass


class Odd(BaseException):
    pass


RAISES = [lambda: Mine("mine"), ValueError, MemoryError, StopIteration, lambda: KeyError(3), lambda: OSError(5, "I/O"), RecursionError,
          lambda: Odd("odd"), lambda: SystemExit(3), KeyboardInterrupt]
RETURNS = [None, 3, {}, {"y": np.zeros(7)}, {"y": "text"}, {"y": object()}, [1]]


def raises(files, times, draws):
    """A function of map() that raises anything, or returns what it should not."""
    for number in range(times):
        raised, bad = draws.choice([(make(), None) for make in RAISES] + [(None, value) for value in RETURNS])
        at = draws.randrange(ROWS)

        def function(sample, random, raised=raised, bad=bad, at=at):
            if sample["n"] == at and raised is not None:
                raise raised
            return bad if sample["n"] == at else {"y": 1}

        loader = mr.Loader(files.rows().map(function, {"y": ("i64", ())}), 8, readers=draws.choice([0, 1, 2]), as_="numpy")
        seen = 0
        try:
            for batch in loader:
                seen += len(batch["n"])
            raise AssertionError(f"{raised!r}, {bad!r} was not noticed")
        except mr.DataError as error:
            assert f"row {at}" in str(error) and error.__cause__ is not None, error
            assert seen == at // 8 * 8, f"{seen} rows before row {at}"
        except (Odd, SystemExit, KeyboardInterrupt) as passed:  # at once, as Ctrl-C
            assert passed is raised
        loader.close()


def datasets(files, times, draws):
    """A data set of torch that raises, below exact()."""
    import torch

    class Raises(torch.utils.data.Dataset):
        def __init__(self, at):
            self.at = at

        def __len__(self):
            return ROWS

        def __getitem__(self, index):
            if index == self.at:
                raise Mine("mine")
            return index

    for number in range(times):
        at = draws.randrange(ROWS)
        loader = mr.exact(Raises(at), batch_size=8, num_workers=2 if number % 10 == 0 else 0)
        seen = 0
        try:
            for batch in loader:
                seen += len(batch)
            raise AssertionError("nothing was raised")
        except mr.DataError as error:
            assert str(at) in str(error), error
        assert seen == at // 8 * 8


# What is done, how many times of --times, and how much memory it may leave: the allocator keeps some.
PARTS = [(broken_off, 1.0), (kept, 0.2), (forks, 0.05), (exits, 0.008), (ctrl_c, 0.006), (damage, 0.1), (raises, 0.2), (datasets, 0.02)]
MOST_MB = 8


def done(part, files, times, seed=0):
    """Does a part after a first tenth that may load and allocate; says what it left."""
    draws = random.Random(seed)
    part(files, max(1, times // 10), draws)
    memory, threads, descriptors = held()
    began = time.perf_counter()
    part(files, times, draws)
    more_memory, more_threads, more_descriptors = (after - before for after, before in zip(held(), (memory, threads, descriptors)))
    print(f"  {part.__name__:12}{times:>7,} times, {time.perf_counter() - began:>6.1f} s: {more_memory:+.1f} MB of {memory:.0f}, {more_threads:+} threads, "
          f"{more_descriptors:+} descriptors", flush=True)
    assert more_memory < MOST_MB and more_threads <= 0 and more_descriptors <= 0, f"{part.__name__} leaves something"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10_000)
    parser.add_argument("--only", help="parts, with commas")
    options = parser.parse_args()
    warnings.simplefilter("ignore", mr.LoaderWarning)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        files = Files(folder)
        for part, share in PARTS:
            if options.only and part.__name__ not in options.only.split(","):
                continue
            try:
                done(part, files, max(len(ENDS), int(options.times * share)))
            except AssertionError as error:
                failures += 1
                print(f"  {part.__name__:12} FAILED: {error}", flush=True)
    print(f"{failures} parts failed" if failures else "nothing left, nothing hung, nothing crashed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
