"""neural_response: faults of one session among others, each told or refused with its file."""
import sys
import unittest
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from planted import Fault, PlantedTest
from sessions_peer_test import BINS, DATASET, HZ, TRIAL, UNITS, arrays

OPTIONS = ["--preset", "smoke", "--data.batch_size=256", "--rehearse"]


def changed(key, change):
    return lambda sets: {**sets, key: change(sets[key])}


def columns(change):
    """Of the counts."""
    def changed_columns(robs):
        robs = robs.copy()
        change(robs)
        return robs
    return changed("robs", changed_columns)


def silent(robs):
    robs[:, 2] = 0


def twice(robs):
    robs[:, 3] = robs[:, 1]


def without_number(eyes):
    eyes = eyes.copy()
    eyes[100, 1] = np.nan
    return eyes


TOLD = [
    Fault("a silent unit", columns(silent), "session b", r"have no spike in the validation \(cid 2\)"),
    Fault("another frame rate", changed("t_bins", lambda t: 7 + (t - 7) * 2), "c/syn.h5", "which is 120 Hz, but sampling.source_rate is 240"),
    Fault("rates in place of counts", changed("robs", lambda r: r * HZ), "d/syn.h5", "Are they rates in Hz"),
    Fault("fractions in place of percent", changed("missing_pct", lambda m: m / 100), "e/syn.h5", "Are the values fractions"),
    Fault("a stimulus that never changes", changed("stim", lambda s: s * 0 + 128), "f/syn.h5", "/stim is one frame throughout"),
    Fault("a stimulus that stood still", changed("stim", lambda s: np.concatenate([s[:BINS // 2], np.repeat(s[:1], BINS // 2, 0)])), "g/syn.h5",
          "/stim is one frame from about bin 24[0-9] to 47[0-9] of 480"),
    Fault("eyes in pixels", changed("eyepos", lambda e: e * 100 + 500), "h/syn.h5", "number 0 of behavior varies by .*, but in session a by"),
    Fault("a unit under two numbers", columns(twice), "i/syn.h5", "/robs of cid 3 are those of cid 1"),
    Fault("a session twice", lambda _: arrays(0), "j/syn.h5", "1 file holds the same content as another file"),
    Fault("grey levels as fractions", changed("stim", lambda s: (s / 255).round().astype(np.uint8)), "k/syn.h5", "has grey levels of at most 1"),
]
REFUSED = [
    Fault("a clock backwards", changed("t_bins", lambda t: t[::-1].copy()), "b/syn.h5", "/t_bins run backwards"),
    Fault("an eye without a number", changed("eyepos", without_number), "b/syn.h5", r"/eyepos\[100,1\] is nan"),
    Fault("marks the other way round", changed("dpi_valid", lambda d: 1 - d), "b/syn.h5", "has no valid bin left"),
]


class PlantedSessionsTest(PlantedTest):
    def rehearse(self, faults, status=0, names=None):
        data = self.folder / "recordings"
        by_name = {(fault.file.removesuffix("/syn.h5")[-1]): fault for fault in faults}
        sessions = sorted({"a", "b", *by_name})
        (data / "sessions").mkdir(parents=True, exist_ok=True)
        (data / "dataset.yaml").write_text(DATASET.format(names=", ".join(names or sessions)), encoding="utf-8")
        for name in sessions:
            sets = arrays(ord(name) - ord("a"))
            if name in by_name:
                sets = by_name[name].plant(sets)
            (data / "sessions" / f"{name}.yaml").write_text(f"session: {name}\ncids: [0, 1, 2, 3]\n", encoding="utf-8")
            (data / name).mkdir(exist_ok=True)
            with h5py.File(data / name / "syn.h5", "w") as file:
                for key, values in sets.items():
                    file[key] = values
        return self.run_millrace("train", "neural_response", "--data", data, *OPTIONS, status=status)

    def test_faults_are_told_with_their_files(self):
        self.check_sound(self.rehearse([]), TOLD + REFUSED)
        self.check_told(self.rehearse(TOLD), TOLD)
        for fault in REFUSED:
            self.check_refused(self.rehearse([fault], status=1), [fault])

    def test_a_session_named_null_is_told_with_its_line_and_quotes_help(self):
        said = self.rehearse([], status=2, names=["a", "null"])
        self.assertIn("a session is named null", said)
        self.assertIn("dataset.yaml:3", said)
        self.assertIn("write the name in quotes", self.next_of(said))
        said = self.rehearse([], status=2, names=["a", '"null"'])
        self.assertIn('session "null" has no file', said)


if __name__ == "__main__":
    unittest.main()
