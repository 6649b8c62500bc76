"""language_model: ten faults that text files have, each told or refused with its file."""
import json
import random
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from planted import Fault, PlantedTest

WORDS = "river mill stone water wheel grain flour sluice race turns slowly under old bridge and the a of".split()
FILES = 9
OPTIONS = ["--preset", "smoke", "--recipe.seq_len=32", "--data.batch_size=4", "--rehearse"]
ABROAD = "Мельница стоит у реки и мелет зерно.\n"


def prose(seed, lines=60):
    draws = random.Random(seed)
    return "".join(" ".join(draws.choice(WORDS) for _ in range(12)).capitalize() + ".\n" for _ in range(lines))


def page(seed):
    return "<!DOCTYPE html>\n<html><body>\n" + "".join(f"<p>{line}</p>\n" for line in prose(seed).splitlines()) + "</body></html>\n"


def objects(seed):
    return "".join(json.dumps({"text": line, "id": i}) + "\n" for i, line in enumerate(prose(seed).splitlines()))


TOLD = [
    Fault("a file twice", lambda _: prose(0).encode(), "t1.txt", "1 file holds the same content as another file"),
    Fault("a line that is most of a file", lambda i: (prose(i, 5) + "This page was left blank.\n" * 99).encode(), "t2.txt",
          'repeats the line "This page was left blank."'),
    Fault("a page of the web", lambda i: page(i).encode(), "t3.txt", "is HTML or XML"),
    Fault("objects of JSON", lambda i: objects(i).encode(), "t4.txt", "is JSON, an object on each line"),
    Fault("line ends of another system", lambda i: prose(i).replace("\n", "\r\n").encode(), "t5.txt", "carriage return and line feed"),
    Fault("encoded twice", lambda i: (prose(i).replace("e", "é").encode().decode("latin1")).encode(), "t6.txt", "was encoded twice"),
    Fault("lost characters", lambda i: prose(i).replace("e", "\ufffd").encode(), "t7.txt", r"holds [0-9,]+ characters U\+FFFD"),
    Fault("a validation in another language", lambda _: (ABROAD * 60).encode(), "t8.txt", "do not occur in the training text"),
]
REFUSED = [
    Fault("16 bits", lambda i: prose(i).encode("utf-16"), "t2.txt", "is UTF-16 text"),
    Fault("numbers inside", lambda i: prose(i).encode() + bytes(range(64)), "t3.txt", "holds NUL characters"),
]


class PlantedTextsTest(PlantedTest):
    def rehearse(self, faults, status=0):
        folder = self.folder / "text"
        folder.mkdir(exist_ok=True)
        for i in range(FILES):
            (folder / f"t{i}.txt").write_text(prose(i), encoding="utf-8")
        for fault in faults:
            (folder / fault.file).write_bytes(fault.plant(int(fault.file[1])))
        return self.train(status)

    def train(self, status=0):
        return self.run_millrace("train", "language_model", "--data", "text", *OPTIONS, status=status)

    def test_faults_are_told_with_their_files(self):
        self.check_sound(self.rehearse([]), TOLD + REFUSED)
        self.check_told(self.rehearse(TOLD), TOLD)
        for fault in REFUSED:
            self.check_refused(self.rehearse([fault], status=1), [fault])

    def test_what_all_files_are_is_how_they_are_meant(self):
        folder = self.folder / "text"
        folder.mkdir()
        for i in range(2):
            (folder / f"t{i}.txt").write_text(page(i).replace("\n", "\r\n"), encoding="utf-8", newline="")
        self.assertNotRegex(self.train(), "HTML|carriage")
        (folder / "t1.txt").unlink()
        self.assertIn("is HTML or XML", self.train())

    def test_the_remedy_for_text_that_was_encoded_twice_helps(self):
        twice = next(fault for fault in TOLD if fault.file == "t6.txt")
        said = self.rehearse([twice])
        self.assertIn("iconv -f UTF-8 -t LATIN1", said)
        path = self.folder / "text" / twice.file
        path.write_bytes(subprocess.run(["iconv", "-f", "UTF-8", "-t", "LATIN1", path], stdout=subprocess.PIPE, check=True).stdout)
        self.assertEqual(path.read_text(encoding="utf-8"), prose(6).replace("e", "é"))
        self.assertNotIn("encoded twice", self.train())


if __name__ == "__main__":
    unittest.main()
