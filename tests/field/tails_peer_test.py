"""What stands behind the data of a file: padding of tapes and archives, line ends of editors, what macOS adds; and cut files."""
import gzip
import io
import json
import random
import unittest
import zipfile

import nibabel
import numpy as np
import torch

from field import FieldTest


class Tails(FieldTest):
    def values(self, path):
        """(name, shape, least, greatest, mean) of each array of a file."""
        told = json.loads(self.run_millrace("inspect", "--values", "--json", path))
        return [(v["name"], v["shape"], v["least"], v["greatest"], v["mean"]) for v in told["values"]]

    def assert_reads(self, path, voxels):
        (_, shape, least, greatest, mean), = self.values(path)
        self.assertEqual(shape, list(voxels.shape[::-1]))
        self.assertEqual((least, greatest), (voxels.min(), voxels.max()))
        self.assertAlmostEqual(mean, voxels.astype(float).mean(), places=9)

    def assert_damaged(self, path, words="cut off"):
        self.assertIn(words, self.run_millrace("inspect", "--values", path, status=1))

    def test_the_files_of_the_field(self):
        folder = self.shared("nifti-gzip-tails")
        for path in sorted(folder.glob("*.nii*")):
            if path.name == "cut.nii.gz":
                self.assert_damaged(path, "damaged or cut off")
            else:
                with self.subTest(path=path.name):
                    self.assert_reads(path, np.asarray(nibabel.load(path).dataobj))

    def test_volumes_with_padding(self):
        for seed in range(20):
            draw = random.Random(seed)
            numbers = np.random.default_rng(seed)
            shape = [draw.randrange(11, 15) for _ in range(3)]  # nibabel reads 1,024 bytes before it knows a file
            voxels = numbers.integers(-900, 900, shape).astype(draw.choice([np.int16, np.float32, np.uint8]))
            plain = nibabel.Nifti1Image(voxels, np.eye(4)).to_bytes() + draw.choice([b"", bytes(draw.randrange(1, 70000)), b"more\n"])
            cut = draw.randrange(1, len(plain))
            packed = draw.choice([gzip.compress(plain), gzip.compress(plain[:cut]) + gzip.compress(plain[cut:]), gzip.compress(plain) + gzip.compress(b"")])
            tail = draw.choice([b"", bytes(512), b"\n", b"\r\n", draw.randbytes(1), b"text"])
            path = self.folder / f"{seed}.nii.gz"
            path.write_bytes(packed + tail)
            with self.subTest(seed=seed):
                self.assert_reads(path, np.asarray(nibabel.load(path).dataobj))
            path.write_bytes(packed[:len(packed) - draw.randrange(1, 12)])
            self.assert_damaged(path)

    def test_arrays_with_padding(self):
        array = np.arange(60, dtype=np.float32).reshape(5, 12)
        for tail in (b"\n", b"\r\n", bytes(512), b" "):
            np.save(self.folder / "a.npy", array)
            with open(self.folder / "a.npy", "ab") as file:
                file.write(tail)
            self.assertEqual(self.values("a.npy")[0][2:], (0, 59, np.load(self.folder / "a.npy").mean()))
            for save in (np.savez, np.savez_compressed):
                save(self.folder / "a.npz", x=array)
                with open(self.folder / "a.npz", "ab") as file:
                    file.write(tail)
                self.assertEqual(self.values("a.npz")[0], ("x", [5, 12], 0, 59, np.load(self.folder / "a.npz")["x"].mean()))
            torch.save({"x": torch.from_numpy(array)}, self.folder / "a.pt")
            with open(self.folder / "a.pt", "ab") as file:
                file.write(tail)
            self.assertEqual(self.values("a.pt")[0], ("x", [5, 12], 0, 59, array.mean()))
        np.save(self.folder / "two.npy", array)
        with open(self.folder / "two.npy", "ab") as file:
            np.save(file, array)
        self.assert_damaged("two.npy", "follow the header")
        for name in ("a.npz", "a.pt"):
            whole = (self.folder / name).read_bytes().rstrip(b" ")
            (self.folder / name).write_bytes(whole[:-5])
            self.assert_damaged(name)

    def test_what_macos_adds_to_an_archive(self):
        array = np.arange(6, dtype=np.int32)
        stored = io.BytesIO()
        np.save(stored, array)
        with zipfile.ZipFile(self.folder / "a.npz", "w") as archive:
            archive.writestr("a.npy", stored.getvalue())
            archive.writestr("__MACOSX/._a.npy", b"\0\5\x16\7\0\2\0\0Mac OS X")
        said = self.run_millrace("inspect", "--values", "--json", "a.npz", status=None)
        told = json.loads(said)
        self.assertEqual([(v["name"], v["least"], v["greatest"]) for v in told["values"]], [("a", 0, 5)])
        self.assertIn("macOS added it to describe another file", said)


if __name__ == "__main__":
    unittest.main()
