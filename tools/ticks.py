#!/usr/bin/env python3
"""Checks the tables of the recipes' READMEs: each row names what shows that it is true, and what it names must exist.

    tools/ticks.py [--root DIR]

A guide table has the columns "its advice | here | seen by", a table of promises "promise | shown by"; a README has the first, and may
have the second. The last column holds, in backticks, what can fail when the row is untrue: a test (`Suite.Case`), a path below tests/ or a
part of the proof for GPUs (`gpu-proof life`), whose table in docs/gpu.md has to be of a card. Besides these it may name a config key
(`memory.recompute`), a command (`millrace max-batch`), a switch (`--off=autocast`) or another path (`bench/step`). A row about something
that is not there says "not here" in that column, and the column "here" says so in words. A row about a GPU, ranks or several machines says
"not yet seen" beside its test, unless a test of tests/ranks or the proof shows it; a machine without a GPU is seen anywhere; "not yet seen"
alone, or of something that is not here, is refused. Tests are looked for in the sources; tools/run_tests.py says which ran.
Keys, commands and switches are read from docs/reference/config.md and the golden texts, which tests compare with the program.
"""
import argparse
import re
import sys
from pathlib import Path

from gpu_proof import page
from gpu_proof.parts import ALL

GUIDE, PROMISES = 3, 2  # columns
HEADERS = {GUIDE: re.compile(r"^\|\s*its advice\s*\|\s*here\s*\|\s*seen by\s*\|$"),
           PROMISES: re.compile(r"^\|\s*promise\s*\|\s*shown by\s*\|$")}
CELL = re.compile(r"(?<!\\)\|")
TEST = re.compile(r"^\s*TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
TEST_NAME = re.compile(r"[A-Z]\w*\.\w+")
KEY_NAME = re.compile(r"[a-z_]+(?:\.[a-z_0-9]+)+")
NOT_SEEN = "not yet seen"
NOT_HERE = "not here"
ELSEWHERE = re.compile(r"(?<!without a )\b(?:GPUs?|CUDA|ranks?|sharding|distributed)\b")


class Known:
    """The names that a tick may use."""

    def __init__(self, root, ran=None):
        self.root = root
        self.ran = ran  # names of the tests that ran; None: unknown
        self.tests = {f"{suite}.{case}" for folder in ("src", "recipes", "tests") for path in sorted((root / folder).rglob("*.cpp"))
                      for suite, case in TEST.findall(path.read_text(encoding="utf-8", errors="replace"))}
        self.keys = set(re.findall(r"`([\w.]+)`", self.text("docs/reference/config.md")))
        self.help = self.text("tests/cli/golden/help.txt").splitlines()
        seen = page.read_page(self.text("docs/gpu.md"))
        self.proved = {f"gpu-proof {part.name}": bool(seen.get(part.title)) for part in ALL}
        self.switches = set(re.findall(r"^([a-z]\w+)", self.text("tests/cli/golden/list_switches.txt"), re.MULTILINE)) - {"switch"}

    def is_seen_elsewhere(self, tick):
        """Whether a tick names a test of several processes, or a part of the proof that ran on a card."""
        return self.proved.get(tick, False) or (tick in self.tests and tick.split(".")[0] in {"EqualRanks", "Ranks", "Death", "Replicas"})

    def can_fail(self, tick):
        """Whether a tick is a test or a part of the proof, rather than a name that only exists."""
        return TEST_NAME.fullmatch(tick) or tick.startswith(("tests/", "gpu-proof "))

    def text(self, name):
        path = self.root / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def has_command(self, words):
        """Whether `words`, which follow "millrace", are a command in the help, with words that the help's line allows."""
        for line in self.help:
            row = re.match(r"  (\S.*?)(?:  +|$)(.*)", line)
            if row and row.group(1).split()[0] == words[0]:
                known = re.findall(r"[\w-]+", line)
                return all(word in known or word.isupper() for word in words[1:2])
        return False

    def objection(self, tick):
        """Why this tick shows nothing; None if it shows something."""
        if tick.startswith("gpu-proof "):
            return None if self.proved.get(tick) else "docs/gpu.md has no card in the table of that part" if tick in self.proved else "no part of tools/gpu-proof"
        if tick.startswith("--off="):
            return None if tick[6:].replace("-", "_") in self.switches else "no row of `millrace list --switches`"
        if tick.startswith("millrace "):
            return None if self.has_command(tick.split()[1:]) else "no command of `millrace --help`"
        if TEST_NAME.fullmatch(tick):
            if tick not in self.tests:
                return "no test of that name"
            return "did not run" if self.ran is not None and tick not in self.ran else None
        if "/" in tick:
            return None if (self.root / tick).exists() else "there is no such path"
        if KEY_NAME.fullmatch(tick):
            return None if tick in self.keys else "no key of docs/reference/config.md"
        return "neither a test, a key, a command, a switch, a path nor a part of the proof"


def table_begins(line):
    """Number of columns of the table with this header; 0 if the line is not such a header."""
    return next((columns for columns, header in HEADERS.items() if header.match(line.strip())), 0)


def rows_of(text):
    """(line number, advice or promise, here, what shows it) of each row of these tables."""
    columns = 0
    for number, line in enumerate(text.splitlines(), 1):
        if table_begins(line):
            columns = table_begins(line)
        elif not line.startswith("|"):
            columns = 0
        elif columns and not re.match(r"^\|[-|\s]+\|$", line):
            cells = [cell.strip() for cell in CELL.split(line)[1:-1]]
            yield (number, cells[0], " ".join(cells[1:-1]), cells[-1]) if len(cells) == columns else (number, line, "", "")


def problems(root, ran=None):
    """(file, line, message) for each tick that shows nothing. `ran`: names of the tests that ran, when all were to run."""
    known = Known(root, ran)
    found = []
    for path in sorted((root / "recipes").glob("*/README.md")):
        name = str(path.relative_to(root))
        text = path.read_text(encoding="utf-8")
        if GUIDE not in map(table_begins, text.splitlines()):
            found.append((name, 1, "no guide table with the columns \"its advice | here | seen by\""))
        for number, advice, here, seen in rows_of(text):
            ticks = re.findall(r"`([^`]+)`", seen)
            is_absent = NOT_HERE in seen
            if is_absent and NOT_SEEN in seen:
                found.append((name, number, f"\"{advice}\": what is \"{NOT_HERE}\" can't be \"{NOT_SEEN}\""))
            if not is_absent and not any(known.can_fail(tick) for tick in ticks):
                found.append((name, number, f"\"{advice}\": nothing shows it; name a test, or say \"{NOT_HERE}\" if it is not written"))
            elsewhere = is_absent or any(known.is_seen_elsewhere(tick) for tick in ticks)
            if ELSEWHERE.search(f"{advice} {here}") and NOT_SEEN not in seen and not elsewhere:
                found.append((name, number, f"\"{advice}\" is about a GPU or ranks; say \"{NOT_SEEN}\""))
            for tick in ticks:
                objection = known.objection(tick)
                if objection:
                    found.append((name, number, f"`{tick}`: {objection}"))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    found = problems(parser.parse_args().root)
    for name, line, message in found:
        print(f"{name}:{line}: {message}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
