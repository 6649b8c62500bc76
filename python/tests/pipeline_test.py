"""Pipelines as descriptions: what a user writes for an argument is taken as it was meant, or refused at that line."""
import sys
import tempfile
import unittest
import weakref
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import headrace
from headrace._library import in_python
from headrace._maps import Maps
from headrace.pipeline import described


class Arguments(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "x.npy"
        self.file.touch()
        self.rows = headrace.npy({"x": self.file})

    def test_one_name_is_no_list_of_letters(self):
        for part, key, expected in ((self.rows.map(len, {"y": ("f32", ())}, drops="label"), "drops", ["label"]),
                                    (headrace.npz(self.file, "volume"), "names", ["volume"]),
                                    (headrace.csv(self.file, {"label": None}, whole="label"), "whole", ["label"]),
                                    (headrace.csv(self.file, {"x": "speed"}), "columns", {"x": ["speed"]}),
                                    (self.rows.augment("label", headrace.random_flip([-1])), "names", ["label"])):
            with self.subTest(key):
                self.assertEqual(part._part[key], expected)

    def test_one_side_of_a_picture_is_both(self):
        self.assertEqual(headrace.images(self.file, crop=24)._part["crop"], [24, 24])
        self.assertEqual(in_python("leave the image out, or take a smaller crop"), "leave the image out, or give a smaller crop=(height, width)")

    def test_paths_are_texts_bytes_or_objects(self):
        for path in (self.file, str(self.file), str(self.file).encode()):
            self.assertEqual(headrace.npy({"x": path})._part["arrays"], {"x": str(self.file)})
            self.assertEqual(headrace.npz(path)._part["files"], [str(self.file)])

    def test_small_mistakes_are_refused_with_a_remedy(self):
        file, rows = self.file, self.rows
        for kind, what, following, call in (
                (TypeError, "axes is -1, no list", "write axes=[-1]", lambda: headrace.random_flip(-1)),
                (TypeError, "axes is -1, no list", "write axes=[-1]", lambda: headrace.random_roll(-1)),
                (TypeError, "size is 64, no list", "write size=[64]", lambda: headrace.random_crop(64)),
                (TypeError, "margin is 4, no list", "write margin=[4]", lambda: headrace.centre_crop([64], margin=4)),
                (TypeError, "margin is 4, no list", "write margin=[4]", lambda: headrace.pad(4)),
                (TypeError, "mean is 0.5, no list", "write mean=[0.5]", lambda: headrace.normalise(0.5, 0.25)),
                (TypeError, "crop is 22.4, no list", "write crop=[22.4]", lambda: headrace.images(file, crop=22.4)),
                (TypeError, "crop is 64, no list", "write crop=[64]", lambda: headrace.nifti(file, crop=64)),
                (TypeError, "crop is '64'", "give a list", lambda: headrace.nifti(file, crop="64")),
                (TypeError, "datasets is a list", '{"x": "/x"}', lambda: headrace.hdf5(file, ["/x", "/y"])),
                (TypeError, "datasets is a str", '{"x": "/x"}', lambda: headrace.hdf5(file, "/x")),
                (TypeError, "a part of keep['x'] is 0", "write", lambda: headrace.hdf5(file, {"x": "/x"}, keep={"x": (0, 64)})),
                (TypeError, "a path is a NoneType", "give the path", lambda: headrace.hdf5(None, {"x": "/x"})),
                (TypeError, "a path is a list", "give the path", lambda: headrace.npy({"x": [1.0, 2.0]})),
                (TypeError, "arrays is a PosixPath", '{"x": "x.npy"}', lambda: headrace.npy(file)),
                (TypeError, "columns is a list", "its columns", lambda: headrace.csv(file, ["speed", "angle"])),
                (TypeError, "columns['x'] names 3", "the name of a field", lambda: headrace.csv(file, {"x": 3})),
                (TypeError, "pipelines is a list", '{"a": pipeline', lambda: headrace.groups([rows, rows])),
                (TypeError, "fields names None", "the name of a field", lambda: rows.augment(None, headrace.random_flip([-1]))),
                (TypeError, "indices is 5", "pipeline.take(5)", lambda: rows.subset(5)),
                (TypeError, "function of a map is 0", "the address", lambda: rows.map(0, {"y": ("f32", ())}, name="n")),
                (TypeError, "function of a map is True", "the address", lambda: rows.map(True, {"y": ("f32", ())}, name="n")),
                (ValueError, "a share of 0.9", "between 0 and 1", lambda: rows.split("0.9")),
                (ValueError, "mean is given, and pictures are not normalised", "normalise=True", lambda: headrace.images(file, mean=(0.5, 0.5, 0.5))),
                (ValueError, "deviation has 2 numbers", "each channel", lambda: headrace.images(file, normalise=True, deviation=(0.5, 0.4))),
                (ValueError, "vocabulary is given without dtype", "u16", lambda: headrace.tokens(file, 8, vocabulary=100)),
                (ValueError, "tokens of dtype []", "u16", lambda: headrace.tokens(file, 8, dtype=[]))):
            with self.subTest(what), self.assertRaises(kind) as caught:
                call()
            with self.subTest(what):
                self.assertIsInstance(caught.exception, headrace.Error)
                self.assertIn(what, caught.exception.what)
                self.assertIn(following, caught.exception.next)
                self.assertTrue(caught.exception.where)

    def test_what_is_meant_is_still_taken(self):
        self.assertEqual(headrace.images(self.file, normalise=True, mean=[0.5], deviation=(0.5, 0.4, 0.3))._part["mean"], [0.5])
        self.assertEqual(headrace.images(self.file, pixels="gray", normalise=True, mean=[0.5])._part["deviation"], [0.229, 0.224, 0.225])
        self.assertEqual(headrace.tokens(self.file, 8, dtype="u16", vocabulary=100)._part["vocabulary"], 100)
        self.assertEqual(self.rows.subset(number for number in (3, 1))._part["indices"], [3, 1])
        self.assertEqual(headrace.hdf5(self.file, {"x": "/x"}, keep={"x": [(0, 64), (2, 3)]})._part["keep"], {"x": [[0, 64], [2, 3]]})


class Functions(unittest.TestCase):
    def test_what_has_the_address_lives_as_long_as_its_loader(self):
        class Compiled:  # as numba's: its code may go with it
            address = 4096

        function, functions = Compiled(), []
        described({"kind": "map", "function": headrace.Pipeline({"kind": "x"}).map(function, {"y": ("f32", ())}, name="n")._part["function"]}, functions)
        maps, alive = Maps(functions), weakref.ref(function)
        del function, functions
        self.assertIsNotNone(alive())
        del maps
        self.assertIsNone(alive())


if __name__ == "__main__":
    unittest.main()
