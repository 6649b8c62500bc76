"""Copies a working folder for a trial of a script, so that the trial does not change the user's files."""
from __future__ import annotations

import os
import shutil
from pathlib import Path

from headrace.errors import UsageError

LARGE = 16 << 20     # bytes; larger files are linked, not copied
LARGE_DATABASE = 256 << 20  # the same for an SQLite database: who opens one may write to it, so a link would keep readers from it
MANY = 1000          # a folder with at least this many entries is linked as a whole
MOST = 1 << 30       # the most bytes and files that are copied
MOST_FILES = 20_000
LEFT_OUT = (".git", "__pycache__", ".ipynb_checkpoints", "wandb", "mlruns")
BESIDE_DATABASE = ("-wal", "-shm", "-journal")  # SQLite writes to them by their names, so they are never linked
OWN = "headrace-tune-"  # beginning of the name of the folder for copies, which is in the user's folder if TMPDIR is


def copy_of(folder: Path, to: Path) -> int:
    """Copies `folder` to `to`, which must not exist; returns the number of bytes copied. Large files, folders with very many files,
    environments of Python and unreadable files are linked."""
    copied = files = 0
    waiting = [(folder, to)]
    while waiting:
        source, target = waiting.pop()
        target.mkdir()
        for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
            path = target / entry.name
            if entry.name in LEFT_OUT or entry.name.startswith(OWN):
                continue
            if entry.is_symlink() or _is_linked(entry):
                os.symlink(os.path.realpath(entry.path), path)
            elif entry.is_dir():
                waiting.append((Path(entry.path), path))
            elif entry.is_file():
                shutil.copy2(entry.path, path)
                copied, files = copied + entry.stat().st_size, files + 1
            if copied > MOST or files > MOST_FILES:
                raise UsageError(f"{folder} has more than {MOST >> 20:,} MB or {MOST_FILES:,} files to copy for each trial", "headrace tune",
                                 "start it in the folder of the script; data may lie elsewhere, and files above 16 MB are not copied, but SQLite databases are up to 256 MB")
    return copied


def _is_linked(entry: os.DirEntry) -> bool:
    if not os.access(entry.path, os.R_OK | (os.X_OK if entry.is_dir() else 0)):
        return True
    if entry.is_dir():
        return os.path.exists(os.path.join(entry.path, "pyvenv.cfg")) or len(os.listdir(entry.path)) > MANY
    if not entry.is_file() or entry.stat().st_size <= LARGE or entry.name.endswith(BESIDE_DATABASE):
        return False
    return entry.stat().st_size > LARGE_DATABASE or not is_database(entry.path)


def is_database(path: str) -> bool:
    """Whether the file is a database of SQLite."""
    try:
        with open(path, "rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False
