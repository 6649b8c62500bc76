"""uvh5 files whose numbers have other types than usual: made by h5py, and converted to the same files as the usual ones."""
import sys
import unittest
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from field import FieldTest

ANTENNAS, TIMES, CHANNELS = 3, 4, 8
PAIRS = [(0, 1), (0, 2), (1, 2)]
REAL = [np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32]


def write(path, seed, samples=np.float32, frequencies=np.float64, antennas=np.int64):
    """Whole numbers that each of these types holds exactly; one sample in ten is flagged by a count of 0."""
    draws = np.random.default_rng(seed)
    shape = (TIMES * len(PAIRS), CHANNELS, 1)
    with h5py.File(path, "w") as file:
        file["Data/visdata"] = (draws.normal(size=shape) + 1j * draws.normal(size=shape)).astype(np.complex64)
        file["Data/flags"] = np.zeros(shape, bool)
        file["Data/nsamples"] = (draws.integers(1, 9, shape) * (draws.random(shape) > 0.1)).astype(samples)
        header = {"Nfreqs": CHANNELS, "Ntimes": TIMES, "altitude": 1050.0, "latitude": -30.7, "longitude": 21.4, "channel_width": 1e6,
                  "freq_array": (1e8 + 1e6 * np.arange(CHANNELS)).astype(frequencies),
                  "antenna_numbers": np.arange(ANTENNAS).astype(antennas),
                  "antenna_positions": draws.normal(size=(ANTENNAS, 3)), "polarization_array": np.array([-5]),
                  "ant_1_array": np.array([a for _ in range(TIMES) for a, _ in PAIRS]).astype(antennas),
                  "ant_2_array": np.array([b for _ in range(TIMES) for _, b in PAIRS]).astype(antennas),
                  "time_array": np.repeat(2459000.5 + np.arange(TIMES) * 1e-4, len(PAIRS)), "vis_units": np.bytes_("Jy")}
        for name, value in header.items():
            file[f"Header/{name}"] = value


class Uvh5Test(FieldTest):
    def converted(self, path, name):
        """{file: {data set: values}} of the foreground that `millrace uvh5` writes."""
        self.run_millrace("uvh5", path, "--out", name, "--make-signal", "0.01")
        found = {}
        for file in sorted((self.folder / name / "foreground").iterdir()):
            with h5py.File(file) as opened:
                sets = found[file.name.replace(path.stem, "")] = {}
                opened.visititems(lambda at, what, sets=sets: sets.update({at: what[()]}) if isinstance(what, h5py.Dataset) else None)
        self.assertTrue(found)
        return found

    def assert_same(self, found, expected):
        self.assertEqual({file: set(sets) for file, sets in found.items()}, {file: set(sets) for file, sets in expected.items()})
        for file, sets in expected.items():
            for name, values in sets.items():
                np.testing.assert_array_equal(found[file][name], values, err_msg=f"{file} {name}")

    def test_the_files_of_the_field(self):
        folder = self.shared("uvh5-samples")
        self.assert_same(self.converted(folder / "nsamples_half.uvh5", "half"), self.converted(folder / "nsamples_float.uvh5", "float"))

    def test_types_of_counts_and_headers(self):
        write(self.folder / "usual.uvh5", seed=1)
        expected = self.converted(self.folder / "usual.uvh5", "usual")
        kinds = [{"samples": kind} for kind in REAL] + [{"frequencies": np.float32}, {"antennas": np.int32}, {"antennas": np.uint8}]
        for number, kind in enumerate(kinds):
            with self.subTest(kind):
                path = self.folder / f"other{number}.uvh5"
                write(path, seed=1, **kind)
                self.assert_same(self.converted(path, f"out{number}"), expected)

    def test_counts_that_are_no_numbers_are_refused(self):
        write(self.folder / "odd.uvh5", seed=2, samples=np.complex64)
        self.assertIn("nsamples", self.run_millrace("uvh5", self.folder / "odd.uvh5", "--out", "odd", "--make-signal", "0.01", status=1))


if __name__ == "__main__":
    unittest.main()
