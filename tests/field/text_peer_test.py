"""Texts to learn from: encodings of other programs, files that are no text, what lies beside texts in a folder."""
import bz2
import gzip
import lzma
import random
import re
import subprocess
import unittest
import zipfile

from field import FieldTest

WORDS = "Die Äpfel fallen früh im Jahr; who gathers them, wins — it's so.\n"
RUSSIAN = "Зима была долгой, и снег лежал до мая; никто не ждал весны.\n"
JAPANESE = "春は曙。やうやう白くなり行く、山ぎは少しあかりて。\n"


class Texts(FieldTest):
    def setUp(self):
        super().setUp()
        self.count = 0

    def learn(self, *words, status=0):
        return self.run_millrace("train", "language_model", *words, "--preset", "smoke", "--rehearse", status=status)

    def losses(self, output):
        return re.findall(r"(?:loss|val_loss|bits_per_char|vocabulary|tokens) +\S+", output)

    def put(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return name

    def assert_mended(self, name, found, plain, learns=True):
        """`name` is refused with what was found; what the remedy says is done, and the text is learned from as the plain one."""
        said = self.learn("--sources", name, status=None)
        self.assertIn(f'"{name}" {found}', said)
        remedy = self.next_of(said)
        self.assertIn("convert it in place: ", remedy)
        command = remedy.split("convert it in place: ")[1].split(";")[0]
        subprocess.run(command, shell=True, cwd=self.folder, check=" -c " not in command)  # which says so where it left bytes out
        self.assertEqual((self.folder / name).read_bytes().decode(), plain)
        return self.learn("--sources", name) if learns else None

    def test_the_files_of_the_field(self):
        folder = self.shared("text-encodings")
        plain = (folder / "utf16le.txt").read_bytes().decode("utf-16")
        self.put("plain.txt", plain.encode())
        right = self.losses(self.learn("--sources", "plain.txt"))
        for name, found in (("utf16le.txt", "is UTF-16 text with a byte-order mark"), ("utf16be.txt", "is UTF-16 text with a byte-order mark"),
                            ("utf16le_without_mark.txt", "is UTF-16 text without a byte-order mark")):
            (folder / name).chmod(0o644)
            folder.chmod(0o755)
            self.assertEqual(self.losses(self.assert_mended(f"text-encodings/{name}", found, plain)), right, name)
        self.assert_mended("text-encodings/text.txt.gz.txt", "is gzip data, not text", gzip.decompress((folder / "text.txt.gz.txt").read_bytes()).decode())
        (folder / "hidden").chmod(0o755)
        said = self.learn("--data", "text-encodings/hidden")
        self.assertIn("1 of 2 names in text-encodings/hidden is left out: \"._book.txt\"", said)
        self.assertEqual(self.losses(said), self.losses(self.learn("--sources", "text-encodings/hidden/book.txt")))

    def test_wide_encodings(self):
        for i, (language, encoding) in enumerate((l, e) for l in (WORDS, RUSSIAN, JAPANESE)
                                                 for e in ("utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-le", "utf-32-be")):
            plain = language * 40
            mark = "with" if encoding in ("utf-16", "utf-32") else "without"
            with self.subTest(encoding=encoding, language=language):
                self.assert_mended(f"{i}.txt", f"is {encoding[:6].upper()} text {mark} a byte-order mark", self.text(i, plain, encoding), i % 6 == 0)

    def text(self, i, plain, encoding):
        self.put(f"{i}.txt", plain.encode(encoding))
        return plain

    def test_western_encodings(self):
        self.put("a.txt", ("Äpfel und Öl, früh am Morgen\n" * 40).encode("latin-1"))
        self.assert_mended("a.txt", "is not UTF-8", "Äpfel und Öl, früh am Morgen\n" * 40)
        self.put("b.txt", ("He said “no” — for 5 €, früh\n" * 40).encode("cp1252"))
        self.assert_mended("b.txt", "is not UTF-8", "He said “no” — for 5 €, früh\n" * 40)

    def test_no_remedy_makes_garbage(self):
        for encoding in ("cp1251", "koi8-r"):
            self.put("a.txt", (RUSSIAN * 40).encode(encoding))
            said = self.learn("--sources", "a.txt", status=None)
            self.assertIn("is not UTF-8", said)
            self.assertNotIn("LATIN1", said)
            self.assertNotIn("CP1252", said)
            command = self.next_of(said).split(": ")[1].replace("NAME", encoding) + " < a.txt > b.txt"
            subprocess.run(command, shell=True, cwd=self.folder, check=True)
            self.assertEqual((self.folder / "b.txt").read_text(), RUSSIAN * 40)
            self.learn("--sources", "b.txt")
        self.put("c.txt", (JAPANESE * 40).encode("shift-jis"))
        self.assertNotIn("-f LATIN1", self.learn("--sources", "c.txt", status=None))
        self.put("d.txt", random.Random(1).randbytes(4000))
        self.assertIn("is not text: it holds binary data", self.learn("--sources", "d.txt", status=None))
        self.put("e.txt", b"one\xff " + (JAPANESE * 40).encode())
        self.assert_mended("e.txt", "has bytes that are not valid UTF-8", "one " + JAPANESE * 40)

    def test_nul_characters(self):
        self.put("a.txt", WORDS.encode() * 40 + b"a\0b" + WORDS.encode() * 40)
        self.assert_mended("a.txt", "holds NUL characters, which no text has", WORDS * 40 + "ab" + WORDS * 40)

    def test_packed_texts(self):
        plain = WORDS * 60
        for name, packed, found in (("a.txt", gzip.compress(plain.encode()), "is gzip data"), ("b.txt", bz2.compress(plain.encode()), "is bzip2 data"),
                                    ("it's c.txt", lzma.compress(plain.encode()), "is xz data")):
            self.put(name, packed)
            self.assert_mended(name, found, plain)

    def test_archives(self):
        with zipfile.ZipFile(self.folder / "b.zip", "w") as archive:
            archive.writestr("inside.txt", WORDS * 60)
        said = self.learn("--sources", "b.zip", status=None)
        self.assertIn("is a zip archive, not text", said)
        subprocess.run(self.next_of(said).split(": ")[1], shell=True, cwd=self.folder, check=True)
        self.learn("--sources", "texts/inside.txt")

    def test_marks_inside_and_lone_returns_are_told(self):
        self.put("a.txt", "\ufeff{0}\ufeff{0}a\rb\r\nc\r".format(WORDS * 20).encode())
        said = self.learn("--sources", "a.txt")
        self.assertIn("began with a byte-order mark, which was removed", said)
        self.assertIn("holds byte-order marks inside the text, which are learned as characters: 1", said)
        self.assertIn("holds carriage returns without a line feed, which are learned as characters: 2", said)
        self.put("b.txt", (WORDS * 40).replace("\n", "\r\n").encode())
        self.assertNotIn("which are learned", self.learn("--sources", "b.txt"))

    def test_folders(self):
        self.put("books/b.txt", (WORDS * 30).encode())
        self.put("books/A.TXT", (RUSSIAN * 30).encode())
        self.put("books/._b.txt", b"\0\5\x16\7\0\2\0\0Mac OS X")
        self.put("books/.DS_Store", b"\0")
        self.put("books/__MACOSX/b.txt", b"\0")
        self.put("books/notes.md", b"x")
        (self.folder / "books" / "loop").symlink_to("../books")
        said = self.learn("--data", "books")
        self.assertIn('3 of 5 names in books are left out: "._b.txt", "loop/", "notes.md"', said)
        two = self.losses(self.learn("--sources", "books/A.TXT,books/b.txt"))
        self.assertEqual(self.losses(said), two)
        self.assertEqual(self.losses(self.learn("--sources", "books")), two)
        self.assertNotIn("left out", self.learn("--sources", "books/b.txt"))
        self.assertNotIn("left out", self.learn())  # our own data lies beside its truth.json
        (self.folder / "empty").mkdir()
        self.assertIn("there is no .txt file in empty", self.learn("--sources", "empty", status=None))
        self.assertIn("does not exist", self.learn("--sources", "nowhere.txt", status=None))


if __name__ == "__main__":
    unittest.main()
