"""image_pairs: faults of pictures, labels and tables, each told or refused with its file."""
import itertools
import shutil
import sys
import unittest
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent))
from planted import Fault, PlantedTest

FILES, SIZE = 24, (64, 48)
OPTIONS = ["--preset", "smoke", "--recipe.theta=2", "--data.batch_size=4", "--rehearse"]
DRAWN = ["--recipe.per_class=10", "--recipe.val_samples=10", "--recipe.folds=2", "--recipe.near_band=1"]


def name_of(i):
    return f"p{i:02}.png"


def picture(seed, size=SIZE):
    draws = np.random.default_rng(seed)
    y, x = np.mgrid[:size[1], :size[0]]
    waves = np.stack([128 + 80 * np.sin(x / (5 + c) + seed) * np.cos(y / (7 + c)) for c in range(3)], -1)
    return Image.fromarray((waves + draws.normal(size=(size[1], size[0], 3)) * (1 + seed)).clip(0, 255).astype(np.uint8))


def turned(path, image):
    tags = Image.Exif()
    tags[0x0112] = 6
    image.save(path, exif=tags)


def deep(path, image):
    Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257).save(path)


def score(value):
    """A label of a number that is no score."""
    return lambda path, _: path.with_suffix(".score").write_text(str(value), encoding="utf-8")


TOLD = [
    Fault("stored rotated", turned, name_of(1), "rotated upright: 1 of"),
    Fault("transparent", lambda path, image: image.convert("RGBA").save(path), name_of(2), "alpha is dropped: 1 of"),
    Fault("16 bits", deep, name_of(8), "16 bits become 8: 1 of"),
    Fault("grey among coloured", lambda path, image: image.convert("L").save(path), name_of(4), "in grey among coloured ones"),
    Fault("black", lambda path, _: Image.new("RGB", SIZE).save(path), name_of(5), "of a single colour"),
    Fault("one picture under two labels", lambda path, _: picture(0).save(path), name_of(6), "1 file holds the same content as another file"),
    Fault("a mark in place of a score", score(-999), name_of(7), "with a score far from all others"),
]
REFUSED = [
    Fault("colours of a printer", lambda path, image: image.convert("CMYK").save(path, "JPEG"), name_of(1), "CMYK"),
    Fault("a thumbnail", lambda path, _: picture(1, (8, 8)).save(path), name_of(2), "the image has 8 x 8 pixels"),
    Fault("labels moved by a row", score(""), "labels.txt", "line 1 has no score"),
]
TABLE = [
    Fault("a pair of a picture with itself", None, name_of(0), "are of an image with itself"),
    Fault("a copy in the validation under another name", None, "q00.png", "holds the same content as another file"),
]
WRONG = Fault("a pair the wrong way round", None, "pairs.csv", "row 6: scores 0 and 6 give Second, but the file says First")


class PlantedPicturesTest(PlantedTest):
    def photos(self, faults=()):
        images = self.folder / "photos" / "images"
        images.mkdir(parents=True, exist_ok=True)
        for i in range(FILES):
            picture(i).save(images / name_of(i))
        scores = {name_of(i): str(i) for i in range(FILES)}
        for fault in faults:
            name = fault.file if fault.file in scores else name_of(0)
            path = images / name
            fault.plant(path, picture(int(name[1:3])))
            if path.with_suffix(".score").exists():
                scores[name] = path.with_suffix(".score").read_text(encoding="utf-8")
                path.with_suffix(".score").unlink()
        (images.parent / "labels.txt").write_text("".join(f"{name} {value}\n" for name, value in scores.items()), encoding="utf-8")
        return images

    def train(self, *words, status=0):
        return self.run_millrace("train", "image_pairs", "--data", "photos", *OPTIONS, *words, status=status)

    def test_faults_are_told_with_their_files(self):
        self.photos()
        self.check_sound(self.train(*DRAWN), TOLD + REFUSED)
        self.photos(TOLD)
        self.check_told(self.train(*DRAWN), TOLD)
        for fault in REFUSED:
            self.photos([fault])
            self.check_refused(self.train(*DRAWN, status=1), [fault])

    def test_faults_of_tables_are_told_with_their_files(self):
        def write(path, rows):
            path.write_text("img1,img2,score1,score2,label\n" + "".join(",".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")

        def pair(i, j, prefix="p"):
            answer = "Similar" if abs(i - j) <= 2 else ("First" if i > j else "Second")
            return [f"{prefix}{i:02}.png", f"{prefix}{j:02}.png", i, j, answer]

        images = self.photos()
        tables = [f"--recipe.{name}_pairs={name}.csv" for name in ("train", "val")]
        rows = [pair(*both) for both in itertools.combinations(range(8), 2)]
        write(self.folder / "train.csv", rows)
        write(self.folder / "val.csv", [pair(8 + i, 8 + j) for i, j in itertools.combinations(range(4), 2)])
        self.check_sound(self.train(*tables), TABLE)
        write(self.folder / "train.csv", [*rows, ["p00.png", "p00.png", 0, 0, "Similar"]])
        for i in range(4):
            shutil.copy(images / name_of(i if i == 0 else 8 + i), images / f"q{i:02}.png")
        write(self.folder / "val.csv", [pair(*both, prefix="q") for both in itertools.combinations(range(4), 2)])
        self.check_told(self.train(*tables), TABLE)
        rows[5] = rows[5][:4] + ["First"]
        write(self.folder / "pairs.csv", rows)
        self.check_refused(self.train("--recipe.train_pairs=pairs.csv", status=1), [WRONG])


if __name__ == "__main__":
    unittest.main()
