"""What data say of themselves: `inspect`, the plan of a run and `show` have the axes, units, orientations, clocks and encodings that the
reference libraries find in the same files, and one and the same words for them."""
import gzip
import json
import re
import sys
import unittest
from pathlib import Path

import h5py
import nibabel
import numpy as np
import torch
from PIL import Image, ImageOps

sys.path.insert(0, str(Path(__file__).resolve().parent))
from field import FieldTest
from sessions_peer_test import BINS, DATASET, HZ, TRIAL, UNITS, arrays
from sky_axes_peer_test import OPTIONS as SKY, write as write_sky
from uvh5_peer_test import write as write_uvh5

FORMS = ["unknown", "scanner", "aligned", "Talairach", "MNI", "template"]
MHZ = np.linspace(115, 100, 16)
RA = np.arange(8) * 1.5 + 354  # through 0


class SaysTest(FieldTest):
    def inspect(self, path, status=0):
        """The facts of `millrace inspect`, {label: value}."""
        said = self.run_millrace("inspect", path, status=status)
        rows = (line.strip().split("  ", 1) for line in said.splitlines() if line.startswith("  ") and "  " in line.strip())
        return {"kind": said.split(" " + str(path))[0], "said": said, **{label: value.strip() for label, value in rows}}

    def read_as(self, said):
        """The line of a plan, or the first of `show`."""
        found = re.search(r"^ *read as +(.*)$", said, re.MULTILINE)
        self.assertIsNotNone(found, said)
        return found[1]

    def put(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    # -- volumes

    def test_volumes(self):
        for seed in range(5):
            draws = np.random.default_rng(seed)
            affine = np.eye(4)
            affine[:3] = draws.normal(size=(3, 4)) * 3 if seed % 2 else np.roll(np.diag(draws.choice([-2.0, 0.5, 3], 3)), seed, 0) @ np.eye(3, 4)
            image = nibabel.Nifti1Image(draws.integers(0, 99, (4, 5, 6, 3)).astype(np.int16), affine)
            code = int(draws.integers(1, 6))
            image.set_sform(affine, code)
            image.header.set_xyzt_units(["mm", "meter", "micron", "unknown", "mm"][seed], ["sec", "msec", "usec", "unknown", "hz"][seed])
            image.header["pixdim"][4] = 2.5
            image.header.set_slope_inter(0.5, 3)
            path = self.folder / f"v{seed}.nii"
            nibabel.save(image, path)
            with self.subTest(seed=seed):
                facts = self.inspect(path)
                codes = "".join(nibabel.aff2axcodes(nibabel.load(path).affine))
                self.assertEqual(facts["orientation"], f"{codes} by the sform ({FORMS[code]})")
                length, time = ["mm", "m", "um", "", "mm"][seed], ["s", "ms", "us", "", "Hz"][seed]
                sizes = [float(size) for size in re.match(r"([\d.e+-]+) x ([\d.e+-]+) x ([\d.e+-]+)", facts["voxel"]).groups()]
                np.testing.assert_allclose(sizes, nibabel.load(path).header.get_zooms()[:3], rtol=1e-4)
                self.assertIn(f" {length} (x first)" if length else ", without a unit", facts["voxel"])
                self.assertIn("; 3 volumes, 2.5 " + (f"{time} apart" if time else "apart, without a unit"), facts["voxel"])
                self.assertEqual(facts["value"], "stored * 0.5 + 3")
                self.assertIn(f"x {length}" if length else "x ", facts["said"].split("affine", 1)[1])
                self.assertNotIn("passed over", facts)

    def test_a_volume_without_a_form_and_one_whose_sizes_differ(self):
        image = nibabel.Nifti1Image(np.zeros((4, 5, 6), np.uint8), None)
        image.header["pixdim"][1:4] = 2, 3, 4
        nibabel.save(image, self.folder / "plain.nii")
        self.assertEqual(self.inspect(self.folder / "plain.nii")["orientation"], "LAS by only voxel sizes, without a form")
        image = nibabel.Nifti1Image(np.zeros((4, 5, 6), np.uint8), np.diag([1, 2, 2, 1]))
        image.header["pixdim"][1] = 7
        content = bytearray(image.to_bytes())
        content[80:84] = np.float32(7).tobytes()  # what nibabel's writer would mend
        facts = self.inspect(self.put("other.nii", bytes(content)))
        self.assertIn("7 x 2 x 2", facts["voxel"])
        self.assertIn("(by the affine 1 x 2 x 2)", facts["voxel"])

    def test_padding_is_told(self):
        plain = nibabel.Nifti1Image(np.arange(120, dtype=np.int16).reshape(4, 5, 6), np.eye(4)).to_bytes()
        for name, content, told in (("a.nii.gz", gzip.compress(plain) + bytes(512), "512 bytes behind the compressed data"),
                                    ("b.nii.gz", gzip.compress(plain + bytes(70000)), "70,000 bytes behind the voxels"),
                                    ("c.nii.gz", gzip.compress(plain + b"\n") + b"\n",
                                     "1 byte behind the voxels and 1 byte behind the compressed data"),
                                    ("d.nii", plain + bytes(9), "9 bytes behind the voxels")):
            self.assertEqual(self.inspect(self.put(name, content))["passed over"], told)
        np.save(self.folder / "e.npy", np.arange(3))
        with open(self.folder / "e.npy", "ab") as file:
            file.write(b"\r\n")
        self.assertEqual(self.inspect(self.folder / "e.npy")["passed over"], "2 bytes behind the elements")

    # -- HDF5

    def test_a_sky(self):
        for side in ("signal", "foreground"):
            for i in range(2):
                write_sky(self.folder / "sky" / side / f"{side[0]}{i}.h5", i, freq=MHZ * 1e6, freq_unit="Hz", ra=RA % 360, unit="kelvin")
        words = "channels 115 to 100 MHz descending in steps of 1 (/index_map/freq in Hz), RA 354 to 4.5 degrees ascending in steps of 1.5, in K"
        facts = self.inspect(self.folder / "sky" / "signal" / "s0.h5")
        self.assertEqual(facts["axis /index_map/freq"], "16 numbers, 1.15e+08 to 1e+08 Hz descending in steps of 1e+06")
        self.assertIn(words, facts["read by cosmology as"])
        self.assertEqual(self.read_as(self.run_millrace("train", "cosmology", "--data", "sky", *SKY)), words)
        shown = self.run_millrace("show", "cosmology", "--data", "sky", *SKY[:-1], "--pictures", "drawn")
        self.assertEqual(self.read_as(shown), words)
        for field in ("x", "y", "input", "target"):
            with Image.open(self.folder / "drawn" / f"batch-0-{field}.png") as picture:
                self.assertGreater(np.asarray(picture).std(), 1)

    def test_a_sky_that_says_nothing_is_told_as_such(self):
        for side in ("signal", "foreground"):
            write_sky(self.folder / "sky" / side / "a.h5", 1, freq=None)
        line = self.read_as(self.run_millrace("train", "cosmology", "--data", "sky", *SKY))
        self.assertIn("of recipe.band_mhz", line)
        self.assertIn("RA not said, kelvin (no unit given)", line)
        self.assertIn("channels without frequencies", self.inspect("sky/signal/a.h5")["said"])

    def test_uvh5_and_what_of_a_folder_is_left_out(self):
        (self.folder / "obs").mkdir()
        write_uvh5(self.folder / "obs" / "a.uvh5", seed=1)
        facts = self.inspect(self.folder / "obs" / "a.uvh5")
        self.assertIn("uvh5: 12 rows, 8 channels 100.000 to 107.000 MHz ascending, xx, Jy, complex64; 3 baselines, 4 times from JD 2459000.50000, "
                      "8.64 s apart on average; with flags, with nsamples", facts["read by cosmology as"])
        self.assertIn('"Jy"', facts["said"])
        self.put("obs/._a.uvh5", b"x")
        self.put("obs/notes.txt", b"x")
        said = self.run_millrace("uvh5", "obs", "--out", "sky", "--make-signal", "0.01")
        self.assertIn('left out    2 of 3 names in obs are left out: "._a.uvh5", "notes.txt"', said)
        said = self.run_millrace("train", "cosmology", "--recipe.signal_dir=obs", "--recipe.foreground_dir=obs", *SKY, status=1)
        self.assertIn("2 of 2 names in obs are left out", said)

    def test_a_recording(self):
        sets = arrays(1)
        sets["t_bins"][TRIAL * 3 + 5:] += 2.0
        data = self.folder / "made"
        (data / "sessions").mkdir(parents=True)
        (data / "a").mkdir()
        (data / "dataset.yaml").write_text(DATASET.format(names="a"))
        (data / "sessions" / "a.yaml").write_text("session: a\ncids: [0, 1, 2, 3]\n")
        with h5py.File(data / "a" / "syn.h5", "w") as file:
            for key, values in sets.items():
                file[key] = values
        clock = f"{HZ} Hz, 7 to {sets['t_bins'][-1]:.5g} s, 1 gap or step back"
        line = self.inspect(data / "a" / "syn.h5")["read by neural_response as"]
        self.assertEqual(line.split(": /t_bins")[0], f"session: {BINS} bins, {UNITS} units, frames of 7 x 7 u8, {BINS // TRIAL} trials, clock {clock}")
        self.assertIn(f"step by 2 s at bin {TRIAL * 3 + 5}, in trial 3", line)
        shown = self.run_millrace("show", "neural_response", "--data", data, "--preset", "smoke", "--pictures", "drawn")
        self.assertEqual(self.read_as(shown), f"clock {clock.replace('Hz,', 'Hz of /t_bins,')}; read at 120 Hz, frames of 7 x 7, 8 lags")
        self.assertTrue((self.folder / "drawn" / "batch-0-a-stim.png").exists())

    # -- pictures

    def test_pictures(self):
        draws = np.random.default_rng(3)
        colour = Image.fromarray(draws.integers(0, 256, (40, 50, 3), dtype=np.uint8))
        turned = Image.Exif()
        turned[0x0112] = 6
        made = {"palette.png": (colour.quantize(16), {"transparency": 0, "bits": 4}), "one.png": (colour.convert("1"), {}),
                "deep.png": (Image.fromarray(draws.integers(0, 65536, (38, 39), dtype=np.uint16)), {}), "clear.png": (colour.convert("RGBA"), {}),
                "gray.jpg": (colour.convert("L"), {}), "turned.jpg": (colour, {"exif": turned}), "turned.png": (colour, {"exif": turned})}
        kinds = {"P": "a palette", "1": "gray", "L": "gray", "I;16": "gray", "RGB": "RGB", "RGBA": "RGB"}
        for name, (image, options) in made.items():
            with self.subTest(name=name):
                path = self.folder / "photos" / "images" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                image.save(path, **options)
                with Image.open(path) as theirs:
                    mode, orientation = theirs.mode, theirs.getexif().get(0x0112, 1)
                    clear = mode == "RGBA" or "transparency" in theirs.info
                    width, height = ImageOps.exif_transpose(theirs).size
                ours = json.loads(self.run_millrace("inspect", path, "--json"))
                self.assertEqual((ours["width"], ours["height"], ours["orientation"]), (width, height, orientation))
                self.assertEqual((ours["stored_as"], ours["transparency"]), (kinds[mode], clear))
                self.assertEqual(ours["bits"], {"P": 4, "1": 1, "I;16": 16}.get(mode, 8))
        self.assertIn("a palette of 4 bits, with transparency, which is dropped", self.inspect(self.folder / "photos" / "images" / "palette.png")["stored as"])
        (self.folder / "photos" / "labels.txt").write_text("".join(f"{name} {i}\n" for i, name in enumerate(made)))
        said = self.run_millrace("train", "image_pairs", "--data", "photos", "--preset", "smoke", "--recipe.per_class=1",
                                 "--recipe.val_samples=2", "--recipe.folds=2", "--recipe.theta=1", "--recipe.near_band=1", "--data.batch_size=2",
                                 "--rehearse")
        self.assertEqual(self.read_as(said), "7 pictures of 39 to 50 x 38 to 50 pixels (width x height), 2 rotated upright as EXIF says, "
                                             "2 with transparency, which is dropped, 1 of 16 bits, of which the upper 8 are used")

    # -- tables and texts

    def test_tables_and_texts(self):
        table = self.put("a.csv", "\ufeffname;speed;size\r\na;1,5;2\r\nb;2,25;\r\n".encode())
        facts = self.inspect(table)
        self.assertEqual(facts["read as"], "2 rows of 3 columns, separated by semicolons; a byte-order mark is ignored")
        self.assertRegex(facts["said"], r"name +text\n +?speed +numbers with decimal commas\n +?size +numbers, 1 empty|"
                                        r"name +text\nspeed +numbers with decimal commas\nsize +numbers, 1 empty")
        for content, words in (("a\nb\n", "UTF-8, lines end in LF; 2 lines, 4 characters"),
                               ("\ufeffä\r\nb\r\n", "UTF-8, lines end in CR LF, a byte-order mark is removed; 2 lines, 6 characters"),
                               ("a\r\nb\nc\rd", "UTF-8, lines end in different ways: 1 in LF, 1 in CR LF, 1 in CR; 3 lines, 8 characters")):
            self.assertEqual(self.inspect(self.put("notes", content.encode()))["read as"], words)
        text = "Früh am Morgen\r\n" * 60
        self.put("texts/a.txt", text.encode())
        self.put("texts/b.txt", text.encode())
        learn = ["language_model", "--data", "texts", "--preset", "smoke"]
        words = f"UTF-8, 2 files, lines end in CR LF; 120 lines, {2 * len(text):,} characters"
        self.assertEqual(self.read_as(self.run_millrace("train", *learn, "--rehearse")), words)
        self.assertEqual(self.read_as(self.run_millrace("show", *learn)), words)  # of the tokens that are kept

    # -- names

    def test_content_goes_before_names(self):
        volume = nibabel.Nifti1Image(np.zeros((4, 5, 6), np.uint8), np.eye(4)).to_bytes()
        self.put("scan.nii.orig", volume)
        self.put("packed.nii.bak", gzip.compress(volume))
        self.put("volume.png", volume)
        Image.new("RGB", (4, 4)).save(self.folder / "picture", format="PNG")
        np.savez(self.folder / "arrays.npz", x=np.arange(3))
        (self.folder / "arrays.npz").rename(self.folder / "arrays.pt")
        torch.save({"x": torch.zeros(3)}, self.folder / "weights.npz")
        with h5py.File(self.folder / "sky.npy", "w") as file:
            file["x"] = np.arange(3)
        self.put("README", b"plain words\n")
        for name, kind in (("scan.nii.orig", "NIfTI volume"), ("packed.nii.bak", "NIfTI volume"), ("volume.png", "NIfTI volume"),
                           ("picture", "image"), ("arrays.pt", "NumPy archive"), ("weights.npz", "PyTorch file"), ("sky.npy", "HDF5 file"),
                           ("README", "text")):
            self.assertEqual(self.inspect(self.folder / name)["kind"], kind, name)

    def test_volumes_of_several_orientations_are_told(self):
        for i, affine in enumerate((np.diag([-1, 1, 2, 1]), np.diag([-1, 1, 2, 1]), np.diag([1, 1, 2, 1]))):
            image = nibabel.Nifti1Image(np.random.default_rng(i).integers(0, 99, (16, 16, 16)).astype(np.int16), affine)
            image.header.set_xyzt_units("mm")
            (self.folder / "volumes").mkdir(exist_ok=True)
            nibabel.save(image, self.folder / "volumes" / f"v{i}.nii")
        train = ["autoencoder_3d", "--data", "volumes", "--preset", "smoke", "--recipe.patch_size=[16,16,16]"]
        said = self.run_millrace("train", *train, "--rehearse")
        self.assertIn('1 file with axes in another orientation (RAS) than most (LAS; nothing is rotated): "v2.nii"', said)
        self.assertEqual(self.read_as(said), "2 files LAS by the sform (aligned), voxels of 1 x 1 x 2 mm; "
                                             "1 file RAS by the sform (aligned), voxels of 1 x 1 x 2 mm")
        (self.folder / "volumes" / "v2.nii").unlink()
        shown = self.run_millrace("show", *train, "--pictures", "drawn")
        self.assertEqual(self.read_as(shown), "LAS by the sform (aligned), voxels of 1 x 1 x 2 mm")
        self.assertNotIn("another orientation", shown)


if __name__ == "__main__":
    unittest.main()
