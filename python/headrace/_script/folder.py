"""The run folder of a script. It has run.json, config.json, log.jsonl and summary.json in the form of docs/files.md, so that
`millrace report`, `compare`, `doctor RUN` and `runs` read it. It also has evidence.json, from which `headrace doctor RUN`
repeats its verdict."""
from __future__ import annotations

import fcntl
import hashlib
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any, Sequence

from headrace._script.accounts import PHASES
from headrace.errors import FileError, MissingError, UsageError

FILES = ["run.json", "config.json", "log.jsonl", "summary.json", "evidence.json"]
LINES = 500  # the most lines of steps in the log


def next_free(name: str) -> Path:
    """The first of runs/script/train, train-2, train-3... that does not exist."""
    folder, number = Path("runs/script") / name, 1
    while folder.exists():
        number += 1
        folder = Path("runs/script") / f"{name}-{number}"
    return folder


def new(path: Path | None, script: str, command: Sequence[str]) -> "Folder":
    """Makes the folder `path`, or else the next free folder; another process may take that folder first."""
    while path is None:
        try:
            return Folder(next_free(Path(script).stem), script, command)
        except UsageError:
            continue
    return Folder(path, script, command)


class Folder:
    """A new run folder; the object holds its lock while it lives."""

    def __init__(self, path: Path, script: str, command: Sequence[str]):
        where = str(path)
        there = UsageError(f"{path} is there already", where, "name a new folder, or none: then it is a new one below runs/script")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise there
        self.path, self.script, self.command = path, script, list(command)
        self.began = time.time()
        self._made = [each for each in (path, *path.parents) if not each.exists()]
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = open(path / "lock", "a")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock.truncate(0)
        except BlockingIOError:
            self._lock.close()
            raise there from None
        except OSError as error:
            raise FileError(f"{path} can't be made: {error.strerror}", where, "name a folder that you may write") from error
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()
        self._json("run.json", {"format": 1, "kind": "script", "recipe": script, "millrace": _version(), "files": FILES, "old_run": "", "replacement": "none",
                                "started_in": os.getcwd()})

    def remove(self) -> None:
        """Removes the folder, for a script that trained nothing."""
        for name in [*FILES, "lock"]:
            (self.path / name).unlink(missing_ok=True)
            (self.path / f"{name}.part").unlink(missing_ok=True)
        self._lock.close()
        for folder in self._made:
            try:
                folder.rmdir()
            except OSError:
                return

    def _json(self, name: str, value: Any) -> None:
        self._whole(name, json.dumps(value, indent=1) + "\n")

    def _whole(self, name: str, text: str) -> None:
        """Writes a file as a whole: a reader, also after a kill, finds the old or the new content."""
        part = self.path / f"{name}.part"
        part.write_text(text)
        os.replace(part, self.path / name)

    def write(self, found: dict[str, Any], verdict: dict[str, Any], ending: dict[str, Any] | None) -> None:
        """`found`: the evidence file of the process that trains. `ending`: exit_reason, and error or signal; None while the script
        runs."""
        evidence = found["evidence"]
        self._json("evidence.json", found)
        loader, script = evidence["script"].get("loader", {}), evidence["script"]
        kept = {name: loader[name] for name in ("workers", "prefetch", "persistent", "pinned", "batch_size") if name in loader}
        self._json("config.json", {"values": {"loader": kept, "script": {"threads": script.get("threads", 0)}},
                                   "origins": {f"loader.{name}": loader.get("where", "") for name in kept}})
        self._whole("log.jsonl", "".join(json.dumps(line) + "\n" for line in self._lines(found, verdict, ending)))
        if ending is None:
            return
        self._json("summary.json", self._summary(found, verdict, ending))
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _lines(self, found: dict[str, Any], verdict: dict[str, Any], ending: dict[str, Any] | None) -> Any:
        evidence, rows = found["evidence"], found["rows"]
        yield {"kind": "start", "time": 0.0, "script": self.script, "recipe": self.script, "command": self.command, "step": 0, "versions": found["versions"],
               "process": found["process"], "unix_time": found["began_unix"], "system": found["system"]}
        yield from sorted([*_thinned(rows, found.get("places", [])), *found["machine_lines"]], key=lambda line: line["time"])
        times = evidence["times"]
        yield {"kind": "findings", "time": times["wall"], "step": evidence["step"], "findings": verdict.get("findings", [])}
        if ending is not None:
            yield {"kind": "end", "time": times["wall"], "step": evidence["step"], **ending}

    def _summary(self, found: dict[str, Any], verdict: dict[str, Any], ending: dict[str, Any]) -> dict[str, Any]:
        evidence, rows, times = found["evidence"], found["rows"], found["evidence"]["times"]
        seconds, steps = times["seconds"], evidence["step"]
        loop = {phase: value for phase, value in seconds.items() if phase != "startup"}
        main = _main_place(rows) if rows else 0
        finite = [row[2] for row in rows if row[2] is not None and row[5] == main]
        batch = evidence["script"].get("loader", {}).get("batch_size", 0)
        digest = hashlib.sha256(json.dumps([self.script, self.command, evidence["cores"], evidence["on_gpu"]]).encode()).hexdigest()[:16]
        return {"kind": "script", "recipe": self.script, "preset": "", "run": str(self.path), "versions": found["versions"], **ending, "steps": steps, "epochs": found["epochs"],
                "samples": found["samples"], "loss": {"first": finite[0], "last": finite[-1]} if finite else {}, "metrics": {}, "metrics_order": [], "best": None,
                "accounts": seconds, "wall_s": times["wall"], "bound_by": max(loop, key=lambda phase: loop[phase]) if loop else "startup",
                "findings": verdict.get("findings", []), "doctor": {"looking_s": found["looking_s"]}, "likeness": digest,
                "step_ms": {"p50": times["step_ms_p50"], "p95": times["step_ms_p95"]}, "shares": _shares(loop),
                "samples_per_s": batch * steps / times["step_seconds"] if times["step_seconds"] else 0.0, "time_to_first_step_s": seconds.get("startup", 0.0),
                "others": evidence.get("others"), "parameters": found.get("parameters"), "peak_memory_bytes": found["peak_memory_bytes"]}


def _version() -> str:
    from headrace import _library
    return _library.library().version().decode()


def _shares(seconds: dict[str, float]) -> dict[str, float]:
    whole = sum(seconds.values())
    return {phase: value / whole for phase, value in seconds.items()} if whole else {}


def _main_place(rows: list) -> int:
    """The place of the backward pass whose loss is the run's loss."""
    return statistics.mode(row[5] for row in rows)


def _thinned(rows: list, places: list[str]) -> Any:
    """At most LINES lines of kind "step" from rows of [step, ns, loss, ns in steps, ns by phase, place of the backward pass]."""
    stride, main = max(1, -(-len(rows) // LINES)), _main_place(rows) if rows else 0
    before = None
    for row in rows[::stride]:
        step, ns, loss, step_ns, phases, place = row
        line = {"kind": "step", "time": ns / 1e9, "step": step, "loss" if place == main else f"loss/{places[place]}": loss}
        if before is not None and step > before[0] and before[0] > 0:
            seconds = {phase: (now - then) / 1e9 for phase, now, then in zip(PHASES, phases, before[4]) if now != then}
            line.update(accounts=seconds, shares=_shares(seconds), step_ms_p50=(step_ns - before[3]) / (step - before[0]) / 1e6)
        if before is None or step > before[0]:
            before = row
            if step > 0:
                yield line


def read(path: Path) -> dict[str, Any]:
    """Reads the evidence in a run folder."""
    try:
        kept = json.loads((path / "evidence.json").read_text())
        if not isinstance(kept, dict) or not isinstance(kept.get("evidence"), dict):
            raise ValueError("it holds no evidence")
        return kept
    except FileNotFoundError:
        where, there = f"headrace doctor {path}", path.is_dir()
        if (path / "run.json").exists() or (path / "log.jsonl").exists():
            raise MissingError(f"{path} is a run of Millrace, not of a script", where, f"write: millrace doctor {path}") from None
        raise MissingError(f"{path} is no run folder of a script" if there else f"there is no folder {path}", where,
                           "write: headrace doctor -- python train.py, which makes one" if there else f"look at the path: the current folder is {os.getcwd()}") from None
    except (OSError, ValueError) as error:
        raise FileError(f"{path / 'evidence.json'} can't be read: {error}", f"headrace doctor {path}", "run the script again: headrace doctor -- python train.py") from None
