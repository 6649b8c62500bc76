"""HDF5 files in forms of later libraries and with filters of others: named, with a command that writes them anew, made by h5py."""
import shlex
import subprocess
import sys
import unittest

import h5py
import numpy as np

from field import FieldTest

OPTIONS = ["--preset", "smoke", "--recipe.ra_keep=8", "--recipe.split=2", "--recipe.filters=2", "--recipe.n_fg=2", "--rehearse"]
SHAPE = (4, 16, 8)


def cube(seed):
    draws = np.random.default_rng(seed)
    return (draws.normal(size=SHAPE) + 1j * draws.normal(size=SHAPE)).astype(np.complex64)


class Hdf5Test(FieldTest):
    def sky(self, odd):
        """A folder of two signal and two foreground files; `odd` puts the cube into the first signal file, the others are plain."""
        folder = self.folder / "it's a sky"
        for name in ("signal", "foreground"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            for i in range(2):
                with h5py.File(folder / name / f"{name[0]}{i}.h5", "w") as file:
                    file["vis"] = cube(i)
        odd(folder / "signal" / "s0.h5")
        return folder

    def train(self, folder, status=0):
        return self.run_millrace("train", "cosmology", "--data", folder, *OPTIONS, status=status)

    def assert_mended(self, odd, *words):
        """Refused with these words; the command of the remedy makes a file of the same numbers and attributes that is read."""
        folder = self.sky(odd)
        said = self.train(folder, status=None)
        for word in words:
            self.assertIn(word, said)
        command = self.next_of(said).split(": ", 1)[1]
        self.assertTrue(command.startswith("python3 -c "))
        (self.folder / "hdf5plugin.py").write_text("")  # what it brings is not needed here: the chunks were written without the filter
        subprocess.run(command.replace("python3", shlex.quote(sys.executable), 1), shell=True, cwd=self.folder, check=True)
        made, path = folder / "signal" / "s0.new.h5", folder / "signal" / "s0.h5"
        with h5py.File(path) as before, h5py.File(made) as file:
            np.testing.assert_array_equal(file["vis"][()], before["vis"][()])
            self.assertEqual((file.attrs["unit"], file["vis"].attrs["n"], file["group/deep"][()]), ("K", 3, 7))
        made.replace(path)
        self.train(folder)

    def test_forms_of_later_libraries(self):
        def packed(path):
            with h5py.File(path, "w", libver="latest") as file:
                file.create_dataset("vis", data=cube(0), chunks=(2, 16, 8), compression=4)
                self.describe(file)

        self.assert_mended(packed, "/vis can't be read: in a newer form of HDF5 than version 1.10 reads (bad version number for ")

    def test_filters_of_plug_ins(self):
        def filtered(path):
            with h5py.File(path, "w") as file:
                plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                plist.set_chunk((2, 16, 8))
                plist.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (1,))
                kind = h5py.h5t.py_create(np.dtype(np.complex64), logical=True)
                h5py.h5d.create(file.id, b"vis", kind, h5py.h5s.create_simple(SHAPE), plist)
                file["vis"][...] = cube(0)
                self.describe(file)

        self.assert_mended(filtered, "/vis can't be read: filter 32001", "which is not known here", "hdf5plugin")

    def describe(self, file):
        file.attrs["unit"] = "K"
        file["vis"].attrs["n"] = 3
        file["group/deep"] = 7

    def test_complex_numbers_under_other_names_train(self):
        def renamed(path):
            kind = np.dtype([("imag", "<f2"), ("real", "<f2")])
            values = np.zeros(SHAPE, kind)
            values["real"], values["imag"] = cube(0).real, cube(0).imag
            with h5py.File(path, "w") as file:
                file["vis"] = values

        self.train(self.sky(renamed))


if __name__ == "__main__":
    unittest.main()
