#!/usr/bin/env python3
"""AGI2's tests under their old name: no optimisation changes what is learnt. Short runs of the program, by pytest or by python."""
import json
import os
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ.get("MILLRACE", "millrace")
PROGRAM = os.path.abspath(PROGRAM) if os.sep in PROGRAM else PROGRAM
STEPS = 8


class TrainingOptimizations(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.place.cleanup)
        cls.plain = cls.losses("--use_amp=false", "--off=all")
        cls.ours = cls.losses("--use_amp=false", "--num_workers", "0")

    @classmethod
    def losses(cls, *options):
        """First and last loss of a short run on the sample text."""
        command = [PROGRAM, "train", "language_model", "--preset", "smoke", "--max_steps", str(STEPS), "--train.validate_batches=1",
                   "--run", "run", "--fresh", *options]
        print("runs: " + shlex.join(command), flush=True)
        done = subprocess.run(command, cwd=cls.place.name, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stdout)
        return json.loads((Path(cls.place.name) / "run" / "summary.json").read_text(encoding="utf-8"))["loss"]

    def assert_follows(self, run, of, tolerance):
        self.assertAlmostEqual(run["first"], of["first"], delta=tolerance)
        self.assertAlmostEqual(run["last"], of["last"], delta=tolerance)
        self.assertLess(run["last"], run["first"])

    def test_cached_masks(self):
        self.assert_follows(self.losses("--use_amp=false", "--recipe.attention=explicit"), self.plain, 1e-3)

    def test_attention_without_a_mask(self):
        self.assert_follows(self.ours, self.plain, 1e-3)

    def test_mixed_precision(self):
        self.assert_follows(self.losses("--precision.dtype=bf16"), self.plain, 3e-2)

    def test_readers(self):
        self.assert_follows(self.losses("--use_amp=false", "--num_workers", "2"), self.ours, 1e-5)

    def test_gpu_memory_lines(self):
        self.assert_follows(self.losses("--use_amp=false", "--num_workers", "0", "--log_gpu_memory"), self.ours, 1e-5)


if __name__ == "__main__":
    unittest.main()
