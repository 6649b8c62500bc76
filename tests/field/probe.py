"""Random files of many kinds, read by the program's own readers and by the reference library, and compared value for value.

A test gives make(folder, seed), which writes one file and returns its path, the request to the probe, and what the reference library
reads of it: {name: array}, or Refused where the file is to be refused. MILLRACE_FIELD_SEEDS=100:600 takes these seeds in place of the
suite's twenty.
"""
import json
import os
import subprocess
from dataclasses import dataclass, field as of_field

import numpy as np

from field import FieldTest, program

DTYPES = {"bool": "?", "u8": "u1", "i8": "i1", "i16": "i2", "u16": "u2", "i32": "i4", "u32": "u4", "i64": "i8", "u64": "u8", "f16": "f2",
          "bf16": "u2", "f32": "f4", "f64": "f8", "c64": "c8", "c128": "c16"}
SEEDS = 20
ODD = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-40, 6e-8, 65504, 3e38]


@dataclass
class Made:
    request: dict                                   # to the probe: kind, path and more
    arrays: dict                                    # what the reference library reads, by name
    words: dict = of_field(default_factory=dict)    # likewise; only those that are named are compared
    refused: tuple = ()                             # it is to be refused with one of these words
    optional: tuple = ()                            # a refusal with one of these words is as good


def shape_of(draws, most=5, largest=7):
    return tuple(int(n) for n in draws.integers(0 if draws.random() < 0.1 else 1, largest, draws.integers(0, most)))


def numbers(draws, dtype, shape):
    """Any bits that the type has, with what is special among them."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return draws.random(shape) < 0.5
    values = np.frombuffer(draws.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape).copy()
    if dtype.kind in "fc" and values.size:
        with np.errstate(over="ignore"):
            values.flat[draws.integers(0, values.size, 3)] = draws.choice(ODD, 3)
    return values


def seeds():
    first, _, last = os.environ.get("MILLRACE_FIELD_SEEDS", f"0:{SEEDS}").partition(":")
    return range(int(first), int(last))


def same(ours, theirs):
    """Equal shapes, types and bits; any NaN is like any other."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    if ours.tobytes() == theirs.tobytes():
        return True
    if ours.dtype.kind == "c":
        return same(ours.real, theirs.real) and same(ours.imag, theirs.imag)
    sound = ~np.isnan(theirs) if ours.dtype.kind == "f" else np.ones(theirs.shape, bool)
    return np.array_equal(ours[sound], theirs[sound]) and np.array_equal(np.signbit(ours[sound]), np.signbit(theirs[sound])) and \
        ours.dtype.kind == "f" and bool(np.isnan(ours[~sound]).all())


class ProbeTest(FieldTest):
    def setUp(self):
        super().setUp()
        self.probe = program().parent / "tests" / "field" / "millrace_field_probe"
        if not self.probe.exists():
            self.skipTest(f"{self.probe} is not built")

    def answers(self, requests):
        """Of each request: ({name: array}, words), or the dictionary of its refusal."""
        lines = "".join(json.dumps({**r, "path": str(r["path"])}) + "\n" for r in requests)
        done = subprocess.run([self.probe, self.folder / "raw"], input=lines, cwd=self.folder, stdout=subprocess.PIPE, text=True, timeout=600,
                              check=True)
        raw = (self.folder / "raw").read_bytes()
        for answer in map(json.loads, done.stdout.splitlines()):
            self.assertNotIn("fault", answer)
            if "refused" in answer:
                yield answer["refused"]
                continue
            arrays = {a["name"]: np.frombuffer(raw, DTYPES[a["dtype"]], a["bytes"] // np.dtype(DTYPES[a["dtype"]]).itemsize, a["at"])
                      .reshape(a["shape"]) for a in answer["arrays"]}
            yield arrays, answer["words"] or {}

    def check_random(self, make, most_refused=0.3):
        """Each file is read as the reference library reads it, or refused with words and a remedy; most are read."""
        made = [make(self.folder, seed) for seed in seeds()]
        refused = 0
        for seed, one, answer in zip(seeds(), made, self.answers([m.request for m in made])):
            with self.subTest(seed=seed, request=one.request):
                if isinstance(answer, dict):
                    refused += 1
                    self.assertTrue(any(words in answer["what"] for words in (*one.refused, *one.optional)), answer)
                    self.assertTrue(answer["next"], answer)
                    continue
                self.assertFalse(one.refused, "it was read")
                self.check_equal(one, *answer)
        self.assertLessEqual(refused, most_refused * len(made))

    def check_equal(self, made, arrays, words):
        self.assertEqual(sorted(arrays), sorted(made.arrays))
        for name, theirs in made.arrays.items():
            theirs = np.asarray(theirs)
            theirs = theirs.astype(theirs.dtype.newbyteorder("="))
            self.assertTrue(same(arrays[name], theirs),
                            f"{name}: {arrays[name].dtype} {arrays[name].shape} {arrays[name].ravel()[:12]}, the reference has "
                            f"{theirs.dtype} {theirs.shape} {theirs.ravel()[:12]}")
        for name, theirs in made.words.items():
            self.assertEqual(words.get(name), theirs, name)
