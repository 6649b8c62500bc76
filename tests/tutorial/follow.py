#!/usr/bin/env python3
"""Types the commands of docs/tutorial.md, in order, and compares what comes out with what the page shows.

    tests/tutorial/follow.py BUILD_FOLDER

A ```sh block is run by bash and must succeed; ```sh fails must fail; ```sh numpy and ```sh torch are left out, and counted, where
Python lacks that module. A ```diff block is an edit of recipe.cpp: its lines must be there, once. A ```text block is what the
block before it prints: these lines, in this order, others between them; a number stands for any number, … for anything. What a
reader does in the repository has a stand-in here, so that the page is followed against BUILD_FOLDER: see STAND_INS. The recipe is
not compiled again where the same text was compiled before: see KEEP.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = {  # line of the page -> what is run instead; "" = nothing, it is tested elsewhere
    "cd millrace": "",
    "./dev demo": "",
    "./dev install": 'cmake --install "$BUILD" --prefix "$HOME/.local" > /dev/null',
}
# What cmake puts before the compiler's words: it keeps the object of each text of a source file.
KEEP = """#!/bin/bash
set -e
source= object= words=("$@")
for ((i = 0; i < $#; ++i)); do
  [[ ${words[i]} != -c ]] || source=${words[i + 1]}
  [[ ${words[i]} != -o ]] || object=${words[i + 1]}
done
[[ -n $source && -n $object ]] || exec "$@"
kept=$HOME/kept/$( (printf '%s\\n' "$@" && cat "$source") | sha256sum | cut -d ' ' -f 1)
if [[ -e $kept ]]; then
  cp "$kept" "$object"
  [[ ! -e $kept.d ]] || cp "$kept.d" "$object.d"
  exit
fi
"$@"
mkdir -p "$HOME/kept"
[[ ! -e $object.d ]] || cp "$object.d" "$kept.d"
cp "$object" "$kept"
"""
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
BLOCK = re.compile(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def fail(page_line, text):
    sys.exit(f"FAILED: docs/tutorial.md line {page_line}: {text}")


def pattern_of(line):
    """A line of a page as a pattern: runs of blanks, numbers and … are loose."""
    parts = re.split(rf"(…|{NUMBER}|\s+)", line.strip())
    loose = lambda part: ".*" if part == "…" else r"\s+" if part.isspace() else NUMBER if re.fullmatch(NUMBER, part) else re.escape(part)
    return re.compile(r"\s*" + "".join(loose(part) for part in parts if part) + r"\s*$")


def missing_line(expected, output):
    """The first line of a page that the output does not have in its place, or None."""
    lines = iter(output.splitlines())
    for line in expected.splitlines():
        pattern = pattern_of(line)
        if not any(pattern.match(out) for out in lines):
            return line
    return None


def edited(source, diff):
    """`source` with one hunk applied; None where its old lines are not there exactly once."""
    old = "".join(line[1:] + "\n" for line in diff.splitlines() if line[0] in " -")
    new = "".join(line[1:] + "\n" for line in diff.splitlines() if line[0] in " +")
    return source.replace(old, new) if source.count(old) == 1 else None


class Reader:
    """Somebody who types: a home folder, a current folder, and what was printed last."""

    def __init__(self, build, home):
        self.environment = {**os.environ, "HOME": str(home), "BUILD": str(build)}
        self.home = home
        self.folder = home
        self.output = ""
        programs = home / "programs"
        programs.mkdir()
        (programs / "keep").write_text(KEEP)
        (programs / "keep").chmod(0o755)
        self.environment["CMAKE_CXX_COMPILER_LAUNCHER"] = str(programs / "keep")
        if self.module_of("numpy", ROOT / "tools/python-peer"):  # a Python with the modules of the page, where there is one
            (programs / "python3").write_text(f'#!/bin/sh\nexec "{ROOT}/tools/python-peer" "$@"\n')
            (programs / "python3").chmod(0o755)
        self.environment["PATH"] = f"{programs}{os.pathsep}{self.environment['PATH']}"

    def module_of(self, name, python="python3"):
        return subprocess.run([str(python), "-c", f"import {name}"], env=self.environment, capture_output=True).returncode == 0

    def type(self, commands):
        """Runs a block as one script that stops at the first command that fails; later blocks begin in the folder it ends in."""
        place = self.home / "place"
        script = f"set -e\n{commands}\npwd > '{place}'\n"
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.output = done.stdout.decode("utf-8", "replace")
        if done.returncode == 0:
            self.folder = Path(place.read_text().strip())
        return done.returncode


def stood_in(commands, used):
    lines = []
    for line in commands.splitlines():
        used.update({line} & STAND_INS.keys())
        lines.append(STAND_INS.get(line, line))
    return "\n".join(lines)


def follow(page, reader):
    counts = {"ran": 0, "compared": 0, "edits": 0, "left out": 0}
    used, left_out = set(), False
    for block in BLOCK.finditer(page):
        line = page.count("\n", 0, block.start()) + 1
        kind, mark, text = block.groups()
        if kind == "sh":
            left_out = mark in ("numpy", "torch") and not reader.module_of(mark)
            counts["left out" if left_out else "ran"] += 1
            if left_out:
                print(f"left out: line {line}, which needs Python with {mark}")
                continue
            code = reader.type(stood_in(text, used))
            if (code == 0) == (mark == "fails"):
                fail(line, f"exit code {code}\n{text}{reader.output[-4000:]}")
        elif kind == "text" and not left_out:
            absent = missing_line(text, reader.output)
            if absent:
                fail(line, f"nothing printed is like this line: {absent}\n{reader.output[-4000:]}")
            counts["compared"] += 1
        elif kind == "diff":
            recipe = reader.folder / "recipe.cpp"
            after = edited(recipe.read_text(), text)
            if after is None:
                fail(line, f"recipe.cpp does not have these lines, or has them twice\n{text}")
            recipe.write_text(after)
            counts["edits"] += 1
    unused = STAND_INS.keys() - used
    if unused:
        fail(1, f"stand-ins that the page does not need any more: {', '.join(sorted(unused))}")
    return counts


def main():
    build = Path(sys.argv[1]).resolve()
    home = Path(tempfile.mkdtemp(prefix="millrace-tutorial-"))
    try:
        counts = follow((ROOT / "docs/tutorial.md").read_text(encoding="utf-8"), Reader(build, home))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(", ".join(f"{name} {count}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
