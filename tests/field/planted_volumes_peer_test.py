"""autoencoder_3d: faults of one volume among many, each told or refused with its file."""
import sys
import unittest
from pathlib import Path

import nibabel
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from planted import Fault, PlantedTest

SHAPE, FILES = (20, 18, 16), 12
PLACE = np.diag([2.0, 2, 3, 1])
OPTIONS = ["--preset", "smoke", "--recipe.patch_size=[16,16,16]", "--rehearse"]


def body(seed):
    """Something round in air, int16."""
    draws = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in SHAPE], indexing="ij"))
    inside = sum((grid[k] / (0.7 + 0.05 * draws.normal()))**2 for k in range(3)) < 1
    return (inside * (600 + 200 * np.sin(6 * grid[0] + seed) + 40 * draws.normal(size=SHAPE))).clip(0).astype(np.int16)


def image(values, place=PLACE):
    return nibabel.Nifti1Image(values, place)


def steep(values):
    """A slope that no f32 holds, as it stands in the file."""
    header = image(values).header
    header["magic"], header["vox_offset"], header["scl_slope"], header["scl_inter"] = b"n+1", 352, 1e37, 0
    return header.binaryblock + bytes(4) + values.tobytes(order="F")


def not_numbers(values):
    return image(np.where(values > 700, np.nan, values).astype(np.float32))


TOLD = [
    Fault("left and right exchanged", lambda v: image(v[::-1], np.diag([-2.0, 2, 3, 1])), "v01.nii", r"in another orientation \(LAS\) than most \(RAS; nothing is rotated\)"),
    Fault("another voxel size", lambda v: image(v, np.diag([1.0, 1, 1, 1])), "v02.nii", "with voxels of 1 x 1 x 1 mm, while most have 3 x 2 x 2 mm"),
    Fault("an inverted window", lambda v: image((900 - v).astype(np.int16)), "v03.nii", "whose median is at .* Are they inverted"),
    Fault("labels in place of a scan", lambda v: image((v > 0).astype(np.uint8)), "v04.nii", "as labels have"),
    Fault("zeros", lambda v: image(v * 0), "v05.nii", "in which all values are equal"),
    Fault("a scan twice", lambda _: image(body(0)), "v06.nii", "holds? the same content as (another file|a training file)"),
    Fault("one slice", lambda v: image(v[:, :, :1]), "v07.nii", "smaller than the crop"),
]
REFUSED = [
    Fault("a picture of two axes", lambda v: image(v[:, :, 0]), "v01.nii", r"the volume is \[18,20\]"),
    Fault("voxels without numbers", not_numbers, "v02.nii", r"voxel \[\d+,\d+,\d+\] is nan"),
    Fault("a slope beyond all numbers", steep, "v03.nii", "scl_slope and scl_inter give values outside the range of f32"),
]


class PlantedVolumesTest(PlantedTest):
    def rehearse(self, faults, *words, status=0):
        data = self.folder / "scans"
        data.mkdir(exist_ok=True)
        for i in range(FILES):
            nibabel.save(image(body(i)), data / f"v{i:02}.nii")
        for fault in faults:
            planted = fault.plant(body(int(fault.file[1:3])))
            if isinstance(planted, bytes):
                (data / fault.file).write_bytes(planted)
            else:
                nibabel.save(planted, data / fault.file)
        return self.run_millrace("train", "autoencoder_3d", "--data", data, *OPTIONS, *words, status=status)

    def test_faults_are_told_with_their_files(self):
        self.check_sound(self.rehearse([]), TOLD + REFUSED)
        self.check_told(self.rehearse(TOLD), TOLD)
        for fault in REFUSED:
            self.check_refused(self.rehearse([fault], status=1), [fault])

    def test_a_copy_in_the_validation_is_told_also_under_one_name(self):
        for part, seeds in (("train", range(4)), ("val", (0, 9))):
            (self.folder / "parts" / part).mkdir(parents=True)
            for seed in seeds:
                nibabel.save(image(body(seed)), self.folder / "parts" / part / f"v{seed}.nii")
        said = self.run_millrace("train", "autoencoder_3d", "--data", "parts", *OPTIONS)
        self.assertIn('1 file of the validation holds the same content as a training file, by size and digest: "v0.nii" and "v0.nii"', said)

    def test_bad_samples_that_are_skipped_are_left_to_the_loader(self):
        bad = next(fault for fault in REFUSED if fault.plant is not_numbers)
        self.assertNotRegex(self.rehearse([bad], "--data.bad_samples=skip", "--data.max_bad_fraction=0.5"), "DataError")


if __name__ == "__main__":
    unittest.main()
