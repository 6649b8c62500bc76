"""Recordings as people have them: units without a spike, clocks that go back, gaps without numbers, fractions, rates.

What the program says of them is compared with what NumPy says of the arrays that were written with h5py.
"""
import csv
import json
import random
import shutil
import unittest
from pathlib import Path

import h5py
import numpy as np
from field import FieldTest

BINS, TRIAL, HZ, UNITS = 960, 96, 240, 4
DATASET = """types: [syn]
session_dir: ./sessions
sessions: [{names}]
sampling: {{source_rate: 240, target_rate: 120}}
keys_lags: {{robs: 0, stim: [0, 1, 2, 3, 4, 5, 6, 7], behavior: 0, dfs: 0}}
transforms:
  stim: {{source: stim, ops: [{{pixelnorm: {{}}}}, {{unsqueeze: 1}}], expose_as: stim}}
  eye_pos: {{source: eyepos, ops: [], expose_as: behavior}}
datafilters:
  dfs: {{ops: [{{valid_nlags: {{n_lags: 8}}}}, {{missing_pct: {{threshold: 45}}}}], expose_as: dfs}}
train_val_split: 0.5
seed: 1002
"""
SHORT = ["--preset", "smoke", "--precision.dtype=fp32", "--data.batch_size=64", "--train.validate_every=1",
         "--log.doctor=false", "--off=rehearsal", "--device.layout=contiguous", "--device.kernels=ours"]


def crc32c(content):
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return f"{crc ^ 0xFFFFFFFF:08x}"


def age(snapshot, metric, best):
    """Makes a snapshot what it was before metrics had versions, with a best value of then."""
    state = json.loads((snapshot / "state.json").read_text())
    del state["report"]["metric_versions"]
    state["parts"]["trainer"]["json"]["metrics"][metric][1] = best
    text = json.dumps(state, indent=1, sort_keys=True) + "\n"
    (snapshot / "state.json").write_text(text)
    manifest = json.loads((snapshot / "manifest.json").read_text())
    manifest["files"]["state.json"] = {"bytes": len(text), "crc32c": crc32c(text.encode())}
    manifest["crc32c"] = "0" * 8
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    begin = '{\n "crc32c": "'
    rest = text[len(begin) + 8:]
    (snapshot / "manifest.json").write_text(begin + crc32c(rest.encode()) + rest)


def arrays(seed):
    """A sound recording."""
    rng = np.random.default_rng(seed)
    return {"stim": rng.integers(0, 255, (BINS, 7, 7), dtype=np.uint8), "robs": rng.poisson(0.2, (BINS, UNITS)).astype(np.float32),
            "eyepos": rng.normal(size=(BINS, 2)).astype(np.float32), "dpi_valid": np.ones(BINS, np.uint8),
            "trial_inds": np.arange(BINS) // TRIAL, "t_bins": np.arange(BINS) / HZ + 7.0,
            "missing_pct": rng.uniform(0, 40, (BINS, UNITS)).astype(np.float32)}


class Sessions(FieldTest):
    def write(self, sessions, cids="[0, 1, 2, 3]"):
        """Sessions by name in a dataset below self.folder."""
        data = self.folder / "made"
        (data / "sessions").mkdir(parents=True, exist_ok=True)
        (data / "dataset.yaml").write_text(DATASET.format(names=", ".join(sessions)))
        for name, sets in sessions.items():
            (data / "sessions" / f"{name}.yaml").write_text(f"session: {name}\ncids: {cids}\n")
            (data / name).mkdir(exist_ok=True)
            with h5py.File(data / name / "syn.h5", "w") as file:
                for key, values in sets.items():
                    file[key] = values
        return data

    def train(self, data, *words, status=0, steps=1):
        return self.run_millrace("train", "neural_response", "--data", data, "--run", "run", "--fresh", *SHORT, f"--train.max_steps={steps}",
                                 *words, status=status)

    def bits(self):
        """bps.csv: bits by session and cid, None where there are none; and what summary.json has of the metrics."""
        with open(self.folder / "run" / "bps.csv", encoding="utf-8") as file:
            rows = {(row["session"], int(row["cid"])): row for row in csv.DictReader(file)}
        metrics = json.loads((self.folder / "run" / "summary.json").read_text())["metrics"]
        return {key: float(row["bits_per_spike"]) if row["bits_per_spike"] else None for key, row in rows.items()}, \
            {key: float(row["spikes"]) for key, row in rows.items()}, metrics

    def check_mean(self, bits, metrics):
        """The overall figure is the mean over sessions of the mean over their units that have a number, those below 0 as 0."""
        by_session = {}
        for (session, _), value in bits.items():
            by_session.setdefault(session, []).append(value)
        means = [np.mean([max(v, 0.0) for v in values if v is not None]) for values in by_session.values() if any(v is not None for v in values)]
        self.assertAlmostEqual(metrics["val_bps_overall"]["last"], float(np.mean(means)), delta=2e-6)
        self.assertEqual(metrics["val_bps_overall"]["version"], 2)
        self.assertEqual(metrics["val_bps_overall/units"]["last"], sum(v is not None for v in bits.values()))
        self.assertEqual(metrics["val_bps_overall/units_left_out"]["last"], sum(v is None for v in bits.values()))
        self.assertEqual(metrics["val_bps_overall/units_below_0"]["last"], sum(v is not None and v < 0 for v in bits.values()))

    def test_silent_and_never_valid_units_of_the_collection_count_nowhere(self):
        data = self.shared("sessions")
        for kind in ("silent_unit", "unit_never_valid"):
            said = self.train(data / kind)
            self.assertIn("1 of 4 units have no spike in the validation (cid 2)", said)
            self.assertNotIn("could not be drawn", said)
            self.assertIn("val_bps_overall/units_left_out 1", said)
            bits, _, metrics = self.bits()
            self.assertEqual([cid for (_, cid), value in bits.items() if value is None], [2])
            self.check_mean(bits, metrics)
            self.assertLess(metrics["val_bps_overall"]["last"], 0.1)

    def test_the_collections_other_recordings(self):
        said = self.train(self.shared("sessions") / "clock_goes_back")
        self.assertRegex(said, r"/t_bins go back by [0-9.]+ s at bin \d+, in trial \d+.*No window crosses")
        said = self.train(self.folder / "sessions" / "unit_twice")
        self.assertIn("names cid 0 twice", said)
        said = self.train(self.folder / "sessions" / "plain")
        self.assertNotRegex(said, r"\.h5: /t_bins|no spike|twice|Are they")

    def test_twenty_random_recordings_give_what_numpy_says(self):
        sessions, silent, seams, gaps = {}, set(), {}, set()
        for i in range(20):
            name, rng, sets = f"s{i:02}", random.Random(900 + i), arrays(i)
            kind = ("silent", "back", "jump", "nan", "float", "never_valid", "plain")[i % 7]
            if kind == "silent":
                unit = rng.randrange(UNITS)
                sets["robs"][:, unit] = 0
                silent.add((name, unit))
            elif kind == "never_valid":
                unit = rng.randrange(UNITS)
                sets["missing_pct"][:, unit] = np.nan
                silent.add((name, unit))
            elif kind in ("back", "jump"):
                at = rng.randrange(1, BINS // TRIAL) * TRIAL - rng.randrange(2, TRIAL - 2)
                sets["t_bins"][at:] += -sets["t_bins"][at] if kind == "back" else rng.uniform(0.5, 100)
                seams[name] = at
            elif kind == "nan":
                at = rng.randrange(0, BINS - 40) // 2 * 2
                sets["eyepos"][at:at + 10] = np.nan
                sets["robs"][at:at + 10] = np.nan
                sets["dpi_valid"][at:at + 10] = 0
                gaps.add(name)
            elif kind == "float":
                sets["t_bins"] = (sets["t_bins"] + rng.uniform(1e3, 2e4)).astype(np.float32)
            sessions[name] = sets
        said = self.train(self.write(sessions), "--data.batch_size=256")
        bits, spikes, metrics = self.bits()
        self.assertEqual({key for key, value in bits.items() if value is None}, silent)
        self.assertEqual({key for key, value in spikes.items() if value == 0}, silent)
        self.check_mean(bits, metrics)
        for name in sessions:
            self.assertEqual(f"{name}/syn.h5: /t_bins" in said, name in seams, name)
            self.assertEqual(f"{name}/syn.h5: /eyepos has no number in 10 bins" in said, name in gaps, name)
            self.assertEqual(f"{name}/syn.h5: /robs has no number in 10 bins" in said, name in gaps, name)
            if name in seams:
                self.assertIn(f"at bin {seams[name]}, in trial {seams[name] // TRIAL}", said)

    def test_a_recording_of_silent_units_alone_has_no_figure_and_never_a_best(self):
        sets = arrays(1)
        sets["robs"][:] = 0
        self.train(self.write({"a": sets}))
        bits, _, metrics = self.bits()
        self.assertEqual(set(bits.values()), {None})
        self.assertEqual(metrics["val_bps_overall"]["last"], "nan")
        self.assertIsNone(metrics["val_bps_overall"]["best"])

    def test_what_looks_like_another_unit_is_told_with_a_remedy_that_helps(self):
        sets = arrays(2)
        sets["missing_pct"] /= 100
        sets["robs"] *= HZ
        said = self.train(self.write({"a": sets}), "--log.images=false")
        self.assertIn("are the values fractions?", said.lower())
        self.assertIn("are they rates in hz?", said.lower())
        sets["missing_pct"] *= 100  # as the notes say
        sets["robs"] /= HZ
        said = self.train(self.write({"a": sets}, cids="[0, 1, 2, 3, 1]"), "--log.images=false")
        self.assertIn("names cid 1 twice", said)
        self.assertNotIn("Are they", said)

    def test_a_run_of_before_is_not_compared_without_a_word_and_can_be_measured_anew(self):
        sets = arrays(7)
        sets["robs"][:, 1] = 0
        judged = ["--snapshot.every_steps=1", "--snapshot.best_metric=val_bps_overall", "--snapshot.best_is=highest", "--log.images=false"]
        data = self.write({"a": sets})
        self.train(data, *judged)
        newest = sorted((self.folder / "run" / "snapshots").iterdir())[-1]
        self.assertIn("metric_versions", (newest / "state.json").read_text())
        old = Path(shutil.copytree(self.folder / "run", self.folder / "old"))
        lines = [json.loads(line) for line in (old / "log.jsonl").read_text().splitlines()]
        for line in lines:
            line.pop("metric_versions", None)  # as a run of before has none
        (old / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        summary = json.loads((old / "summary.json").read_text())
        for metric in summary["metrics"].values():
            metric.pop("version", None)
        (old / "summary.json").write_text(json.dumps(summary))
        age(old / "snapshots" / newest.name, "val_bps_overall", 0.9)
        said = self.run_millrace("compare", "old", "run")
        self.assertIn("val_bps_overall (A: version 1, B: version 2); their values can't be compared", said)
        self.assertIn("millrace eval --from RUN", said)
        self.assertRegex(self.run_millrace("eval", "--from", "old"), r"val_bps_overall/units_left_out +1\b")
        self.assertNotIn("measured differently", self.run_millrace("compare", "run", "run"))
        listed = self.run_millrace("runs", "--root", ".", "--columns=run,best").splitlines()
        self.assertEqual(sum("val_bps_overall (version 2)" in line for line in listed), 1)
        self.run_millrace("report", "old", "run", "--out", "both.html")
        self.assertIn("val_bps_overall (versions 1 and 2)", (self.folder / "both.html").read_text())
        said = self.run_millrace("train", "neural_response", "--data", data, "--run", "old", *SHORT, *judged, "--train.max_steps=2")
        self.assertIn("val_bps_overall is measured by version 2 now: its earlier best, 0.9 at step 1 by version 1, no longer counts", said)
        self.assertIn("val_bps_overall (versions 1 and 2)", (old / "report.html").read_text())


if __name__ == "__main__":
    unittest.main()
