"""Values of a config in Python as words of the program, and the folder of a run that names none."""
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import headrace
from headrace import _flags

try:
    import numpy
except ImportError:
    numpy = None


class Flags(unittest.TestCase):
    def test_values_are_those_of_python(self):
        self.assertEqual(list(_flags.flags({"a": {"b": 1, "c": [True, "é", Path("x/y"), None]}, "d.e": Path("z"), "f": "text", "g": [{"h": (1, 2)}]})),
                         ["--a.b=1", '--a.c=[true, "\\u00e9", "x/y", null]', "--d.e=z", "--f=text", '--g=[{"h": [1, 2]}]'])
        if numpy is not None:
            self.assertEqual(list(_flags.flags({"a": numpy.int64(3), "b": numpy.float32(0.5), "c": [numpy.int64(3)], "d": numpy.arange(2), "e": numpy.bool_(True)})),
                             ["--a=3", "--b=0.5", "--c=[3]", "--d=[0, 1]", "--e=true"])
        for value, name in ((None, "NoneType"), ({1}, "set"), ([{1}], "set"), (1j, "complex")):
            with self.assertRaises(headrace.KindError) as caught:
                list(_flags.flags({"a": value}))
            self.assertEqual(caught.exception.what, f"a is a {name}")

    def test_two_runs_in_one_second_have_a_folder_each(self):
        with tempfile.TemporaryDirectory() as folder:
            program, names = Path(folder) / "millrace", []
            program.write_text("#!/bin/sh\n[ $1 = --version ] && echo Millrace 1 && exit\nmkdir -p $4 && echo > $4/log.jsonl\n")
            program.chmod(0o755)
            self.addCleanup(os.chdir, os.getcwd())
            os.chdir(folder)
            with mock.patch.dict(os.environ, {"MILLRACE": str(program)}), mock.patch("time.strftime", lambda _: "noon"):
                for _ in range(3):
                    names.append(headrace.train("r").wait().folder.as_posix())
        self.assertEqual(names, ["runs/r/noon", "runs/r/noon-2", "runs/r/noon-3"])


if __name__ == "__main__":
    unittest.main()
