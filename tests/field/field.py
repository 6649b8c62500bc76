"""What tests of odd files share: the program, a folder of one's own, and the inputs that lie beside the repository.

A file `KIND_peer_test.py` of this folder makes files of one kind from a seed, lets the program read them, and compares what it read with the
reference library of that kind, value for value: nibabel, h5py, Pillow, NumPy, torch. `./dev test` runs all of them in the Python that has
these packages. `random_*_peer_test.py` do so for many random files at a time, through the probe (probe.py). A test that needs `../shared`
asks for it by `shared()` and is skipped and counted without it; each has a twin on made files.
"""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data" / "field"


def program():
    """The built program: of MILLRACE_PROGRAM, or of the release build."""
    return Path(os.environ.get("MILLRACE_PROGRAM", ROOT / "build" / "release" / "millrace"))


class FieldTest(unittest.TestCase):
    """A test case with a folder of its own, `self.folder`, in which the program runs."""

    def setUp(self):
        if not program().exists():
            self.skipTest(f"{program()} is not built")
        self.folder = Path(tempfile.mkdtemp(prefix="field-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def shared(self, kind):
        """A copy of a folder of odd files in `self.folder`; without the originals the test is skipped."""
        if not SHARED.is_dir():
            self.skipTest(f"{SHARED} is not there")
        return Path(shutil.copytree(SHARED / kind, self.folder / kind))

    def run_millrace(self, *words, status=0, **variables):
        """What the program prints, both streams; a failure where it ends with another exit status than `status` (None: any)."""
        done = subprocess.run([program(), *map(str, words)], cwd=self.folder, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=300, check=False)
        if status is not None and done.returncode != status:
            self.fail(f"exit status {done.returncode}, not {status}: millrace {' '.join(map(str, words))}\n{done.stdout}")
        return done.stdout

    def next_of(self, output):
        """The remedy of an error: what stands behind `next`, one line."""
        lines = output.splitlines()
        at = next((i for i, line in enumerate(lines) if line.lstrip().startswith("next ")), None)
        self.assertIsNotNone(at, f"no remedy in\n{output}")
        return lines[at].split("next", 1)[1].strip()
