"""Pictures that are stored turned, transparent or in 16 bits: what is learned is what Pillow shows, and the run says what it did."""
import json
import sys
import unittest
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

sys.path.insert(0, str(Path(__file__).resolve().parent))
from field import FieldTest

OPTIONS = ["--preset", "smoke", "--recipe.per_class=10", "--recipe.val_samples=10", "--recipe.folds=2", "--recipe.theta=2", "--recipe.near_band=1",
           "--data.batch_size=4"]
COUNT = 20


def picture(seed):
    draws = np.random.default_rng(seed)
    return Image.fromarray(draws.integers(0, 256, (*draws.integers(40, 90, 2), 3), dtype=np.uint8))


class PicturesTest(FieldTest):
    def folder_of(self, name, save):
        """COUNT pictures that save(index, path without ending) writes, returning the path."""
        images = self.folder / name / "images"
        images.mkdir(parents=True)
        names = [save(i, images / f"p{i:02}").name for i in range(COUNT)]
        (images.parent / "labels.txt").write_text("".join(f"{file} {i}\n" for i, file in enumerate(names)))
        return images.parent

    def losses(self, folder):
        run = self.folder / f"run-{folder.name}"
        said = self.run_millrace("train", "image_pairs", "--data", folder, *OPTIONS, "--precision.dtype=fp32", "--device.kernels=ours",
                                 "--train.max_steps=3", "--train.validate_every=0", "--log.every=1", "--run", run)
        lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line], said

    def rehearse(self, folder):
        return self.run_millrace("train", "image_pairs", "--data", folder, *OPTIONS, "--rehearse")

    def test_shared_pictures_are_told(self):
        folder = self.shared("pictures")
        self.assertIn("rotated upright: 12 of 12 images", self.rehearse(folder / "exif6"))
        self.assertIn("alpha is dropped: 12 of 12 images", self.rehearse(folder / "trns"))
        self.assertIn("16 bits become 8: 12 of 12 images", self.rehearse(folder / "gray16_small_numbers"))

    def test_turned_pictures_are_those_of_pillow(self):
        def exif(i):
            tags = Image.Exif()
            tags[0x0112] = i % 10  # 0 and 9 are no orientation
            return tags

        def turned(i, path):
            picture(i).save(path.with_suffix(".png"), exif=exif(i))
            return path.with_suffix(".png")

        def upright(i, path):
            with Image.open(self.folder / "turned" / "images" / f"{path.name}.png") as image:
                ImageOps.exif_transpose(image).convert("RGB").save(path.with_suffix(".png"))
            return path.with_suffix(".png")

        ours, said = self.losses(self.folder_of("turned", turned))
        theirs, _ = self.losses(self.folder_of("upright", upright))
        self.assertEqual(ours, theirs)
        self.assertGreater(len(ours), 0)
        self.assertIn(f"rotated upright: {sum(2 <= i % 10 <= 8 for i in range(COUNT))} of {COUNT} images", said)

    def test_sizes_of_turned_jpegs_are_those_of_pillow(self):
        for orientation in range(1, 9):
            tags = Image.Exif()
            tags[0x0112] = orientation
            path = self.folder / f"{orientation}.jpg"
            picture(orientation).save(path, exif=tags)
            with Image.open(path) as image:
                width, height = ImageOps.exif_transpose(image).size
            said = self.run_millrace("inspect", path)
            self.assertIn(f"{width} x {height}", said)
            self.assertEqual("orientation" in said, orientation != 1)

    def test_all_forms_of_transparency_are_told(self):
        def save(i, path):
            kind = i % 5
            image = picture(i)
            path = path.with_suffix(".png")
            if kind == 0:
                image.quantize(16).save(path, transparency=0)
            elif kind == 1:
                image.save(path, transparency=(1, 2, 3))
            elif kind == 2:
                image.convert("L").save(path, transparency=7)
            elif kind == 3:
                image.convert("RGBA").save(path)
            else:
                Image.fromarray(np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)).save(path)
            return path

        said = self.rehearse(self.folder_of("clear", save))
        self.assertIn(f"alpha is dropped: {COUNT * 4 // 5} of {COUNT} images", said)
        self.assertIn(f"16 bits become 8: {COUNT // 5} of {COUNT} images", said)


if __name__ == "__main__":
    unittest.main()
