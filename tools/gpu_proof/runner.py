"""Runs the parts one after the other, each in a process of its own with its own limit; none stops the others.

After each part OUT/result.json is written anew, whole, so that it is true also when this program is stopped.
"""
import json
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from . import processes
from .proof import BAD, VERDICTS

WHOLE_SECONDS = 518  # of all parts together: a call of 540 s has some left for unpacking, the table and the archive
TOOLS = Path(__file__).resolve().parent.parent


@dataclass
class Part:
    name: str
    limit: int  # seconds
    title: str
    beside: tuple = ()  # it runs beside these parts, from the beginning of the first, and is waited for before any other begins
    asked: bool = False  # it runs only where its name is given
    module: str = ""  # where run() is; "" = parts/NAME.py

    def where(self):
        return self.module or f"gpu_proof.parts.{self.name}"


@dataclass
class Running:
    part: Part
    child: subprocess.Popen
    began: float
    rows: Path
    log: Path
    limit: float
    ended: float | None = None  # when its process did, while others ran

    def watch(self):
        """Notes the end of one that runs beside others."""
        self.child.wait()
        self.ended = time.monotonic()


class Runner:
    """`setup`: see proof.Proof; `header`: what the result file says of machine and day; `say`: a line for people."""

    def __init__(self, setup, header, out, say, whole=WHOLE_SECONDS):
        self.setup, self.header, self.out, self.say = setup, header, Path(out), say
        self.scratch = Path(setup["scratch"])
        self.began = time.monotonic()
        self.stretch = setup.get("stretch", 1)
        self.whole = whole * self.stretch
        self.results = []
        self.beside = []
        processes.adopt_orphans()

    def left(self):
        return self.whole - (time.monotonic() - self.began)

    def run(self, parts):
        """The results of all parts, in their order."""
        waiting = [part for part in parts if part.beside]
        for part in parts:
            if part.beside and any(other.name in part.beside for other in parts):
                continue
            self.end_beside(part.name)
            for companion in [other for other in waiting if part.name in other.beside]:
                waiting.remove(companion)
                self.begin_beside(companion)
            self.results.append(self.finish(self.start(part)))
            self.write()
        self.end_beside("")
        return self.results

    def begin_beside(self, part):
        self.beside.append(self.start(part))
        threading.Thread(target=self.beside[-1].watch, daemon=True).start()

    def end_beside(self, next_name):
        """Waits for those that may not run beside the part of this name."""
        for running in [other for other in self.beside if next_name not in other.part.beside]:
            self.results.append(self.finish(running))
            self.beside.remove(running)
            self.write()

    def start(self, part):
        limit = max(min(part.limit * self.stretch, self.left()), 0.0)
        rows, log = self.scratch / f"{part.name}.rows", self.scratch / f"{part.name}.log"
        rows.write_text("")
        setup = self.scratch / f"{part.name}.json"
        setup.write_text(json.dumps({**self.setup, "limit": limit, "rows": str(rows)}))
        path = os.pathsep.join([str(TOOLS), *filter(None, [os.environ.get("PYTHONPATH")])])
        with open(log, "wb") as output:
            child = subprocess.Popen([self.setup["python"], "-m", "gpu_proof.one_part", part.where(), str(setup)], stdin=subprocess.DEVNULL,
                                     stdout=output, stderr=subprocess.STDOUT, cwd=self.scratch, env={**os.environ, "PYTHONPATH": path})
        return Running(part, child, time.monotonic(), rows, log, limit)

    def finish(self, running):
        try:
            status = running.child.wait(timeout=max(running.began + running.limit - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            status = None
            processes.kill_tree(running.child.pid)
            running.child.wait()
        processes.kill_orphans({other.child.pid for other in self.beside})
        seconds = (running.ended or time.monotonic()) - running.began
        rows = read_rows(running.rows) + ending_rows(status, running)
        result = {"name": running.part.name, "title": running.part.title, "limit": running.limit, "seconds": round(seconds, 2), "rows": rows}
        self.say(f"{running.part.name:<10} {seconds:6.1f} s  {counts_text(rows)}")
        return result

    def write(self):
        self.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**self.header, "seconds": round(time.monotonic() - self.began, 1), "parts": self.results}, indent=1)
        new = self.out / "result.json.new"
        new.write_text(text + "\n")
        new.replace(self.out / "result.json")


def read_rows(path):
    """The rows of a part's file; what is no row becomes a row that says so."""
    rows, garbage = [], []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
            assert row["verdict"] in VERDICTS and all(isinstance(row[key], str) for key in ("what", "figure", "why"))
            rows.append(row)
        except (ValueError, KeyError, TypeError, AssertionError):
            garbage.append(line)
    if garbage:
        rows.append(failed("what it wrote", f"{len(garbage)} lines are no rows, such as {garbage[0][:80]!r}"))
    return rows


def failed(what, why):
    return {"what": what, "figure": "", "verdict": "failed", "why": why}


def ending_rows(status, running):
    """What the end of a part's process adds to its rows."""
    said = processes.last_lines(running.log.read_text(encoding="utf-8", errors="replace"))
    if status is None:
        return [failed("the part as a whole", f"stopped at its limit of {running.limit:.0f} s; what it had found is above. {said}".strip())]
    if status != 0:
        how = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return [failed("the part as a whole", f"{how}: {said}")]
    if not running.rows.stat().st_size:
        return [failed("the part as a whole", f"it ended and said nothing. {said}".strip())]
    return []


def counts(rows):
    found = {verdict: 0 for verdict in VERDICTS}
    for row in rows:
        found[row["verdict"]] += 1
    return found


def counts_text(rows):
    """"3 ok, 1 failed"."""
    return ", ".join(f"{number} {verdict}" for verdict, number in counts(rows).items() if number) or "nothing"


def all_rows(results):
    return [row for result in results for row in result["rows"]]


def is_good(results):
    """No row is bad, and something was done."""
    rows = all_rows(results)
    return any(row["verdict"] in ("ok", "measured") for row in rows) and not any(row["verdict"] in BAD for row in rows)
