"""Safetensors files in Python: headers that disagree with their data, and values that are no arrays."""
import json
import struct
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import headrace
from headrace import _predict, _safetensors

try:
    import numpy
except ImportError:
    numpy = None


@unittest.skipIf(numpy is None, "there is no NumPy in this Python")
class Files(unittest.TestCase):
    def test_a_shape_that_is_not_that_of_its_bytes_is_damage(self):
        with tempfile.TemporaryDirectory() as name:
            file = Path(name) / "a.safetensors"
            for shape, expected in (([1], True), ([], True), ([3], False), ([-1], False), ([0], False)):
                header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}, "y": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [4, 12]}}).encode()
                file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(12))
                with self.subTest(shape):
                    if expected:
                        self.assertEqual(list(_safetensors.load(file, "numpy")["x"].shape), shape)
                        continue
                    with self.assertRaises(headrace.FileError) as caught:
                        _safetensors.load(file, "numpy")
                    self.assertIn("x of shape", caught.exception.what)

    def test_rows_of_several_lengths_are_no_array(self):
        with tempfile.TemporaryDirectory() as name:
            for call in (lambda: _safetensors.save(Path(name) / "a", {"x": [[1], [2, 3]]}, "here"), lambda: _predict._written(Path(name), [[1], [2, 3]], "here")):
                with self.assertRaises(headrace.KindError) as caught:
                    call()
                self.assertEqual(caught.exception.where, "here")


if __name__ == "__main__":
    unittest.main()
