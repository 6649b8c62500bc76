"""`headrace follow RUN --to wandb|mlflow`: sends a run's log to a tracker while the run trains, and continues the same tracker run
after a resume.

The run folder identifies the tracker's run. Nothing is written into the folder, and a follower that is started again continues
where it stopped.
"""
from __future__ import annotations

import hashlib
import math
import signal
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Protocol, Sequence

from headrace._runs import Run, _number
from headrace.errors import MissingError, PackageError, UsageError

HELP = """\
headrace follow RUN --to wandb|mlflow [--project NAME] [--once]

Sends the losses, metrics and rates in RUN/log.jsonl to Weights & Biases or MLflow as they are written, with the config of the run.
A run that resumes goes on in the same run of the tracker, and so does a follower that is started again. Ends when the run is done.
Steps that a resume makes again are sent to MLflow again. W&B takes no step twice and keeps the first values: the last line says of
how many steps.

  --to NAME        wandb or mlflow; its package must be installed
  --project NAME   the tracker's project or experiment (default: the recipe's name)
  --once           send what is there and leave; of a run that is training without its latest step, of which more may come
"""
SENT = ("step", "epoch", "validation", "memory_use")  # kinds of lines
LEFT_OUT = ("kind", "time", "step")


class Tracker(Protocol):
    """The destination of lines. `last_step`: the step that was sent last, -1 for a new run. `last_part`: the part of the log that it
    is of (see `values_by_step`); None if the tracker takes no step twice."""

    last_step: int
    last_part: int | None

    def log(self, part: int, step: int, values: dict[str, float]) -> None: ...

    def finish(self, state: str) -> None: ...


class _Wandb:
    def __init__(self, run: Run, identity: str, project: str):
        try:
            import wandb
        except ImportError as error:
            raise PackageError(f"wandb can't be imported: {error}", "headrace follow --to wandb", "pip install wandb, then wandb login") from error
        self._run = wandb.init(id=identity, resume="allow", project=project, name=str(run.folder), config=run.config)
        self.last_step = int(self._run.step) - 1  # wandb counts the next step
        self.last_part: int | None = None  # wandb drops values of a step that is not above the last one

    def log(self, part: int, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def finish(self, state: str) -> None:
        self._run.finish(exit_code=1 if state in ("failed", "died") else 0)


class _Mlflow:
    TAG = "headrace.run"
    last_part: int | None
    REACHED = "headrace.step"  # "<part>:<step>" of what was sent last

    def __init__(self, run: Run, identity: str, project: str):
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise PackageError(f"mlflow can't be imported: {error}", "headrace follow --to mlflow", "pip install mlflow, and set MLFLOW_TRACKING_URI") from error
        self._client = MlflowClient()
        experiment = self._client.get_experiment_by_name(project)
        number = experiment.experiment_id if experiment else self._client.create_experiment(project)
        known = self._client.search_runs([number], filter_string=f"tags.`{self.TAG}` = '{identity}'")
        if known:
            self._id = known[0].info.run_id
            part, _, step = known[0].data.tags.get(self.REACHED, "-1").rpartition(":")
            self.last_part, self.last_step = int(part or 1), int(step)
            self._client.update_run(self._id, status="RUNNING")
        else:
            self._id = self._client.create_run(number, tags={self.TAG: identity, "mlflow.runName": str(run.folder)}).info.run_id
            self.last_part, self.last_step = 0, -1
            for section, keys in run.config.items():
                for key, value in keys.items() if isinstance(keys, dict) else ():
                    self._client.log_param(self._id, f"{section}.{key}", value)

    def log(self, part: int, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self._id, name, value, step=step)
        self._client.set_tag(self._id, self.REACHED, f"{part}:{step}")

    def finish(self, state: str) -> None:
        if state == "running":  # --once
            return
        self._client.set_terminated(self._id, status="FAILED" if state == "failed" else "KILLED" if state in ("stopped", "died") else "FINISHED")


TRACKERS: dict[str, Callable[[Run, str, str], Tracker]] = {"wandb": _Wandb, "mlflow": _Mlflow}


def identity_of(run: Run) -> str:
    """A text that stays the same for a run folder from its first process on, and changes after `train --fresh`."""
    first = next((line for line in run.lines() if line.get("kind") == "start"), None)
    if first is None:
        raise MissingError("the run has not begun: its log has no line yet", str(run.folder / "log.jsonl"), "start the training first")
    begun = f"{run.folder.resolve()} {first.get('unix_time')} {first.get('process')}"
    return hashlib.sha256(begun.encode()).hexdigest()[:16]


def values_by_step(lines: Iterator[dict[str, Any]]) -> Iterator[tuple[int, int, dict[str, float]]]:
    """Joins the numbers of neighbouring lines of the same step, because W&B accepts a step only once. Gives (part, step, values). The
    lines of each process that trained the run are a part; parts are counted from 1. A part begins at the step of its snapshot, so it
    may hold steps of the part before."""
    part, step, values = 0, -1, {}
    for line in lines:
        begins = line.get("kind") == "start"
        if not begins and (line.get("kind") not in SENT or not isinstance(line.get("step"), int)):
            continue
        if (begins or line["step"] != step) and values:
            yield part, step, values
            values = {}
        if begins:
            part += 1
            continue
        step = line["step"]
        values.update({name: _number(value) for name, value in line.items()
                       if name not in LEFT_OUT and isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)})
    if values:
        yield part, step, values


def made_again(lines: Iterator[dict[str, Any]]) -> int:
    """Number of steps that a resume made again."""
    highest, latest, current, again = -1, -1, 0, set()
    for part, step, _ in values_by_step(lines):
        if part != current:
            highest, current = latest, part
        if step <= highest:
            again.add(step)
        latest = max(latest, step)
    return len(again)


def follow(run: Run, tracker: Tracker, once: bool = False, wait: Callable[[], None] = lambda: time.sleep(5)) -> int:
    """Sends the lines that the tracker lacks, until no process trains in the run. Returns the number of steps sent."""
    sent = 0
    while True:
        running = run.is_running  # before the log is read, so that lines written meanwhile are read in the next round
        steps = list(values_by_step(run.lines()))
        if running:
            steps = steps[:-1]  # more lines of the latest step may come, and a tracker takes a step once
        for part, step, values in steps:
            is_new = step > tracker.last_step if tracker.last_part is None else (part, step) > (tracker.last_part, tracker.last_step)
            if is_new:
                tracker.log(part, step, values)
                tracker.last_step = step
                tracker.last_part = None if tracker.last_part is None else part
                sent += 1
        if once or not running:
            tracker.finish(run.state)
            return sent
        wait()


def parse(words: Sequence[str]) -> dict[str, Any]:
    """{"run", "to", "project", "once"}."""
    where, chosen, rest = " ".join(["headrace follow", *words]), {"run": None, "to": None, "project": None, "once": False}, list(words)
    while rest:
        word = rest.pop(0)
        if word == "--once":
            chosen["once"] = True
        elif word in ("--to", "--project"):
            if not rest:
                raise UsageError(f"{word} has no value", where, "write: headrace follow RUN --to wandb")
            chosen[word[2:]] = rest.pop(0)
        elif word.startswith("-") or chosen["run"] is not None:
            raise UsageError(f"headrace follow takes no {word}", where, "write: headrace follow RUN --to wandb [--project NAME] [--once]")
        else:
            chosen["run"] = word
    if chosen["run"] is None:
        raise UsageError("no run is named", where, "write: headrace follow runs/cosmology/first --to wandb")
    if chosen["to"] not in TRACKERS:
        raise UsageError("no tracker is named" if chosen["to"] is None else f"there is no tracker {chosen['to']}", where, f"write --to {' or --to '.join(TRACKERS)}")
    return chosen


def main(words: Sequence[str]) -> int:
    if "--help" in words or "-h" in words:
        print(HELP, end="")
        return 0
    chosen = parse(words)
    run = Run(Path(chosen["run"]))
    tracker = TRACKERS[chosen["to"]](run, identity_of(run), chosen["project"] or run.recipe or "millrace")
    try:
        sent = follow(run, tracker, chosen["once"])
        again = made_again(run.lines()) if tracker.last_part is None else 0
        print(f"{sent} steps sent to {chosen['to']}" + (f". A resume made {again} steps again; {chosen['to']} takes no step twice and keeps their first values" if again else ""))
    except KeyboardInterrupt:
        tracker.finish(run.state)  # what was sent is written; the same words go on
        return 128 + signal.SIGINT
    return 0
