"""Runs of Millrace as Python objects, read from their folders (docs/files.md describes the files), and functions that start the
program."""
from __future__ import annotations

import fcntl
import html
import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping

from headrace._flags import flags
from headrace.errors import Error, FileError, MissingError, MomentError, UsageError

_ENDS_OF_LOG = (1 << 16, 1 << 20, 1 << 24)  # bytes
_DEEPEST = 3  # runs/<recipe>/<name>, and one folder deeper
_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_ASKED_TO_STOP = tuple(128 + number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1))  # exit codes
_HISTORY = ("step", "epoch", "validation")  # kinds of lines


class RunError(Error, RuntimeError):
    """A run ended with an error. `what`, `where` and `next` are the program's message."""


RunError.__module__ = "headrace"


@dataclass(frozen=True)
class Metric:
    """A metric of the validations. `last` and `best` are NaN if there was no value; `best_step` is 0 if the best is not known."""

    last: float
    best: float
    best_step: int


@dataclass(frozen=True)
class Finding:
    """A finding of the doctor; its text names the remedy. `gain`: the share of the loop's time that the remedy saves (0 to 1), NaN
    if it is unknown. `key` and `value`: the remedy, if it is a setting."""

    id: str
    text: str
    gain: float = math.nan
    key: str = ""
    value: str = ""

    def __str__(self) -> str:
        return self.text


def _number(value: Any) -> float:
    if isinstance(value, str):
        return _NUMBERS.get(value, math.nan)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan


def _lowest(values: Mapping[int, float]) -> tuple[float, int]:
    """The lowest finite value, and the first step that had it; (NaN, 0) without one."""
    return min(((value, step) for step, value in values.items() if math.isfinite(value)), default=(math.nan, 0))


def _is_end(lines: list[bytes]) -> bool | None:
    """Whether the last line that begins, makes or ends steps ends them; None if there is no such line."""
    for line in reversed(lines):
        try:
            kind = json.loads(line).get("kind")
        except (ValueError, AttributeError):
            continue
        if kind in ("start", "step", "end"):
            return kind == "end"
    return None


def _json_file(path: Path) -> dict[str, Any]:
    """The content of a JSON file. {} if the file is missing or damaged, so that it does not hide the rest of a run."""
    try:
        value = json.loads(path.read_text(errors="replace"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


class Run:
    """A run folder. Files are read at each use, so the object shows the progress of a run that is training."""

    def __init__(self, folder: str | os.PathLike, _process: subprocess.Popen | None = None, _output: Path | None = None):
        self.folder = Path(folder)
        self._process, self._output = _process, _output
        if _process is None and not _is_run(self.folder):
            there = self.folder.is_dir()
            raise MissingError(f"{self.folder} is no run folder" if there else f"there is no folder {self.folder}", f"headrace.Run({str(folder)!r})",
                               f"headrace.runs({str(folder)!r}) lists the runs below it" if there else f"look at the path: the current folder is {os.getcwd()}")

    # -- what it is --------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def recipe(self) -> str:
        """"" if no file names it."""
        return str(_json_file(self.folder / "run.json").get("recipe") or self.summary.get("recipe") or "")

    @property
    def config(self) -> dict[str, Any]:
        """{section: {key: value}}, as resolved."""
        found = _json_file(self.folder / "config.json")
        values = found.get("values")  # beside "origins", which says of each key who set it
        return values if isinstance(values, dict) else found

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of the process that ended last; {} before any process ended."""
        return _json_file(self.folder / "summary.json")

    @property
    def state(self) -> str:
        """"running", "done: <why>", "failed", "stopped" (can be resumed), "died" (killed or crashed; can be resumed) or "new"
        (nothing was saved yet)."""
        if self.is_running:
            return "running"
        summary, snapshots = self.summary, self._snapshots()
        newest, reason = (snapshots[-1][0] if snapshots else 0), summary.get("exit_reason", "")
        if reason == "error":
            return "failed"
        if reason and reason != "signal" and summary.get("steps", -1) >= newest:
            return f"done: {reason}"
        if not newest and _json_file(self.folder / "run.json").get("kind") != "script":  # a script has no snapshots of Millrace
            return "new"
        return "stopped" if self._has_end() else "died"

    def _has_end(self) -> bool:
        """False if the latest process has not written why it ended. Reads only the end of the log, so the log's length does not
        matter. Reads more if no line says it, because a step line is long if the recipe has thousands of metrics."""
        try:
            with open(self.folder / "log.jsonl", "rb") as log:
                for most in _ENDS_OF_LOG:
                    log.seek(max(0, os.fstat(log.fileno()).st_size - most))
                    if (found := _is_end(log.read().splitlines())) is not None:
                        return found
        except OSError:
            pass
        return True

    @property
    def is_running(self) -> bool:
        """True if a process is training in the folder, that is, holds its lock."""
        try:
            with open(self.folder / "lock") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return True
        except OSError:  # the file is missing, or belongs to another user
            return False
        return False

    # -- what it measured --------------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[dict[str, Any]]:
        """The lines of log.jsonl in order. Damaged lines are skipped."""
        try:
            with open(self.folder / "log.jsonl", errors="replace") as log:
                for line in log:
                    try:
                        value = json.loads(line)
                    except ValueError:
                        continue
                    if isinstance(value, dict):
                        yield value
        except FileNotFoundError:
            return

    @property
    def history(self) -> dict[str, list[float]]:
        """Columns of equal length, with a row for each step that was logged or validated: `pandas.DataFrame(run.history)`. "step"
        is the first column. A value is NaN if the row lacks it. If a resume repeated steps, the later values count."""
        rows: dict[int, dict[str, float]] = {}
        for line in self.lines():
            if line.get("kind") == "start":
                rows = {step: row for step, row in rows.items() if step <= line.get("step", 0)}
            if line.get("kind") not in _HISTORY or not isinstance(line.get("step"), int):
                continue
            row = rows.setdefault(line["step"], {})
            for key, value in line.items():
                is_number = (isinstance(value, (int, float)) and not isinstance(value, bool)) or (isinstance(value, str) and value in _NUMBERS)
                if key not in ("kind", "step") and is_number and (line["kind"] == "step" or key not in ("time", "seconds")):
                    row[key] = _number(value)
        names = list(dict.fromkeys(key for row in rows.values() for key in row))
        ordered = sorted(rows)
        return {"step": ordered, **{name: [rows[step].get(name, math.nan) for step in ordered] for name in names}}

    @property
    def step(self) -> int:
        """The latest step in the log; 0 before the first log line."""
        return max([self.summary.get("steps", 0), *self.history["step"][-1:]])

    @property
    def metrics(self) -> dict[str, Metric]:
        """Metrics by name, in the recipe's order: from the summary, or from the log while the run is training. {} before the first
        validation."""
        summary = self.summary
        if summary and not self.is_running:
            order = summary.get("metrics_order", [])
            found = summary.get("metrics", {})
            return {name: Metric(_number(found[name].get("last")), _number(found[name].get("best")), found[name].get("best_step") or 0)
                    for name in [*order, *(name for name in found if name not in order)] if name in found}
        # While it trains nobody but the recipe knows whether more is better: the best is not known, but for losses.
        measured: dict[str, dict[int, float]] = {}  # name -> step -> value
        for line in self.lines():
            step = line.get("step")
            if line.get("kind") == "start":  # what was measured behind the snapshot is made again
                measured = {name: {at: value for at, value in values.items() if at <= (step or 0)} for name, values in measured.items()}
            if line.get("kind") != "validation" or not isinstance(step, int):
                continue
            for name, value in line.items():
                if name not in ("kind", "time", "step", "seconds", "it_per_s", "epoch") and isinstance(value, (int, float, str)):
                    measured.setdefault(name, {})[step] = _number(value)
        return {name: Metric(values[max(values)], *_lowest(values if name.endswith("loss") else {})) for name, values in measured.items() if values}

    @property
    def findings(self) -> list[Finding]:
        """The doctor's findings, the largest gain first."""
        found = self.summary.get("findings", [])
        if self.is_running:
            found = []
            for line in self.lines():
                if line.get("kind") in ("start", "findings"):
                    found = line.get("findings", [])
        return [Finding(str(each.get("id", "")), str(each.get("text", "")), _number(each.get("gain")), str(each.get("key", "")), str(each.get("value", "")))
                for each in found if isinstance(each, dict)]

    # -- what it learned ---------------------------------------------------------------------------------------------------

    def _snapshots(self) -> list[tuple[int, Path]]:
        """Complete snapshots, oldest first. A snapshot is complete if it has a manifest, which is written last."""
        found = [(int(match[1]), path.parent) for path in self.folder.glob("snapshots/step-*/manifest.json")
                 if (match := re.fullmatch(r"step-(\d+)", path.parent.name))]
        return sorted(found)

    def weights(self, step: int | None = None, *, average: bool = False, to: str = "torch") -> dict[str, Any]:
        """Parameters and buffers by name, from the newest snapshot or from that of `step`: `model.load_state_dict(run.weights())`.

        `average`: the averaged weights, for a run with optim.ema_decay. `to`: "torch" or "numpy", where bfloat16 becomes float32.
        The arrays are read from the file when they are used, and writing to them does not change the file.
        """
        from headrace import _safetensors
        where = f"run.weights({'' if step is None else step}) of {self.folder}"
        if to not in ("torch", "numpy"):
            raise UsageError(f"to is {to!r}", where, 'give "torch" or "numpy"')
        snapshots = self._snapshots()
        if not snapshots:
            raise MissingError("the run has no snapshot yet", where, "wait for the first one (snapshot.every_steps), or stop the run: it saves")
        chosen = [path for number, path in snapshots if step is None or number == step]
        if not chosen:
            raise MissingError(f"there is no snapshot of step {step}", where, f"steps with one: {', '.join(str(number) for number, _ in snapshots)}")
        files = sorted(chosen[-1].glob("average.safetensors" if average else "model*.safetensors"))
        if not files:
            raise MissingError("the snapshot holds no averaged weights", where, "they are saved with optim.ema_decay; leave average out")
        sizes = _json_file(chosen[-1] / "manifest.json").get("files", {})
        weights: dict[str, Any] = {}
        for file in files:
            expected = sizes.get(file.name, {}).get("bytes")
            if expected is not None and file.stat().st_size != expected:
                raise FileError(f"{file} has {file.stat().st_size} bytes, its manifest says {expected}", where, "take the snapshot before: run.weights(step)")
            weights.update(_safetensors.load(file, to))
        return weights

    def predict(self, inputs: Any, *, step: int | None = None, batch_size: int | None = None, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The trained model's output for new input, by the program `millrace predict`: {name: array}, each with the same number of rows.

            maps = run.predict({"x": x})["y"]

        `inputs`: {name: array [rows, ...]}, or one array for a recipe with one input; `millrace predict RECIPE --help` names the inputs.
        Outputs are torch tensors if an input is one, else NumPy arrays; they are views of a mapped file. `step`: the snapshot to use;
        by default the best, else the newest. `batch_size`: number of rows at a time. `values`: config keys that replace the run's, in
        the form of `train`. Raises `RunError` with the program's message.
        """
        from headrace import _predict
        where = f"run.predict() of {self.folder}"
        source = self.folder if step is None else next((path for number, path in self._snapshots() if number == step), self.folder / "snapshots" / f"step-{step}")
        words = [*([f"--batch-size={batch_size}"] if batch_size is not None else []), *flags(values or {})]
        return _predict.predict(_program(where), source, inputs, words, lambda text: _failure(text, self.folder, _predict.REMEDY), where)

    # -- its process -------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Asks the training to finish its step, save and exit; `wait()` waits for that. Does nothing if no process is training."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            return
        if not self.is_running:
            return
        holders = [pid for pid in (self.folder / "lock").read_text(errors="replace").split() if pid.isdigit() and _has_open(pid, self.folder / "lock")]
        if not holders:
            raise MomentError("the run is training, and no process here holds its lock", f"stop() of {self.folder}",
                              "stop it on the machine where it trains, or as the user who started it")
        for pid in holders:
            os.kill(int(pid), signal.SIGTERM)

    def wait(self, timeout: float | None = None) -> "Run":
        """Returns this run when no process is training in it any more. Raises `RunError` with the program's message if it failed,
        and TimeoutError after `timeout` seconds."""
        if self._process is not None and not self._is_resumed():
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired as error:
                raise TimeoutError(f"{self.folder} is still training after {timeout} s") from error
            self._raise_failure()
            return self
        end = math.inf if timeout is None else time.monotonic() + timeout
        while self.is_running:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.folder} is still training after {timeout} s")
            time.sleep(0.2)
        if self.state == "failed":
            raise _failure(str(self.summary.get("error", "the run failed")), self.folder, "log.jsonl has what it said")
        return self

    def _is_resumed(self) -> bool:
        """Whether the process of this object has ended, and another one trains in the folder now."""
        return self._process is not None and self._process.poll() is not None and self.is_running

    @property
    def output(self) -> str:
        """The program's output so far; "" for a run that `headrace.train` did not start."""
        return self._output.read_text(errors="replace") if self._output is not None else ""

    def _raise_failure(self) -> None:
        code = self._process.poll() if self._process is not None else None
        if code is not None and code < 0:  # a signal ended the program, so it has printed no error
            name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
            raise RunError(f"the program was ended by {name}", str(self.folder), "run.output has what it printed" + (
                "; where memory ran out, the kernel sends SIGKILL" if -code == signal.SIGKILL else "") + "; the same words resume the run")
        if code not in (None, 0, *_ASKED_TO_STOP):
            raise _failure(self.output or f"the program ended with {code}", self.folder)

    # -- how it looks ------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name} {metric.last:.5g}" for name, metric in self.metrics.items())
        return f"<run {self.folder}: {self.recipe or 'no recipe'}, {self.state}, step {self.step}{', ' + metrics if metrics else ''}>"

    def _repr_html_(self) -> str:
        history, finding = self.history, next(iter(self.findings), None)
        rows = "".join(f"<tr><td>{html.escape(name)}</td><td>{metric.last:.5g}</td><td>{metric.best:.5g}</td><td>{metric.best_step}</td></tr>"
                       for name, metric in self.metrics.items())
        table = f"<table><tr><th>metric</th><th>last</th><th>best</th><th>at step</th></tr>{rows}</table>" if rows else ""
        return (f"<div><b>{html.escape(self.recipe)}</b> {html.escape(str(self.folder))}: {html.escape(self.state)}, step {self.step}"
                f"{_curve(history['step'], history.get('loss', []))}{table}{html.escape(str(finding)) if finding else ''}</div>")


def _curve(steps: list[float], values: list[float], width: int = 480, height: int = 120) -> str:
    """A curve as SVG; "" for fewer than two finite values."""
    points = [(step, value) for step, value in zip(steps, values) if math.isfinite(value)]
    if len(points) < 2:
        return ""
    low, high = min(value for _, value in points), max(value for _, value in points)
    first, last = points[0][0], points[-1][0]
    places = " ".join(f"{width * (step - first) / max(last - first, 1):.1f},{height * (high - value) / (high - low or 1):.1f}" for step, value in points)
    return (f'<svg viewBox="-4 -4 {width + 8} {height + 8}" width="{width}" height="{height}"><title>loss from {high:.4g} to {low:.4g}</title>'
            f'<polyline points="{places}" fill="none" stroke="currentColor"/></svg>')


def _has_open(pid: str, file: Path) -> bool:
    """True if the process has this file open. A lock file also names processes that trained before."""
    wanted = file.stat()
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            found = descriptor.stat()
        except OSError:
            continue
        if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
            return True
    return False


def _is_run(folder: Path) -> bool:
    # Uses os.path, which returns False for a folder of another user that may not be read.
    return any(os.path.exists(folder / name) for name in ("run.json", "log.jsonl", "summary.json")) or os.path.isdir(folder / "snapshots")


def _failure(text: str, folder: Path, otherwise: str = "run.output has all that it printed") -> RunError:
    """The three parts of the program's error, from its output. Without such an error: the last lines of the output, and the remedy
    `otherwise`."""
    lines = text.rstrip().splitlines()
    starts = [at for at, line in enumerate(lines) if re.match(r"\w*(?:Error|Interrupted)  ", line)]
    if not starts:
        return RunError("\n".join(lines[-5:]) or "the program ended without a word", str(folder), otherwise)
    parts: dict[str, list[str]] = {"what": [lines[starts[-1]].split("  ", 1)[1]], "where": [], "next": []}
    part = "what"
    for line in lines[starts[-1] + 1:]:
        label = re.match(r" +(where|next) +(.*)", line)
        if label:
            part = label[1]
            parts[part].append(label[2])
        elif line.startswith("  "):
            parts[part].append(line.strip())
        else:
            break
    return RunError(*("\n".join(parts[name]) for name in ("what", "where", "next")))


def runs(folder: str | os.PathLike = "runs") -> list[Run]:
    """All runs in `folder` and below it, the most recently written first."""
    root = Path(folder)
    if not root.is_dir():
        raise MissingError(f"there is no folder {root}", f"headrace.runs({str(folder)!r})", f"runs lie in runs/<recipe>/<name>; the current folder is {os.getcwd()}")

    def below(place: Path, depth: int) -> Iterator[Run]:
        try:
            folders = sorted(path for path in place.iterdir() if path.is_dir() and not path.is_symlink())
        except PermissionError:
            return
        for entry in folders:
            if _is_run(entry):
                yield Run(entry)
            elif depth + 1 < _DEEPEST:
                yield from below(entry, depth + 1)

    def written(run: Run) -> float:
        return max((path.stat().st_mtime for name in ("summary.json", "log.jsonl", "config.json") if (path := run.folder / name).exists()), default=0.0)

    return sorted([Run(root)] if _is_run(root) else below(root, 0), key=written, reverse=True)


# -- starting the program ----------------------------------------------------------------------------------------------------


def _program(where: str) -> str:
    given = os.environ.get("MILLRACE")
    found = given or shutil.which("millrace")
    if not found or not os.access(found, os.X_OK):
        raise MissingError(f"there is no program {given}, which MILLRACE names" if given else "the program millrace is not on the PATH", where,
                           "install its wheel, which ./dev wheel makes in a clone of Millrace, into an environment of its own (python3 -m venv millrace && "
                           "millrace/bin/pip install millrace_train-*.whl) and set MILLRACE=millrace/bin/millrace")
    try:
        said = subprocess.run([found, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        is_ours, failure = said.stdout.startswith("Millrace "), said.stderr.strip().splitlines()
    except OSError as error:
        is_ours, failure = False, [str(error)]
    if not is_ours:
        raise FileError(f"{found} is not Millrace, or can't be started" + (f": {failure[0]}" if failure else ""), where,
                        "another package has a command of that name: set MILLRACE to the path of the one from millrace-train")
    return found


def _unused(folder: Path) -> Path:
    """`folder`, or where it is there `folder`-2 and so on: of two runs in one second the second would resume the first."""
    found, number = folder, 1
    while found.exists():
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def train(recipe: str, values: Mapping[str, Any] | None = None, *, preset: str | None = None, run: str | os.PathLike | None = None,
          data: str | os.PathLike | None = None) -> Run:
    """Starts the program `millrace` (from $MILLRACE or the PATH). Returns when it has begun to train in its run folder, or raises its error.

        run = headrace.train("cosmology", {"optim.learning_rate": 3e-4}, preset="small", run="runs/sky", data="sky/")
        run.wait()
        pandas.DataFrame(run.history)

    `values`: config keys as {"section.key": value} or {"section": {"key": value}}. The same arguments resume the run.
    The program continues when this process ends; `run.stop()` makes it save and exit. If this call is interrupted, the program is asked
    to end.
    """
    where = f"headrace.train({recipe!r}, ...)"
    program = _program(where)
    folder = Path(run) if run is not None else _unused(Path("runs") / recipe / time.strftime("%Y-%m-%d-%H%M%S"))
    if _is_run(folder) and Run(folder).is_running:
        raise MomentError(f"{folder} is training already", where, f"headrace.Run({str(folder)!r}) follows it; stop() ends it")
    words = [program, "train", recipe, "--run", str(folder), *(["--preset", preset] if preset else []), *(["--data", str(data)] if data else []), *flags(values or {})]
    output, name = tempfile.mkstemp(prefix="headrace-", suffix=".txt")
    with os.fdopen(output) as file:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    started = Run(folder, process, Path(name))
    began = os.path.getmtime(folder / "log.jsonl") if (folder / "log.jsonl").exists() else None
    try:
        while process.poll() is None and (not (folder / "log.jsonl").exists() or os.path.getmtime(folder / "log.jsonl") == began):
            time.sleep(0.05)
    except BaseException:  # Ctrl-C: nobody would have the run, which would go on for days
        process.terminate()
        raise
    started._raise_failure()
    return started
