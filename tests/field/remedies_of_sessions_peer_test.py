"""Remedies of the readers of recordings and dataset files, done as they are printed; see remedies.py."""
import unittest

import h5py
import numpy as np
from remedies import RemedyTest, Row
from sessions_peer_test import BINS, DATASET, SHORT, arrays


class SessionFiles(RemedyTest):
    """One session for each fault: the program names the first, which is mended, and so the next."""

    def write(self, name, sets, kind="syn"):
        data = self.folder / "data"
        (data / "sessions").mkdir(parents=True, exist_ok=True)
        types = "types: [syn, two]\n" if kind == "two" else ""
        (data / "sessions" / f"{name}.yaml").write_text(f"session: {name}\n{types}cids: [0, 1, 2, 3]\n")
        (data / name).mkdir(exist_ok=True)
        with h5py.File(data / name / f"{kind}.h5", "w") as file:
            for key, values in sets.items():
                if key == "source_rate":
                    file.attrs[key] = values
                else:
                    file[key] = values

    def with_(self, name, **change):
        return lambda *_: self.write(name, arrays(1) | change)

    def without(self, name, *keys):
        return lambda *_: self.write(name, {key: values for key, values in arrays(1).items() if key not in keys})

    def cids(self, name, text):
        return lambda *_: (self.folder / "data" / "sessions" / f"{name}.yaml").write_text(f"session: {name}\ncids: {text}\n")

    def lags(self, name, text):
        self.write(name, arrays(1))
        with (self.folder / "data" / "sessions" / f"{name}.yaml").open("a") as file:
            file.write(f"keys_lags: {text}\n")

    def hollow(self, name):
        """A stimulus that the file can't hold."""
        self.write(name, {key: values for key, values in arrays(1).items() if key != "stim"})
        with h5py.File(self.folder / "data" / name / "syn.h5", "r+") as file:
            file.create_dataset("stim", shape=(10**8, 7, 7), dtype="u1", chunks=(10**4, 7, 7))

    def train(self, status):
        return self.run_millrace("train", "neural_response", "--data", "data", "--rehearse", "--device.threads=1", *SHORT, status=status)

    def test_files_of_sessions(self):
        sound = arrays(1)
        nan, negative, halves = sound["eyepos"].copy(), sound["robs"].copy(), sound["trial_inds"] + 0.5
        nan[100, 1], negative[7, 2] = np.nan, -1
        marked = sound["dpi_valid"].copy()
        marked[100:102] = 0
        spoilt_cids = []

        def wrong_cids():
            self.with_("s01")()
            spoilt_cids.append(self.cids("s01", "[1, 2, 3, 4]")())

        mended = self.without  # all of a sound recording
        rows = [
            Row("correct the session's cids: they count from 0", wrong_cids, self.cids("s01", "[0, 1, 2, 3]")),
            Row("counts are 0 or more: repair the file, or take the unit out of cids", self.with_("s02", robs=negative), self.cids("s02", "[0, 1, 3]")),
            Row("mark the bin with dpi_valid 0, or fill the gap", self.with_("s03", eyepos=nan), self.with_("s03", eyepos=nan, dpi_valid=marked)),
            Row("number the trials with whole numbers", self.with_("s04", trial_inds=halves), self.with_("s04", trial_inds=halves.astype(int))),
            Row("the first axis is time, in bins at the source rate", self.with_("s05", robs=sound["robs"][:, 0]), mended("s05")),
            Row("write it anew as plain numbers", self.with_("s06", robs=np.array([b"1"] * BINS)), mended("s06")),
            Row("write it anew as real numbers", self.with_("s07", robs=sound["robs"].astype(np.complex64)), mended("s07")),
            Row("write the session's files anew; their datasets are listed in the recipe's README", self.without("s08", "robs"), mended("s08")),
            Row("correct the file's attribute source_rate: bins per second", self.with_("s09", source_rate="fast"), self.with_("s09", source_rate=240)),
            Row("…set sampling.source_rate to … in the dataset file, or ……", self.with_("s10", source_rate=100), self.with_("s10", source_rate=240.0),
                says="set sampling.source_rate to 100 in the dataset file, or correct the file's attribute source_rate"),
            Row("look at /dpi_valid, /trial_inds and /missing_pct, or make the filters less strict", self.with_("s11", dpi_valid=np.zeros(BINS, np.uint8)),
                mended("s11")),
            Row("remove the file from types, or write it anew", self.with_("s12", stim=sound["stim"][:0]), mended("s12")),
            Row("write all datasets of a session with the same number of bins", self.with_("s13", robs=sound["robs"][:-1]), mended("s13")),
            Row("write all datasets of the session in the order of time, or remove /t_bins", self.with_("s14", t_bins=sound["t_bins"][::-1]),
                self.without("s14", "t_bins")),
            Row("write grey levels from 0 to 255", self.with_("s15", stim=sound["stim"] / np.float32(255)),
                self.with_("s15", stim=(sound["stim"] / np.float32(255) * 255).astype(np.uint8))),
            Row("write more trial numbers into /trial_inds, or leave the session out", self.with_("s16", trial_inds=np.zeros(BINS)), mended("s16")),
            Row("write one number per bin", self.with_("s17", dpi_valid=np.ones((BINS, 2))), mended("s17")),
            Row("write the datasets that transforms expose as behavior with the same columns in all sessions, or leave a session out",
                self.with_("s18", eyepos=np.zeros((BINS, 3), np.float32)), mended("s18")),
            Row("write keys_lags only in the file that names the sessions", lambda: self.lags("s23", "{stim: [0, 1]}"), mended("s23")),
        ]
        self.write("s20", sound)
        self.write("s22", sound)
        halved = sound["trial_inds"] // (BINS // 96 // 2)
        one_side = np.where(halved == 0, 1, 0).astype(np.uint8)

        def two(name, **change):
            return lambda *_: self.write(name, sound | change, kind="two")

        rows += [
            Row("the file is damaged: write it anew", lambda: self.hollow("s19"), mended("s19")),
            Row("cut or scale the stimuli of a session to one size", two("s20", stim=np.repeat(sound["stim"], 2, 2)),
                two("s20", stim=np.repeat(sound["stim"], 2, 2)[:, :, ::2])),
            Row("write behavior with the same columns in all files of a session", two("s22", eyepos=np.zeros((BINS, 3), np.float32)), two("s22")),
            Row("give the dataset file another seed or train_val_split, or leave the session out", self.with_("s21", trial_inds=halved, dpi_valid=one_side),
                self.with_("s21", trial_inds=halved)),
        ]
        names = [f"s{i:02}" for i in range(1, 24)]
        (self.folder / "data").mkdir(exist_ok=True)
        (self.folder / "data" / "dataset.yaml").write_text(DATASET.format(names=", ".join(["s00", *names])))
        self.write("s00", sound)
        self.follow(rows, self.train)


# A dataset file with all that can be wrong in one, and a line for each remedy: what it is about, and the same as it advises.
DATASET_OF_FAULTS = """types: []
session_dir: ./sessions
sessions: []
sampling: {source_rate: 0, target_rate: 120}
keys_lags: {robs: 2, stim: [1, 2], behavior: 0, dfs: 0}
transforms:
  stim: {source: eyepos, ops: [{splitrelu: {}}, {pixelnorm: {}}, {fftwhitening: {f_0: 0}}, {dacones: {sampling_rate: 0, filter_length: 200000}},
    {unsqueeze: 1}], expose_as: sound}
  first: {source: eyepos, concatenate: true, ops: [{diff: {axis: 1}}, {symlog: {a: 1}}, {maxnorm: 3}, {smooth: {type: box}}, {cast: {dtype: int7}}],
    expose_as: behavior}
  second: {source: robs, concatenate: true, ops: 3, expose_as: behavior}
  third: {source: eyepos, ops: [{a: 1, b: 2}, {smooth: {params: 2000000}}], expose_as: behavior}
  fourth: {source: eyepos, concatenate: true, ops: [{splitrelu: {split_dim: 2}}, {temporal_basis: {chomp: 1, orthogonalize: true,
    peak_range_ms: [5], bin_size_ms: 0, num_cosine_funcs: 3000, history_bins: 12}}], expose_as: dfs}
datafilters:
  dfs: {ops: [{valid_nlags: {n_lags: 1}}, {missing_pct: {threshold: 45}}, {misssing_pct: {}}], expose_as: robs}
train_val_split: 3
seed: [1]
sede: 2
"""
DATASET_MENDS = [
    ("name the HDF5 files of a session without .h5", "types: []", "types: [syn]"),
    ("write sessions: [NAME, ...]", "sessions: []", "sessions: [a, b, c, d, null]"),
    ("add stim: {source: stim, ops: [pixelnorm: {}, unsqueeze: 1], expose_as: stim}", "expose_as: sound}", "expose_as: stim}"),
    ("in YAML null, ~ and an empty item are no text: write the name in quotes", "d, null]", "d, 'null']"),
    ("write source_rate and target_rate in Hz", "source_rate: 0", "source_rate: 200"),
    ("only the stimulus has lags; write …: 0", "robs: 2", "robs: 0"),
    ("write all lags from 0 on, in order", "stim: [1, 2]", "stim: [0, 1, 2]"),
    ("raise datafilters' valid_nlags.n_lags, because otherwise a window would reach into the trial before", "n_lags: 1}", "n_lags: 3}"),
    ("… is made of … alone", "stim: {source: eyepos", "stim: {source: stim"),
    ("remove the operation", "{splitrelu: {}}, {pixelnorm", "{pixelnorm"),
    ("write a frequency in cycles per sample, such as 0.4", "f_0: 0}", "f_0: 0.4}"),
    ("write it in Hz", "sampling_rate: 0", "sampling_rate: 100"),
    ("write fewer bins", "filter_length: 200000", "filter_length: 20"),
    ("valid_nlags…missing_pct", "misssing_pct: {}", "missing_pct: {threshold: 45}"),
    ("…known: …, …did you mean …?", "sede: 2\n", ""),
    ("write axis: 0", "diff: {axis: 1}", "diff: {axis: 0}"),
    ("… has no arguments", "symlog: {a: 1}", "symlog: {}"),
    ("write {} after it", "maxnorm: 3", "maxnorm: {}"),
    ("write type: gaussian", "type: box", "type: gaussian"),
    ("float16…float32…float64…int8…int16…int32…int64…bool…uint8", "int7", "int8"),
    ("take eyepos, or another dataset of the session files", "second: {source: robs", "second: {source: eyepos"),
    ("write a list: - NAME: {arguments}", "ops: 3", "ops: []"),
    ("write each as - NAME: {arguments}", "{a: 1, b: 2}, ", ""),
    ("write a smaller one", "params: 2000000", "params: 2"),
    ("…behavior…write concatenate: true in both…keep one of them", "third: {source: eyepos,", "third: {source: eyepos, concatenate: true,"),
    ("write split_dim: 1", "split_dim: 2", "split_dim: 1"),
    ("remove chomp", "chomp: 1, ", ""),
    ("write …: …true…false", "orthogonalize: true", "orthogonalize: false"),
    ("write [lowest, highest] in ms", "peak_range_ms: [5]", "peak_range_ms: [5, 50]"),
    ("leave it out: it is 5", "bin_size_ms: 0, ", ""),
    ("write 1 to 1,000 functions of at most 100,000 bins", "num_cosine_funcs: 3000", "num_cosine_funcs: 3"),
    ("write it under datafilters, or expose it as behavior", "expose_as: dfs}", "expose_as: behavior}"),
    ("filters make dfs", "expose_as: robs}", "expose_as: dfs}"),
    ("write the share for training, such as 0.8", "train_val_split: 3", "train_val_split: 0.5"),
    ("correct the value", "seed: [1]", "seed: 1"),
]


class DatasetFiles(RemedyTest):
    def test_a_dataset_file_of_faults(self):
        data, printed = self.folder / "data", {
            "valid_nlags…missing_pct": 'did you mean "missing_pct"', "…known: …, …did you mean …?": 'did you mean "seed"',
            "…behavior…write concatenate: true in both…keep one of them": "write concatenate: true in both",
                                               "write …: …true…false": "write orthogonalize: false",
                                               "float16…float32…float64…int8…int16…int32…int64…bool…uint8": 'did you mean "int8"'}
        file = data / "dataset.yaml"

        def session(name, text):
            (data / "sessions" / f"{name}.yaml").write_text(text)

        def replaced(old, new):
            text = file.read_text()
            self.assertIn(old, text)
            file.write_text(text.replace(old, new))

        (data / "sessions").mkdir(parents=True)
        rows = [Row(remedy, lambda: None, lambda _, old=old, new=new: replaced(old, new), says=printed.get(remedy, ""))
                for remedy, old, new in DATASET_MENDS]
        rows += [Row("write ….yaml with its cids there, or correct session_dir", lambda: session("a", "session: a\ncids: [0]\n"),
                     lambda _: session("null", "session: 'null'\ncids: [0]\n")),
                 Row("write cids: [0, 1, ...], the columns of /robs that the model predicts", lambda: session("b", "session: b\n"),
                     lambda _: session("b", "session: b\ncids: [0]\n")),
                 Row("give it the name of its folder of HDF5 files", lambda: session("d", "session: ../d\ncids: [0]\n"),
                     lambda _: session("d", "session: d\ncids: [0]\n")),
                 Row("remove one of them", lambda: session("c", "session: a\ncids: [0]\n"), lambda _: session("c", "session: c\ncids: [0]\n")),
                 Row("set data.dir to the folder that holds …/ and recipe.dataset_config to this dataset file, or make some: millrace make-data "
                     "neural_response", lambda: None, lambda _: self.sessions(("a", "b", "c", "d", "null"))),
                 Row("choose a target_rate that divides the source_rate", lambda: None, lambda _: replaced("target_rate: 120", "target_rate: 100"))]
        both = "{source: eyepos, concatenate: true, expose_as: behavior}"
        rows.append(Row("write each on a separate line, because their order counts", lambda: session("b", f"session: b\ntransforms: {{x: {both}, y: {both}}}\n"),
                        lambda _: session("b", "session: b\n")))
        file.write_text(DATASET_OF_FAULTS)
        self.options = ["--data", "data"]
        self.follow(rows, lambda status: self.run_millrace("train", "neural_response", *self.options, "--rehearse", "--recipe.frontend.kernel_size=3", "--device.threads=1",
                                                           *SHORT, status=status))

    def sessions(self, names):
        self.options = ["--data", "elsewhere", "--recipe.dataset_config=data/dataset.yaml"]
        for name in names:
            (self.folder / "elsewhere" / name).mkdir(parents=True)
            with h5py.File(self.folder / "elsewhere" / name / "syn.h5", "w") as file:
                for key, values in arrays(1).items():
                    file[key] = values


if __name__ == "__main__":
    unittest.main()
