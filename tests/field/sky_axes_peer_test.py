"""Two skies whose axes or units contradict each other, in the forms in which people write them: made by h5py, refused or told before training."""
import sys
import unittest
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from field import FieldTest

CHANNELS, RA = 16, 8
PLAIN = np.linspace(100, 115, CHANNELS)
OPTIONS = ["--preset", "smoke", "--recipe.ra_keep=8", "--recipe.split=2", "--recipe.filters=2", "--recipe.n_fg=2", "--rehearse"]


def write(path, seed, freq=PLAIN, unit=None, freq_unit=None, cube_unit=None, redshift=None, ra=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng(seed)
    size = 1e-4 if path.parent.name == "signal" else 10
    with h5py.File(path, "w") as file:
        cube = size * (draws.normal(size=(4, CHANNELS, RA)) + 1j * draws.normal(size=(4, CHANNELS, RA)))
        file["vis"] = cube.astype(np.complex64)
        for name, values in (("freq", freq), ("unit", unit), ("redshift", redshift), ("ra", ra)):
            if values is not None:
                file[f"index_map/{name}"] = values
        if freq_unit:
            file["index_map/freq"].attrs["units"] = freq_unit
        if cube_unit:
            file["vis"].attrs["unit"] = cube_unit


class SkyAxesTest(FieldTest):
    def sky(self, signal, foreground, odd=None):
        """A folder of two signal and two foreground files; `odd` replaces what the second foreground file says."""
        folder = self.folder / "sky"
        for name, what in (("signal", signal), ("foreground", foreground)):
            for i in range(2):
                write(folder / name / f"{name[0]}{i}.h5", i, **(odd if odd and name == "foreground" and i else what))
        return folder

    def train(self, folder, status=0):
        return self.run_millrace("train", "cosmology", "--data", folder, *OPTIONS, status=status)

    def refused(self, folder, *words):
        output = self.train(folder, status=None)
        self.assertIn("DataError", output)
        for word in words:
            self.assertIn(word, output)
        self.assertTrue(self.next_of(output))
        return output

    def test_shared_files_are_refused_or_told(self):
        folder = self.shared("sky-axes")
        self.refused(folder / "reversed_foreground", "100.000 to 115.000 MHz", "115.000 to 100.000 MHz", "reverse order", "signal/", "foreground/")
        self.refused(folder / "other_band", "100.000 to 115.000 MHz", "160.000 to 175.000 MHz")
        self.refused(folder / "unit_as_text", "in Jy", "in K")
        self.assertIn("/index_map/freq can't be read", self.train(folder / "centre_width"))

    def test_forms_of_one_axis_agree_and_others_do_not(self):
        redshift = 1420.405751768 / PLAIN - 1
        same = [{"freq": PLAIN.astype(np.float32)}, {"freq": PLAIN * 1e6}, {"freq": PLAIN * 1e6, "freq_unit": "Hz"},
                {"freq": PLAIN / 1e3, "freq_unit": "GHz"}, {"freq": None, "redshift": redshift}, {"freq": PLAIN.astype(np.int32)},
                {"unit": "kelvin"}, {"unit": np.frombuffer(b"K", np.uint8)}, {"cube_unit": "K"}, {"unit": np.bytes_("K   ")}]
        for words in same:
            with self.subTest(words=words):
                self.train(self.sky({}, words))
        ra = np.arange(RA) * 0.5
        other = [({}, {"freq": PLAIN + 1}), ({}, {"freq": PLAIN.astype(np.float32) + 60}), ({}, {"freq": (PLAIN + 1) * 1e6}),
                 ({}, {"freq": PLAIN / 1e3, "freq_unit": "MHz"}), ({}, {"freq": None, "redshift": redshift[::-1]}),
                 ({}, {"unit": np.bytes_("Jy")}), ({}, {"cube_unit": "mK"}), ({"unit": "K"}, {"unit": np.frombuffer(b"Jy", np.uint8)}),
                 ({"ra": ra}, {"ra": ra * 2}), ({}, {"freq": PLAIN[:-1]})]
        pairs = np.array([(mhz, 1) for mhz in PLAIN], [("centre", "f8"), ("width", "f8")])
        self.assertIn("/index_map/freq can't be read", self.train(self.sky({"freq": pairs}, {"freq": pairs})))
        for signal, foreground in other:
            with self.subTest(foreground=foreground):
                self.refused(self.sky(signal, foreground))

    def test_one_file_among_many_is_found(self):
        self.refused(self.sky({}, {}, odd={"freq": PLAIN + 0.5}), "f1.h5", "100.500 to 115.500 MHz")
        self.assertIn("state no frequencies", self.train(self.sky({}, {}, odd={"freq": None})))

    def test_a_test_sky_is_compared_with_the_runs_own(self):
        folder = self.sky({}, {})
        self.run_millrace("train", "cosmology", "--data", folder, *OPTIONS[:-1], "--train.max_steps=1", "--run", "run")
        evaluate = ["eval", "--from", "run", "--split", "test", "--recipe.test_dir=judged"]
        write(self.folder / "judged" / "signal" / "s1.h5", 8)
        write(self.folder / "judged" / "foreground" / "f1.h5", 10)
        with h5py.File(self.folder / "judged" / "signal" / "s1.h5", "r+") as file:
            file["wide"] = np.repeat(file["vis"], 2, 2)
            del file["vis"]
            file.move("wide", "vis")
        self.assertEqual(self.next_of(self.run_millrace(*evaluate, status=1)), "remove or regrid the file, or give another recipe.test_dir")
        for foreground, refused in [({}, False), ({"freq": PLAIN + 1}, True), ({"cube_unit": "Jy"}, True)]:
            for i in range(2):
                write(self.folder / "judged" / "signal" / f"s{i}.h5", 7 + i)
                write(self.folder / "judged" / "foreground" / f"f{i}.h5", 9 + i, **foreground)
            output = self.run_millrace(*evaluate, status=1 if refused else 0)
            self.assertEqual("DataError" in output, refused, output)


if __name__ == "__main__":
    unittest.main()
