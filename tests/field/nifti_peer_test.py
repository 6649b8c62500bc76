"""Volumes under all names that their files have, and headers out of the standard: values and places are nibabel's."""
import gzip
import json
import shutil
import sys
import unittest
from pathlib import Path

import nibabel
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from field import FieldTest

SHAPE = (20, 18, 16)
FACTOR = 4


def volume(seed, shape=SHAPE):
    return np.random.default_rng(seed).integers(0, 1000, shape).astype(np.int16)


def header_of(seed):
    """A header of a seed: what files of the field have, in the standard and out of it."""
    draws = np.random.default_rng(seed)
    image = nibabel.Nifti1Image(volume(seed, (5, 4, 3)), None)
    header = image.header
    header["pixdim"][1:4] = draws.choice([-1.5, 1.5, 2, 0, -3, 0.7], 3)
    header["pixdim"][0] = draws.choice([1, -1, 0, 3])
    kind = seed % 4
    if kind == 1:
        header["qform_code"] = draws.choice([1, 2, 7])
        turn = draws.normal(size=4)
        turn /= np.linalg.norm(turn)
        header["quatern_b"], header["quatern_c"], header["quatern_d"] = turn[1:]
    if kind == 2:  # next to a = 0
        header["qform_code"] = 1
        turn = draws.normal(size=3)
        turn /= np.linalg.norm(turn) * (1 + draws.choice([0, 1e-7, -1e-7, 1e-8]))
        header["quatern_b"], header["quatern_c"], header["quatern_d"] = turn
    if kind == 3:
        header["sform_code"] = draws.choice([1, 2, 9])
        for row in ("srow_x", "srow_y", "srow_z"):
            header[row] = draws.normal(size=4)
    header["qoffset_x"], header["qoffset_y"], header["qoffset_z"] = draws.normal(size=3) * 50
    return header


class NiftiTest(FieldTest):
    def write_raw(self, path, header, voxels):
        """As it stands: nibabel's own writer would mend the header."""
        header["magic"] = b"n+1"
        header["vox_offset"] = 352
        path.write_bytes(header.binaryblock + bytes(4) + voxels.tobytes(order="F"))

    def trained(self):
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        for i in range(3):
            nibabel.save(nibabel.Nifti1Image(volume(i), np.eye(4)), data / f"v{i}.nii.gz")
        self.run_millrace("train", "autoencoder_3d", "--data", data, "--preset", "smoke", "--recipe.patch_size=[16,16,16]",
                          "--recipe.pad_small=true", "--train.max_steps=1", "--train.validate_every=0", "--run", "run")

    def encode_and_decode(self, path):
        """The affine of the latent volume, the decoded image, and what was said."""
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        said = self.run_millrace("encode", "--run", "run", path, "--out", out)
        latent = next(out.glob("*.latent.nii.gz"))
        self.run_millrace("decode", "--run", "run", latent, "--out", out)
        return nibabel.load(latent).affine, nibabel.load(next(out.glob("*.decoded.nii.gz"))), said

    def check_names(self, paths, affine):
        for path in paths:
            with self.subTest(name=path.name):
                latent, decoded, _ = self.encode_and_decode(path)
                np.testing.assert_allclose(latent[:3, :3], affine[:3, :3] * FACTOR, atol=1e-5)
                np.testing.assert_allclose(decoded.affine, affine, atol=1e-5)
                self.assertEqual(decoded.shape, SHAPE)

    def test_shared_names_and_headers(self):
        folder = self.shared("nifti-names")
        self.trained()
        affine = np.array([[-2, 0, 0, 30], [0, 2, 0, -20], [0, 0, 3, -10], [0, 0, 0, 1]], float)
        self.check_names([folder / name for name in ("scan.nii.gz", "SCAN.NII.GZ", "scan.nii.orig", "pair.hdr", "pair.img")], affine)
        said = self.run_millrace("train", "autoencoder_3d", "--data", "nifti-names", "--preset", "smoke", "--recipe.patch_size=[16,16,16]", "--rehearse")
        self.assertIn('4 of 6 names in nifti-names are left out: "README.md", "pair.hdr", "pair.img", …', said)
        folder = self.shared("nifti-geometry")
        said = self.run_millrace("train", "autoencoder_3d", "--data", "nifti-geometry", "--preset", "smoke", "--recipe.patch_size=[16,16,16]",
                                 "--recipe.target=label", "--rehearse")
        self.assertIn('1 file with a series of more than two volumes: the first is the image, the second the label, all others are not used: '
                      '"three_volumes.nii.gz"', said)
        latent, _, _ = self.encode_and_decode(folder / "negative_pixdim.nii.gz")
        np.testing.assert_allclose(np.diag(latent)[:3], np.array([-1.5, 1.5, 2]) * FACTOR)
        self.assertEqual(self.encode_and_decode(folder / "nan_pixdim.nii.gz")[1].shape, SHAPE)
        self.assertIn("of the series of 3 volumes the first is encoded", self.encode_and_decode(folder / "three_volumes.nii.gz")[2])

    def test_one_volume_under_many_names(self):
        self.trained()
        said = self.run_millrace("decode", "--run", "run", self.folder / "data" / "v0.nii.gz", "--out", "out", status=1)
        self.assertIn("give a file that millrace encode wrote with this run", self.next_of(said))
        affine = np.array([[-2, 0.1, 0, 30], [0, 2, 0.2, -20], [0.3, 0, 3, -10], [0, 0, 0, 1]], float)
        image = nibabel.Nifti1Image(volume(9), affine)
        scan = self.folder / "scan.nii"
        nibabel.save(image, scan)
        paths = [scan, self.folder / "SCAN.NII", self.folder / "scan.nii.orig", self.folder / "scan", self.folder / "S.Nii.Gz"]
        for path in paths[1:4]:
            shutil.copy(scan, path)
        paths[4].write_bytes(gzip.compress(scan.read_bytes()))
        nibabel.save(nibabel.Nifti1Pair(volume(9), affine), self.folder / "pair.img")
        for ending in ("hdr", "img"):
            shutil.copy(self.folder / f"pair.{ending}", self.folder / f"UPPER.{ending.upper()}")
        self.check_names([*paths, self.folder / "pair.hdr", self.folder / "UPPER.IMG"], affine)
        odd = nibabel.Nifti1Image(volume(9, (*SHAPE, 3)), None).header
        odd["pixdim"][1:4] = np.nan
        self.write_raw(self.folder / "odd.nii", odd, volume(9, (*SHAPE, 3)))
        _, decoded, said = self.encode_and_decode(self.folder / "odd.nii")
        self.assertEqual(decoded.shape, SHAPE)
        self.assertIn("of the series of 3 volumes the first is encoded", said)

    def test_affines_and_orientations_of_twenty_headers_are_those_of_nibabel(self):
        for seed in range(20):
            with self.subTest(seed=seed):
                path = self.folder / f"h{seed}.nii"
                self.write_raw(path, header_of(seed), volume(seed, (5, 4, 3)))
                ours = json.loads(self.run_millrace("inspect", path, "--json"))
                found = np.array(next(part["affine"] for part in (ours, *[v for v in ours.values() if isinstance(v, dict)]) if "affine" in part))
                affine = nibabel.load(path).affine
                np.testing.assert_allclose(found, affine, rtol=1e-6, atol=1e-6)
                self.assertEqual(ours["orientation"], "".join(code or "?" for code in nibabel.aff2axcodes(affine)))

    def test_a_third_volume_is_told(self):
        data = self.folder / "data"
        data.mkdir()
        for i in range(3):
            nibabel.save(nibabel.Nifti1Image(volume(i, (*SHAPE, 3)), np.eye(4)), data / f"v{i}.nii.gz")
        said = self.run_millrace("train", "autoencoder_3d", "--data", data, "--preset", "smoke", "--recipe.patch_size=[16,16,16]", "--rehearse")
        self.assertIn("3 files with a series of more than two volumes", said)


if __name__ == "__main__":
    unittest.main()
