#!/usr/bin/env python3
"""Runs what the decision records say in "How to check it still holds", as far as that takes seconds.

    tools/adr_check.py [--root DIR]

Each line of a ```sh block there is a command, run with bash in the root of the tree: it must end with 0 and print nothing, so
"! grep ..." checks that something occurs nowhere. Names in backticks outside of such blocks must exist: test programs
(`millrace_base_test`), tests (`Writer*`, `Mutants.Pt`), switches (`--off=recompute`) and paths (`tests/train`).
"""
import argparse
import fnmatch
import re
import subprocess
import sys
from pathlib import Path

import ticks

SECTION = re.compile(r"^## How to check it still holds\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"(\w+_test)(?:\s+--gtest_filter=(\S+))?")
PATTERN = re.compile(r"[A-Z]\w*(?:\.\w+\*?|\*)")
SECONDS = 20


def commands_of(block):
    """The commands, one per line; a line that ends with a backslash continues."""
    return [line.strip() for line in block.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]


def programs_of(root):
    """Test programs that CMake registers by name, and one for each folder of src/millrace that has tests, and for recipes/."""
    names = {f"millrace_{path.parent.name}_test" for path in (root / "src/millrace").glob("*/*_test.cpp")}
    for path in (root / "src/millrace").glob("*/*/*_test.cpp"):  # a folder's detail/, or a folder within a folder
        names |= {f"millrace_{path.parts[-3]}_test", f"millrace_{path.parts[-3]}_{path.parts[-2]}_test"}
    names |= {"millrace_recipes_test" for _ in (root / "recipes").rglob("*_test.cpp")}
    for path in [*root.glob("tests/*/CMakeLists.txt"), *root.glob("src/millrace/*/folder.cmake"), *root.glob("CMakeLists.txt")]:
        names |= set(re.findall(r"\b(?:mr_test|NAME)\(?\s*(\w+)", path.read_text(encoding="utf-8")))
    return names


def objection(root, known, programs, word):
    """Why a word in backticks names nothing; None if it names something."""
    program = PROGRAM.fullmatch(word)
    if program:
        if program.group(1) not in programs:
            return "no test program of that name"
        word = program.group(2) or ""
    if word.startswith("--off=") and word[6:].islower():
        return known.objection(word)
    if PATTERN.fullmatch(word) and not word.endswith((".txt", ".md", ".json")):
        pattern = word if "." in word or word.endswith("*") and fnmatch.filter(known.tests, word) else word.rstrip("*") + "*.*"
        return None if fnmatch.filter(known.tests, pattern) else "no test of that name"
    path = word.split()[0] if word else ""
    if re.fullmatch(r"(?:src|tests|tools|bench|docs|cmake|examples)/[\w./-]*\w", path) and not (root / path).exists():
        return "there is no such path"
    return None


def check(root):
    """(file, message) for each check that fails, and how many there were."""
    known, programs = ticks.Known(root), programs_of(root)
    found, count = [], 0
    for path in sorted((root / "docs/decisions").glob("[0-9]*.md")):
        section = SECTION.search(path.read_text(encoding="utf-8"))
        if not section:
            continue  # tools/tidy.py reports it
        name = str(path.relative_to(root))
        for block in BLOCK.findall(section.group(1)):
            for command in commands_of(block):
                count += 1
                done = subprocess.run(["bash", "-c", command], cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
                if done.returncode != 0 or done.stdout:
                    found.append((name, f"no longer holds (exit status {done.returncode}): {command}\n{done.stdout}".rstrip()))
        for word in re.findall(r"`([^`\n]+)`", BLOCK.sub("", section.group(1))):
            count += 1
            wrong = objection(root, known, programs, word)
            if wrong:
                found.append((name, f"`{word}`: {wrong}"))
    return found, count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    found, count = check(parser.parse_args().root)
    for name, message in found:
        print(f"{name}: {message}")
    print(f"{count} checks and names of decision records, {len(found)} stale", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
