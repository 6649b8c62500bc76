"""headrace.Loader and the files that people have: what it leaves out or takes as stored is said."""
import sys
import unittest
import warnings
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import loader_peer_test as host
import headrace as mr


class Files(host.LoaderTest):
    def test_a_folder_with_brackets_in_its_name(self):
        (self.folder / "scan[1]").mkdir()
        np.savez(self.folder / "scan[1]/a.npz", n=np.array(7))
        self.assertEqual(next(iter(self.loader(mr.npz(self.folder / "scan[1]/*.npz"), 1, as_="numpy")))["n"].tolist(), [7])

    def test_files_that_a_folder_leaves_out_are_named(self):
        folder = self.folder / "mixed"
        folder.mkdir()
        np.savez(folder / "a.npz", x=np.zeros(3))
        (folder / "b.webp").write_bytes(b"")
        with self.assertWarnsRegex(mr.LoaderWarning, 'is left out: "b.webp"'):
            self.loader(mr.npz(folder))

    def test_packed_numbers_of_netcdf_are_said_to_be_packed(self):
        (self.folder / "netcdf").mkdir()
        path = self.folder / "netcdf" / "packed.h5"
        with h5py.File(path, "w") as file:
            file["t"], file["plain"] = np.zeros((4, 2), "i2"), np.zeros((4, 2), "f4")
            file["t"].attrs.update(scale_factor=0.01, add_offset=0.0, _FillValue=np.array([-32767], "i2"))
            file["plain"].attrs.update(scale_factor=1.0, _FillValue=np.float32("nan"))
        with self.assertWarnsRegex(mr.LoaderWarning, "numbers of /t in .* as stored, .*: scale_factor 0.01, _FillValue -32767"):
            self.loader(mr.hdf5(path, {"t": "/t"}))
        with warnings.catch_warnings():
            warnings.simplefilter("error", mr.LoaderWarning)
            self.loader(mr.hdf5(path, {"t": "/plain"}))


if __name__ == "__main__":
    unittest.main()
