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

  --to NAME        wandb or mlflow; its package must be installed
  --project NAME   the tracker's project or experiment (default: the recipe's name)
  --once           send what is there and leave; of a run that is training without its latest step, of which more may come
"""
SENT = ("step", "epoch", "validation", "memory_use")  # kinds of lines
LEFT_OUT = ("kind", "time", "step")


class Tracker(Protocol):
    """The destination of lines. `last_step`: the latest step that the tracker has, -1 for a new run."""

    last_step: int

    def log(self, step: int, values: dict[str, float]) -> None: ...

    def finish(self, state: str) -> None: ...


class _Wandb:
    def __init__(self, run: Run, identity: str, project: str):
        try:
            import wandb
        except ImportError as error:
            raise PackageError(f"wandb can't be imported: {error}", "headrace follow --to wandb", "pip install wandb, then wandb login") from error
        self._run = wandb.init(id=identity, resume="allow", project=project, name=str(run.folder), config=run.config)
        self.last_step = int(self._run.step) - 1  # wandb counts the next step

    def log(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def finish(self, state: str) -> None:
        self._run.finish(exit_code=1 if state in ("failed", "died") else 0)


class _Mlflow:
    TAG = "headrace.run"

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
            self.last_step = int(known[0].data.tags.get("headrace.step", -1))
            self._client.update_run(self._id, status="RUNNING")
        else:
            self._id = self._client.create_run(number, tags={self.TAG: identity, "mlflow.runName": str(run.folder)}).info.run_id
            self.last_step = -1
            for section, keys in run.config.items():
                for key, value in keys.items() if isinstance(keys, dict) else ():
                    self._client.log_param(self._id, f"{section}.{key}", value)

    def log(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self._id, name, value, step=step)
        self._client.set_tag(self._id, "headrace.step", step)

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


def values_by_step(lines: Iterator[dict[str, Any]]) -> Iterator[tuple[int, dict[str, float]]]:
    """Joins the numbers of neighbouring lines of the same step, because trackers accept a step only once."""
    step, values = -1, {}
    for line in lines:
        if line.get("kind") not in SENT or not isinstance(line.get("step"), int):
            continue
        if line["step"] != step and values:
            yield step, values
            values = {}
        step = line["step"]
        values.update({name: _number(value) for name, value in line.items()
                       if name not in LEFT_OUT and isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)})
    if values:
        yield step, values


def follow(run: Run, tracker: Tracker, once: bool = False, wait: Callable[[], None] = lambda: time.sleep(5)) -> int:
    """Sends the lines that the tracker lacks, until no process trains in the run. Returns the number of steps sent."""
    sent = 0
    while True:
        running = run.is_running  # before the log is read, so that lines written meanwhile are read in the next round
        steps = list(values_by_step(run.lines()))
        if running:
            steps = steps[:-1]  # more lines of the latest step may come, and a tracker takes a step once
        for step, values in steps:
            if step > tracker.last_step:
                tracker.log(step, values)
                tracker.last_step = step
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
        print(f"{follow(run, tracker, chosen['once'])} steps sent to {chosen['to']}")
    except KeyboardInterrupt:
        tracker.finish(run.state)  # what was sent is written; the same words go on
        return 128 + signal.SIGINT
    return 0
