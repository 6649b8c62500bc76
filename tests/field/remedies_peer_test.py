"""Every remedy that a reader of files prints is done by a test here or in remedies_of_recipes_peer_test.py: the run then works."""
import os
import re
import shutil
import subprocess
import sys
import unittest
import zipfile

import nibabel
import numpy as np
from PIL import Image
from remedies import RemedyTest, Row
from safetensors.numpy import save_file

ORIGIN = np.eye(4)


def volume(seed, shape=(16, 16, 16)):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class Volumes(RemedyTest):
    def write(self, name, voxels, change=None):
        image = nibabel.Nifti1Image(voxels, ORIGIN)
        if change:
            change(image.header)
        nibabel.save(image, self.folder / name)

    def npz(self, name, **arrays):
        np.savez(self.folder / name, **arrays)

    def run_training(self, *words, status=0):
        return self.run_millrace("train", "autoencoder_3d", "--preset", "smoke", "--recipe.patch_size=[16,16,16]",
                                 "--recipe.val_fraction=0", "--train.validate_every=0", *words, status=status)

    def damaged_member(self, path):
        self.npz(path, arr_0=np.stack([volume(1), volume(2)]))
        content = bytearray((self.folder / path).read_bytes())
        content[4000] ^= 0xFF
        (self.folder / path).write_bytes(content)

    def test_files_of_volumes(self):
        data = self.folder / "data"
        pair = np.stack([volume(1), volume(2)])

        def sound(name):
            return lambda _: self.write(name, volume(3)) if name.endswith(".nii") else self.npz(name, arr_0=pair)

        def cut(name):
            def spoil():
                sound(name)("")
                content = (self.folder / name).read_bytes()
                (self.folder / name).write_bytes(content[:200])
            return spoil

        def scale(header):
            header["scl_slope"], header["scl_inter"] = 3e38, 0

        colours = np.zeros((16, 16, 16), dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
        data.mkdir()
        (self.folder / "val").mkdir()
        sound("val/b.nii")("")
        bad = np.float32(volume(4))
        bad[3, 2, 1] = np.nan
        rows = [
            Row("name a folder of volumes with --data, or make sample data: millrace make-data autoencoder_3d", (self.folder / "empty").mkdir,
                lambda _: self.options.__setitem__(1, data)),
            Row("use an intact NIfTI file: copy or convert it again", cut("data/a.nii"), sound("data/a.nii")),
            Row("save with numpy.savez(path, array), where array is (2,D,H,W): first the low-count image, then the high-count label",
                lambda: self.npz("data/b.npz", x=volume(1)), lambda _: np.savez(data / "b.npz", np.stack([volume(1), volume(5)]))),
            Row("convert its voxels to a type that Millrace reads, such as float32", lambda: self.write("data/d.nii", colours),
                lambda _: self.write("data/d.nii", np.asarray(nibabel.load(data / "d.nii").dataobj)["R"].astype(np.float32))),
            Row("save the magnitude, or another real volume, as f32", lambda: self.write("data/e.nii", volume(1).astype(np.complex64)),
                lambda _: self.write("data/e.nii", np.abs(np.asarray(nibabel.load(data / "e.nii").dataobj)).astype(np.float32))),
            Row("save one volume, or the low-count and the high-count volume along the fourth axis",
                lambda: self.write("data/f.nii", volume(1, (16, 16))), lambda _: self.write("data/f.nii", np.stack([volume(1), volume(2)], -1))),
            Row("repair the file's header", lambda: self.write("data/g.nii", np.ones((16, 16, 16), np.int16), scale), sound("data/g.nii")),
            Row("make recipe.patch_size smaller, or set recipe.pad_small=true", lambda: self.write("data/h.nii", volume(1, (12, 12, 12))),
                lambda _: self.options.__setitem__(2, "--recipe.pad_small=true")),
            Row("use an intact .npz file of plain numbers: write it again with numpy.savez", lambda: self.damaged_member("data/i.npz"),
                sound("data/i.npz")),
            Row("…(repair or remove the file, or set data.bad_samples=…)", lambda: [self.write(f"data/{name}.nii", bad) for name in "jk"],
                lambda _: self.options.append("--data.bad_samples=skip"), says='repair or remove the file, or set data.bad_samples="skip"'),
            Row("repair the data, or set data.max_bad_fraction to …, or higher if more are bad", lambda: None,
                lambda remedy: self.options.append("--data.max_bad_fraction=" + re.search("to ([0-9.]+)", remedy).group(1))),
            Row("remove the file, or use fewer levels in recipe.channels", lambda: self.write("val/a.nii", volume(1, (1, 8, 8))),
                lambda _: (self.folder / "val" / "a.nii").unlink()),
        ]
        self.options = ["--data", "empty", "--recipe.pad_small=false", "--data.batch_size=10", "--rehearse", "--recipe.val_dir=val", "--device.threads=1"]
        self.follow(rows, lambda status: self.run_training(*self.options, status=status))



WORDS = "who gathers them in the morning, wins what the evening brings\n" * 60
# What a program of documents writes, as far as it matters here: text in a page's content, in a paragraph.
PDF = b"%PDF-1.4\n1 0 obj<</Length 44>>stream\nBT (" + WORDS.replace("\n", "\\n").encode() + b") Tj ET\nendstream endobj\n%%EOF\n"
RTF = "{\\rtf1\\ansi " + WORDS.replace("\n", "\\par\n") + "}"


def zstd(content):
    """A frame of Zstandard whose only block is stored: RFC 8878."""
    return b"\x28\xb5\x2f\xfd\xa0" + len(content).to_bytes(4, "little") + ((len(content) << 3) | 1).to_bytes(3, "little") + content


# Stand-ins for programs that may be missing: they read and write as these do, of such files as above.
TOOLS = {
    "zstd": """import sys
assert sys.argv[1:] == ["-dc"]
frame = sys.stdin.buffer.read()
sys.stdout.buffer.write(frame[12:])""",
    "pdftotext": """import re, sys
assert sys.argv[1:] == ["-", "-"]
page = sys.stdin.buffer.read()
sys.stdout.write(re.search(rb"\\((.*)\\) Tj", page, re.S).group(1).decode().replace("\\\\n", chr(10)))""",
}


class Texts(RemedyTest):
    def run_training(self, status):
        return self.run_millrace("train", "language_model", "--sources", ",".join(self.sources), "--preset", "smoke", "--rehearse", status=status)

    def in_place(self, remedy):
        """Does what it says, with stand-ins for what is not installed."""
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        for name, code in TOOLS.items():
            if not shutil.which(name):
                (tools / name).write_text(f"#!{sys.executable}\n{code}\n")
                (tools / name).chmod(0o755)
        command = remedy.split("convert it in place: ")[1].split(";")[0]
        subprocess.run(command, shell=True, cwd=self.folder, check=True, env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"})

    def saved_as_text(self, name, text):
        """As the program would that the document is of."""
        def save(_):
            (self.folder / f"{name}.txt").write_text(text)
            self.sources[self.sources.index(name)] = f"{name}.txt"
        return save

    def document(self, name):
        with zipfile.ZipFile(self.folder / name, "w") as archive:
            archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
            archive.writestr("content.xml", f"<text:p>{WORDS}</text:p>")

    def test_files_that_are_no_text(self):
        self.sources = ["a.txt.zst", "-b .pdf", "c.odt", "d.rtf", "e.txt", "nowhere.txt", "empty"]
        (self.folder / "empty").mkdir()
        def put(name, content):
            return lambda: (self.folder / name).write_bytes(content)
        place = "convert it in place: mv … && … < … > …"
        read = re.sub("<.*?>", "", f"<text:p>{WORDS}</text:p>")
        self.follow([
            Row("correct recipe.sources; paths are relative to the config file or the current folder", lambda: None,
                lambda _: self.sources.remove("nowhere.txt")),
            Row("name text files with --sources a.txt,b.txt, or their folder with --data DIR", lambda: None, lambda _: self.sources.remove("empty")),
            Row(place, put("a.txt.zst", zstd(WORDS.encode())), self.in_place),
            Row(place, put("-b .pdf", PDF), self.in_place),
            Row("open it in the program that wrote it, save it as plain text in UTF-8, then name that file", lambda: self.document("c.odt"),
                self.saved_as_text("c.odt", read)),
            Row("open it in the program that wrote it, save it as plain text in UTF-8, then name that file", put("d.rtf", RTF.encode()),
                self.saved_as_text("d.rtf", WORDS)),
            Row("give it text or leave it out", put("e.txt", b""), lambda _: self.sources.remove("e.txt")),
        ], self.run_training)
        for name in ("a.txt.zst", "-b .pdf"):
            self.assertEqual((self.folder / name).read_text(), WORDS)
            self.assertTrue((self.folder / f"{name}.orig").exists())


class Paths(RemedyTest):
    def test_paths(self):
        self.name = "nowhere"

        def named(name):
            return lambda _: setattr(self, "name", name)

        save_file({"w": np.ones(3, np.float32)}, self.folder / "a.safetensors")
        (self.folder / "loop").symlink_to("loop")
        self.follow([Row("check the path: a folder or file in it does not exist", lambda: None, named("x" * 300)),
                     Row("use a shorter name or path", lambda: None, named("loop")),
                     Row("repair or remove the symbolic link: it leads back to itself", lambda: None, named(".")),
                     Row("name a file: the path leads to a folder", lambda: None, named("/dev/null")),
                     Row("name a file", lambda: None, named("a.safetensors"))], lambda status: self.run_millrace("import", self.name, "--to", "copy.pt", status=status))


PAIRS = "img1,img2,score1,score2,label\n"


class Pictures(RemedyTest):
    def picture(self, name, size=(96, 80), mode="RGB", **how):
        path = self.folder / "data" / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(np.random.default_rng(len(name)).integers(0, 256, (*size, 3), dtype=np.uint8))
        image.convert(mode).save(path, **how)
        return path

    def put(self, name, text):
        (self.folder / "data" / name).write_text(text)

    def cut(self, name):
        path = self.picture(name)
        path.write_bytes(path.read_bytes()[:90])

    def test_labels_and_tables(self):
        for i in range(24):
            self.picture(f"p{i:02}.png", size=(20, 24))
        labels = "".join(f"p{i:02}.png {i}\n" for i in range(24))
        self.options = ["--recipe.per_class=10", "--recipe.val_samples=10", "--recipe.folds=2", "--recipe.theta=2", "--recipe.near_band=1",
                        "--data.batch_size=4", "--device.threads=1"]
        nothing = lambda: None

        def run(status):
            return self.run_millrace("train", "image_pairs", "--data", "data", "--preset", "smoke", "--rehearse", *self.options, status=status)

        def option(old, new):
            return lambda _: self.options.__setitem__(self.options.index(old), new)

        def table(name, text):
            return lambda *_: self.put(name, text)

        train, val = [PAIRS + "".join(f"p{a:02}.png,p{a + 1:02}.png,{a}.5,{a + 9}.5,Second\n" for a in range(*some, 2)) for some in ((0, 12), (12, 24))]
        first, tiny = train.splitlines()[1], Image.new("RGB", (8, 8))  # below 16 pixels nothing is resized

        def in_train(old, new):
            def change(*_):
                text = (self.folder / "data" / "train.csv").read_text()
                self.assertIn(old, text)
                self.put("train.csv", text.replace(old, new, 1))
            return change

        def then_tables(_):
            """The images are mended: tables of pairs instead of labels."""
            shutil.copy(self.folder / "elsewhere" / "p02.png", self.folder / "elsewhere" / "p03.png")
            self.options = [*self.options, "--recipe.train_pairs=data/train.csv", "--recipe.val_pairs=data/val.csv"]

        self.options[2:4] = ["--recipe.folds=20", "--recipe.theta=100"]
        table("groups.txt", "p00.png lake\n")()
        table("train.csv", train)()
        self.follow([
            Row('write a line "name score" for each image', table("labels.txt", labels.replace(" 7\n", "\n")), table("labels.txt", labels)),
            Row('write a line "name<tab>group" for each image, or remove the file', nothing, table("groups.txt", "other.png\tlake\n")),
            Row("write the image names as in the labels, or remove the file", nothing, table("groups.txt", "p00.png\tlake\n")),
            Row("label more images, or set recipe.folds", nothing, option("--recipe.folds=20", "--recipe.folds=2")),
            Row("label more images with different and with similar scores, or change recipe.theta", nothing, option("--recipe.theta=100", "--recipe.theta=2")),
            Row("set recipe.data_roots to the folders of the images, and recipe.strip_prefixes to the prefixes of their names",
                lambda: (self.folder / "data" / "images").rename(self.folder / "elsewhere"),
                lambda _: self.options.append("--recipe.data_roots=elsewhere")),
            Row("leave the image out……, set recipe.image_size, or recipe.resize=clip", nothing, lambda _: self.options.append("--recipe.resize=clip")),
            Row("use an intact PNG or JPEG file", lambda: (self.folder / "elsewhere" / "p03.png").write_text("no picture"), then_tables),
            Row("write them as its first line", in_train("label", "answer"), in_train("answer", "label")),
            Row("write …,", in_train(first, first + ",x"), in_train(",x", ""), says="write img1,img2,score1,score2,label"),
            Row("write a number such as -12.500000", in_train("2.5,11.5", "?,11.5"), in_train("?", "2.500000")),
            Row("write First, Second or Similar", in_train("13.5,Second", "13.5,Better"), in_train("Better", "Second")),
            Row("correct the label, or set recipe.theta (…) to its value when the file was made", in_train("15.5,Second", "15.5,First"),
                in_train("15.5,First", "15.5,Second")),
            Row("give an image one score", in_train("p10.png,p11.png", "p08.png,p11.png"), in_train("p08.png,p11.png", "p10.png,p11.png")),
            Row("write a row for each pair", table("val.csv", PAIRS), table("val.csv", val + "p00.png,p12.png,0.5,12.5,Second\n")),
            Row("put each image on one side only, because a network may remember its training images", nothing, table("val.csv", val)),
            Row("leave the image out……, set recipe.image_size, or recipe.resize=clip", lambda: tiny.save(self.folder / "elsewhere" / "p12.png"),
                table("val.csv", PAIRS + "".join(val.splitlines(True)[2:])), says="leave the image out"),
        ], run)

    def test_pictures(self):
        self.follow([Row("put such files into the folder, or name another folder", lambda: (self.folder / "data" / "images").mkdir(parents=True), lambda _: [
                        self.cut("a.png"), self.cut("b.jpg"), self.picture("c.jpg", mode="CMYK"), self.picture("d.png")]),
                     Row("use an intact PNG file: copy or write it again", lambda: None, lambda _: self.picture("a.png")),
                     Row("use an intact JPEG file: copy or write it again", lambda: None, lambda _: self.picture("b.jpg")),
                     Row("save it again as an RGB or grey JPEG", lambda: None, lambda _: self.picture("c.jpg", mode="L"))],
                    lambda status: self.run_millrace("make-data", "image_pairs", "--preset", "smoke", "--clean", "data/images", "--out", "made", status=status))


if __name__ == "__main__":
    unittest.main()
