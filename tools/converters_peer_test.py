"""Tests of the tools that turn other formats into ours, on made-up input; skipped where numpy, torch, h5py or transformers is missing."""
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

try:
    import numpy as np
except ImportError:
    np = None
try:
    import torch
except (ImportError, OSError):
    torch = None
try:
    import h5py
except ImportError:
    h5py = None

try:
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers
except ImportError:
    transformers = None

TOOLS = Path(__file__).resolve().parent
REAL = TOOLS.parent.parent / "shared" / "data" / "neural"




def covariates(bins=8):
    return {
        "stim": np.arange(bins * 6, dtype=np.uint8).reshape(bins, 1, 2, 3),
        "robs": np.arange(bins * 2, dtype=np.float64).reshape(bins, 2),
        "eyepos": np.zeros((bins, 2)),
        "dpi_valid": np.linspace(-1, 1, bins),
        "trial_inds": np.arange(bins, dtype=np.float32) // 4,
        "t_bins": np.arange(bins) / 240,
        "psth_inds": np.zeros(bins),
    }


class Strange:
    """A class whose objects a pickle may hold next to tensors."""


class Modules(unittest.TestCase):
    def test_one_that_is_missing_is_named_with_the_python_that_has_it(self):
        for tool in ("dset_to_h5.py", "npy_to_session.py"):
            # -S: without the packages of this Python.
            done = subprocess.run([sys.executable, "-S", TOOLS / tool, "a", "b", "c"], capture_output=True, text=True)
            with self.subTest(tool):
                self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 3), done.stderr)
                self.assertIn("numpy can't be imported", done.stderr)
                self.assertIn("tools/python-peer", done.stderr)


@unittest.skipIf(np is None, "no numpy")
class Dset(unittest.TestCase):
    def setUp(self):
        from dset_to_h5 import convert

        self.convert = convert

    def refusal(self, call):
        with self.assertRaises(SystemExit) as refused:
            call()
        return str(refused.exception)

    def test_covariates_get_their_axes_and_types(self):
        arrays = self.convert(covariates(), "x.dset")
        self.assertEqual(list(arrays), ["stim", "robs", "eyepos", "dpi_valid", "trial_inds", "t_bins"])
        self.assertEqual(arrays["stim"].shape, (8, 2, 3))
        self.assertEqual([str(a.dtype) for a in arrays.values()], ["uint8", "uint8", "float32", "uint8", "int64", "float64"])
        self.assertEqual(arrays["dpi_valid"].tolist(), [0, 0, 0, 0, 1, 1, 1, 1])
        self.assertEqual(str(self.convert({**covariates(), "robs": np.full((8, 2), 300)}, "x")["robs"].dtype), "uint16")
        self.assertEqual(str(self.convert({**covariates(), "robs": np.full((8, 2), 0.5)}, "x")["robs"].dtype), "float32")
        self.assertIn("missing_pct", self.convert({**covariates(), "missing_pct": np.zeros((8, 2))}, "x"))

    def test_what_is_no_session_is_refused(self):
        without = covariates()
        del without["dpi_valid"]
        self.assertIn("no covariate dpi_valid (has: eyepos, ", self.refusal(lambda: self.convert(without, "x.dset")))
        self.assertIn("robs has 7 bins, stim has 8", self.refusal(lambda: self.convert({**covariates(), "robs": np.zeros((7, 2))}, "x")))
        self.assertIn("eyepos is [8], expected 2 axes", self.refusal(lambda: self.convert({**covariates(), "eyepos": np.zeros(8)}, "x")))
        grey = {**covariates(), "stim": np.full((8, 2, 3), -0.5)}
        self.assertIn("stim is float64 and not grey levels", self.refusal(lambda: self.convert(grey, "x")))

    @unittest.skipIf(torch is None, "no torch")
    def test_objects_are_unpickled_only_for_those_who_trust_the_file(self):
        from dset_to_h5 import load

        tensors = {key: torch.as_tensor(value) for key, value in covariates().items()}
        with tempfile.TemporaryDirectory() as folder:
            plain, strange = Path(folder, "plain.dset"), Path(folder, "strange.dset")
            torch.save({"covariates": tensors, "metadata": {}}, plain)
            torch.save({"covariates": tensors, "metadata": {"sess": Strange()}}, strange)
            self.assertEqual(self.convert(load(plain, False), "x")["stim"].shape, (8, 2, 3))
            self.assertIn("run this again with --trusted", self.refusal(lambda: load(strange, False)))
            kept = Strange
            del globals()["Strange"]  # as if the original were not installed
            try:
                with contextlib.redirect_stderr(io.StringIO()) as said:
                    self.assertEqual(self.convert(load(strange, True), "x")["robs"].shape, (8, 2))
                self.assertIn("strange.dset is unpickled, as --trusted allows", said.getvalue())
            finally:
                globals()["Strange"] = kept

    @unittest.skipIf(torch is None or h5py is None, "no torch or h5py")
    def test_the_file_has_what_the_recipe_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "in.dset")
            torch.save({"covariates": {key: torch.as_tensor(value) for key, value in covariates(200).items()}}, source)
            out = Path(folder, "allen_0216", "backimage.h5")
            subprocess.run([sys.executable, TOOLS / "dset_to_h5.py", source, out], check=True, stdout=subprocess.DEVNULL)
            with h5py.File(out) as file:
                self.assertEqual(sorted(file), ["dpi_valid", "eyepos", "robs", "stim", "t_bins", "trial_inds"])
                self.assertEqual(file["stim"].chunks, (64, 2, 3))
                self.assertEqual(dict(file.attrs), {"session": "allen_0216", "type": "backimage", "source_rate": 240.0})


@unittest.skipIf(np is None, "no numpy")
class ImagesAsSession(unittest.TestCase):
    def setUp(self):
        from npy_to_session import convert

        self.convert = convert

    def check(self, images, responses, hold=50):
        arrays = self.convert(images, responses, hold)
        repeats, count, units = responses.shape
        side = int(images.shape[1] ** 0.5)
        bins = repeats * count * hold
        self.assertEqual(arrays["stim"].shape, (bins, side, side))
        self.assertEqual(arrays["robs"].shape, (bins, units))
        sums = arrays["robs"].astype(np.float64).reshape(repeats, count, hold, units).sum(2)
        self.assertTrue(np.allclose(sums, responses, rtol=1e-5))
        frames = arrays["stim"].reshape(repeats, count, hold, side, side)
        self.assertTrue((frames == frames[:1, :, :1]).all())
        self.assertEqual((frames.min(), frames.max()), (0, 255))
        self.assertTrue((np.bincount(arrays["trial_inds"]) == hold).all())
        return arrays

    def test_each_repeat_of_an_image_is_a_trial(self):
        generator = np.random.default_rng(3)
        arrays = self.check(generator.uniform(0, 3e-4, (5, 49)), generator.gamma(1.0, 1.0, (3, 5, 4)), hold=10)
        self.assertEqual(arrays["trial_inds"][-1], 14)

    @unittest.skipUnless((REAL / "region1_raw_validation_set.npy").exists(), "no real responses in ../shared/data/neural")
    def test_real_responses_become_a_session(self):
        arrays = self.check(np.load(REAL / "region1_validation_inputs.npy"), np.load(REAL / "region1_raw_validation_set.npy"))
        self.assertEqual(arrays["stim"].shape, (25000, 31, 31))
        self.assertEqual(arrays["robs"].shape, (25000, 103))

    def test_other_arrays_are_refused(self):
        good, answers = np.zeros((5, 49)), np.zeros((3, 5, 4))
        for images, responses, word in (
            (np.zeros((5, 50)), answers, "the images are [5, 50]"),
            (good, np.zeros((3, 4, 4)), "the responses are [3, 4, 4]"),
            (good, answers - 1, "negative or not finite"),
        ):
            with self.assertRaises(SystemExit) as refused:
                self.convert(images, responses, 10)
            self.assertIn(word, str(refused.exception))

    def test_a_bin_of_two_images_is_refused(self):
        done = subprocess.run([sys.executable, TOOLS / "npy_to_session.py", "a", "b", "c", "--hold", "51"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--hold is 51", done.stderr)
        self.assertIn("a multiple of 2", done.stderr)


@unittest.skipIf(np is None, "no numpy")
class NiftiPairs(unittest.TestCase):
    def setUp(self):
        import nifti_to_npz

        self.tool = nifti_to_npz
        self.folder = tempfile.TemporaryDirectory()
        self.out = Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def pair(self, name):
        with np.load(self.out / name) as file:
            return file["arr_0"]

    def test_a_series_gives_its_first_two_volumes(self):
        values = np.arange(2 * 3 * 4 * 3, dtype=np.int16).reshape(2, 3, 4, 3)
        self.assertEqual(self.tool.convert([("a/s.nii.gz", values)], self.out), {self.out.name: 1})
        pair = self.pair("s.npz")
        self.assertEqual((pair.shape, pair.dtype), ((2, 4, 3, 2), np.float32))
        self.assertEqual(pair[0, 3, 2, 1], values[1, 2, 3, 0])
        self.assertEqual(pair[1, 3, 2, 1], values[1, 2, 3, 1])

    def test_a_volume_gets_a_thinned_copy(self):
        values = np.random.default_rng(1).uniform(10, 30, (32, 32, 32))
        self.tool.convert([("v.nii", values)], self.out, q=40.0)
        low, high = self.pair("v.npz").astype(np.float64)
        np.testing.assert_allclose(high, values.T, rtol=1e-6)
        width = np.percentile(high, 99.5) - high.min()
        counts = (low - high.min()) / width * 40
        self.assertLess(np.abs(counts - np.round(counts)).max(), 1e-3)
        self.assertAlmostEqual((low - high).mean() / width, 0, delta=5 * np.sqrt(0.5 / 40 / 32**3))
        self.assertAlmostEqual(((low - high) ** 2).mean() / (width * (high - high.min()).mean() / 40), 1, delta=0.05)

    def test_blocks_of_training_and_validation_lie_apart(self):
        values = np.arange(20 * 64 * 10, dtype=np.float32).reshape(20, 64, 10)  # y is the longest axis
        series = np.stack([values, values + 0.5], axis=-1)
        written = self.tool.convert([("v.nii", series)], self.out, blocks=9, block=(16, 16, 16), share=0.25, seed=3)
        self.assertEqual(written, {"train": 9, "val": 3})
        rows = {"train": set(), "val": set()}
        for folder, seen in rows.items():
            for path in sorted((self.out / folder).iterdir()):
                pair = self.pair(path)
                self.assertEqual(pair.shape, (2, 10, 16, 16))
                np.testing.assert_array_equal(pair[1], pair[0] + 0.5)
                seen.update(np.unique(pair[0].astype(int) // 10 % 64))
        self.assertLess(max(rows["train"]), 48)
        self.assertGreaterEqual(min(rows["val"]), 48)
        self.assertGreater(len(rows["train"]), 30)

    def test_equal_seeds_give_equal_files(self):
        values = np.random.default_rng(1).uniform(0, 1, (12, 12, 12))
        for name in ("one", "two"):
            self.tool.convert([("v.nii", values)], self.out / name, blocks=3, block=(8, 8, 8), seed=5)
        for path in (self.out / "one").rglob("*.npz"):
            np.testing.assert_array_equal(self.pair(path), self.pair(self.out / "two" / path.relative_to(self.out / "one")))

    def test_what_is_no_volume_is_refused(self):
        for values, said in ((np.zeros((3, 4)), "expected (x, y, z)"), (np.full((2, 2, 2), np.nan), "not finite")):
            with self.assertRaises(SystemExit) as refused:
                self.tool.convert([("v.nii", values)], self.out)
            self.assertIn(said, str(refused.exception))

    def test_real_volumes(self):
        try:
            import nibabel  # noqa: F401
        except ImportError:
            self.skipTest("no nibabel")
        volumes = [TOOLS.parent.parent / "shared" / "data" / "volumes" / name for name in ("example4d.nii.gz", "someones_anatomy.nii.gz")]
        if not all(path.exists() for path in volumes):
            self.skipTest("no real volumes in ../shared/data/volumes")
        subprocess.run([sys.executable, TOOLS / "nifti_to_npz.py", *volumes, "--out", self.out, "--blocks", "4", "--block", "16", "32", "32"],
                       check=True, capture_output=True)
        self.assertEqual(len(list((self.out / "train").iterdir())), 8)
        self.assertEqual(self.pair("train/example4d-000.npz").shape, (2, 16, 32, 32))


@unittest.skipIf(transformers is None, "no transformers")
class PromptTokens(unittest.TestCase):
    WORDS = ["<s>", "<unk>", "<image>", ",", "Cleaner", "?", "First", "Second", "Similar"]

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(self.WORDS)}, unk_token="<unk>"))
        words.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
        special = {"bos_token": "<s>", "unk_token": "<unk>", "additional_special_tokens": ["<image>"]}
        transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(self.folder / "tokenizer")

    def run_tool(self, *words):
        command = [sys.executable, TOOLS / "tokenize_prompt.py", self.folder / "tokenizer", "--out", self.folder / "prompt.json", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_the_config_has_the_tokenizers_numbers(self):
        done = self.run_tool("--question", "Cleaner?")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("6 tokens, two of them for the images", done.stdout)
        recipe = json.loads((self.folder / "prompt.json").read_text(encoding="utf-8"))["recipe"]
        self.assertEqual(recipe, {"prompt_token_ids": [0, 2, 2, 3, 4, 5], "answer_token_ids": [6, 7, 8], "image_token_id": 2})

    def test_what_does_not_fit_is_said(self):
        for words, said in ((["--image-token", "<picture>"], "no token '<picture>'"), (["--answers", "First", "First", "Similar"], "begin with one token"),
                            (["--question", "<image>?"], "3 image tokens, not two")):
            done = self.run_tool(*words)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(said, done.stderr)
            self.assertFalse((self.folder / "prompt.json").exists())


if __name__ == "__main__":
    unittest.main()
