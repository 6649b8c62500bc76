"""A little of each part of hostile.py, which does the whole by hand."""
import random
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import hostile  # noqa: E402


hostile.AS = "numpy"


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls._folder.cleanup)
        cls.files = hostile.Files(cls._folder.name, count=20)

    def test_each_part_leaves_nothing(self):
        warnings.simplefilter("ignore", hostile.mr.LoaderWarning)
        for part, times in ((hostile.broken_off, 100), (hostile.kept, 30), (hostile.forks, 4), (hostile.damage, 30), (hostile.raises, 60),
                            (hostile.datasets, 9)):
            with self.subTest(part.__name__):
                hostile.done(part, self.files, times)

    def test_processes_end_by_themselves(self):
        for part, times in ((hostile.exits, len(hostile.ENDS)), (hostile.ctrl_c, len(hostile.PHASES))):
            with self.subTest(part.__name__):
                part(self.files, times, random.Random(0))

    def test_what_is_left_is_noticed(self):
        left = []
        with self.assertRaisesRegex(AssertionError, "leaves something"):
            hostile.done(lambda files, times, draws: left.append(open(files.folder / "x.npy", "rb")), self.files, 1)
        for file in left:
            file.close()


if __name__ == "__main__":
    unittest.main()
