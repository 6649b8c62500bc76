"""cosmology: faults of one file among many, of signal and foreground, each told or refused with the file."""
import shutil
import sys
import unittest
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from planted import Fault, PlantedTest

BASELINES, CHANNELS, RA, FILES = 4, 16, 16, 14
FREQ = np.linspace(100, 115, CHANNELS)
OPTIONS = ["--preset", "smoke", "--recipe.ra_keep=16", "--recipe.split=2", "--recipe.filters=2", "--recipe.n_fg=2", "--rehearse"]


def cube(name):
    """A sound cube of a file "s3.h5" or "f3.h5"."""
    draws = np.random.default_rng([ord(name[0]), int(name[1:-3])])

    def noise(*shape):
        return draws.normal(size=shape) + 1j * draws.normal(size=shape)

    if name[0] == "s":
        return 1e-4 * noise(BASELINES, CHANNELS, RA)
    slope = (FREQ / 100)[:, None]
    return 10 * noise(BASELINES, 1, RA) * (slope**-2.6 * (1 + 0.01 * noise(BASELINES, 1, 1) * slope))


def write(path, values, freq=FREQ, unit=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["vis"] = np.asarray(values, np.complex64)
        file["index_map/freq"] = freq
        if unit:
            file["vis"].attrs["unit"] = unit


def with_hole(values, place, number):
    values = values.copy()
    values[place] = number
    return values


TOLD = [
    Fault("a file of zeros", lambda c: {"values": c * 0}, "foreground/f1.h5", "is zero throughout"),
    Fault("a map of one value", lambda c: {"values": c * 0 + 3}, "foreground/f2.h5", "has the same value everywhere"),
    Fault("millikelvin that nobody says", lambda c: {"values": c * 1000}, "foreground/f3.h5", r"is [0-9.e+]+ times as strong"),
    Fault("a cube turned, its axis not", lambda c: {"values": c[:, ::-1]}, "foreground/f4.h5", "of the other files reversed"),
    Fault("axes exchanged", lambda c: {"values": c.transpose(0, 2, 1)}, "foreground/f5.h5", "are its axes exchanged"),
    Fault("a baseline that died", lambda c: {"values": with_hole(c, 2, 0)}, "foreground/f6.h5", r"is zero in baseline 2 \(counted from 0\)"),
    Fault("the foreground among the signals", lambda c: {"values": c * 1e5}, "signal/s1.h5", "times as strong as the other files"),
    Fault("a file twice", lambda c: {"values": cube("s0.h5")}, "signal/s2.h5", "holds? the same content as (another file|a training file)"),
]
REFUSED = [
    Fault("an axis turned with its cube", lambda c: {"values": c[:, ::-1], "freq": FREQ[::-1]}, "foreground/f1.h5", "in reverse order"),
    Fault("another band", lambda c: {"values": c, "freq": FREQ + 60}, "foreground/f2.h5", "160.000 to 175.000 MHz"),
    Fault("another instrument", lambda c: {"values": c[:3]}, "foreground/f3.h5", r"f3.h5 /vis is \[3,16,16\]"),
    Fault("another unit", lambda c: {"values": c * 1000, "unit": "mK"}, "signal/s1.h5", "signal/s1.h5 is in mK"),
]
BROKEN = Fault("a block without numbers", lambda c: {"values": with_hole(c, (slice(None), slice(3, 5)), np.nan)}, "foreground/f1.h5", r"has values that are NaN or infinite|/vis\[0,3,0\] is nan")
EXCHANGED = Fault("folders exchanged", None, "signal/s0.h5", "are the two folders exchanged")


class PlantedSkiesTest(PlantedTest):
    def sky(self, faults=()):
        for name in ("signal", "foreground"):
            for i in range(FILES):
                file = f"{name[0]}{i}.h5"
                write(self.folder / "sky" / name / file, cube(file))
        for fault in faults:
            write(self.folder / "sky" / fault.file, **fault.plant(cube(Path(fault.file).name)))

    def train(self, *words, status=0):
        return self.run_millrace("train", "cosmology", "--data", "sky", *OPTIONS, *words, status=status)

    def test_faults_are_told_with_their_files(self):
        self.sky()
        self.check_sound(self.train(), [*TOLD, *REFUSED, BROKEN, EXCHANGED])
        self.sky(TOLD)
        self.check_told(self.train(), TOLD)
        self.sky(REFUSED)
        self.check_refused(self.train(status=1), REFUSED)
        self.sky([BROKEN])
        said = self.train(status=None)  # the fit of the PCA refuses the file if it draws it
        self.assertRegex(said, BROKEN.words)
        self.assertIn(BROKEN.file, said)

    def test_exchanged_folders_are_told(self):
        self.sky()
        signal, foreground = self.folder / "sky" / "signal", self.folder / "sky" / "foreground"
        shutil.move(signal, self.folder / "kept")
        shutil.move(foreground, signal)
        shutil.move(self.folder / "kept", foreground)
        self.assertRegex(self.train(), EXCHANGED.words)


if __name__ == "__main__":
    unittest.main()
