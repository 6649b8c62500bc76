"""Values of a config in Python as words of the program."""
import sys
import unittest
from pathlib import Path

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


if __name__ == "__main__":
    unittest.main()
