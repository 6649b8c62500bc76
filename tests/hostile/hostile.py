#!/usr/bin/env python3
"""Drives a built millrace as a hostile user would: signals, many processes at once, files of the user's own, known cases.

    tests/hostile/hostile.py PROGRAM [--rounds N] [--part NAME]... [--seed N] [--only K] [--keep]

Prints a line per part, "part  rounds  violations", and every violation with the seed and round that show it again. Exit 1 if there
is one. --rounds N: of signals N, of the other parts in proportion; without it a small mode for every change.
"""
import argparse
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path

sys.dont_write_bytecode = True  # the tree that holds this stays as it is

import cases
import first_signal
import own_files
import signals
import together
from world import Violation, World

PARTS = {  # rounds in the small mode, share of --rounds
    "cases": (cases.rounds, None, None),
    "signals": (signals.rounds, 6, 1.0),
    "first_signal": (first_signal.rounds, 5, 2 / 3),
    "together": (together.rounds, 4, 2 / 3),
    "own_files": (own_files.rounds, 3, 1 / 5),
}


class Report:
    def __init__(self, is_full):
        self.is_full = is_full
        self.done, self.violations = 0, 0
        self.notes = {}

    def note(self, text):
        self.notes[text] = self.notes.get(text, 0) + 1

    def round(self, part, seed, number, work):
        self.done += 1
        try:
            work()
        except Violation as violation:
            self.violations += 1
            print(f"VIOLATION {part} {number} (--part {part} --seed {seed} --only {number})\n    {violation}", flush=True)
        except Exception:  # of the harness; the other rounds go on
            self.violations += 1
            print(f"BROKEN {part} {number} (--part {part} --seed {seed} --only {number})\n{traceback.format_exc()}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--part", action="append", choices=list(PARTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one round, or one case by name")
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    wish = parser.parse_args()
    base = "/dev/shm" if Path("/dev/shm").is_dir() and shutil.disk_usage("/dev/shm").free > 2 << 30 else None
    folder = Path(tempfile.mkdtemp(prefix="millrace-hostile-", dir=base))
    # A signal that is ignored here, as after nohup, would be ignored in the programs too; a handler is not inherited.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    failed = False
    try:
        world = World(wish.program, folder)
        for part in wish.part or PARTS:
            work, small, share = PARTS[part]
            report = Report(wish.rounds is not None)
            if small is None:
                numbers = [wish.only] if wish.only else None
            elif wish.only:
                numbers = [int(wish.only)]
            else:
                numbers = range(small if wish.rounds is None else max(1, round(wish.rounds * share)))
            try:
                work(world, wish.seed, numbers, report)
            finally:  # interrupted, too: what was tried until then
                print(f"part         rounds  violations\n{part:<10} {report.done:>8} {report.violations:>11}", flush=True)
                for text, count in sorted(report.notes.items()):
                    print(f"    {count} x {text}", flush=True)
            failed = failed or report.violations > 0
    finally:
        if not wish.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"seed {wish.seed}" + (f", kept in {folder}" if wish.keep else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
