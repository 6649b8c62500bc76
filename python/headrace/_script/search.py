"""Searches for the values with which a script's steps take the least time. Starts no processes itself: `run` makes a trial."""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any, Callable

WORTH = 0.03   # the least gain for which a value is kept
CLEAR = 0.20   # a gain that needs no second trial
WAITS = 0.03   # share of waiting for data from which numbers of readers are tried
COMPUTES = 0.30
MOST_WORKERS = 32
LEAST_STEPS = 25
ROUNDS = 2     # the most rounds of the comparison at the end


@dataclass(frozen=True)
class Setting:
    """The settings of a trial; None or False: as the script has it."""

    workers: int | None = None
    prefetch: int | None = None
    pinned: bool | None = None
    threads: int | None = None
    environment: bool = False  # the environment of `headrace run`

    def loader(self) -> dict[str, Any]:
        """Arguments for DataLoader."""
        found: dict[str, Any] = {}
        if self.workers is not None:
            found["num_workers"] = self.workers
            if self.workers:
                found["persistent_workers"] = True
        if self.prefetch is not None:
            found["prefetch_factor"] = self.prefetch
        if self.pinned is not None:
            found["pin_memory"] = self.pinned
        return found

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in self.loader().items() if name != "persistent_workers"]
        words += [f"{self.threads} thread{'s' * (self.threads != 1)}"] if self.threads else []
        return ", ".join(words + ["headrace run"] * self.environment) or "as it is"


@dataclass
class Measured:
    """The measurements of a trial. `failure`: why it failed; all other members are then empty."""

    step_ms: float = 0.0
    waits: float = 0.0     # share of the time in which steps waited for data
    computes: float = 0.0  # in forward, backward and optimizer
    failure: str = ""


@dataclass
class Script:
    """Facts that the first trial finds about the unchanged script."""

    workers: int | None = None  # None: it has no DataLoader
    prefetch: int = 2
    threads: int = 1
    on_gpu: bool = False
    has_environment: bool = False
    advised_workers: int | None = None  # suggested by the doctor
    advised_threads: int | None = None


@dataclass
class Found:
    best: Setting
    base_ms: list[float]
    best_ms: list[float]
    trials: list[tuple[Setting, Measured]] = field(default_factory=list)

    def speedup(self) -> float:
        return mean(self.base_ms) / mean(self.best_ms) if self.best_ms else 1.0

    def span(self) -> tuple[float, float]:
        ratios = [base / best for base, best in zip(self.base_ms, self.best_ms)]
        return (min(ratios), max(ratios)) if ratios else (1.0, 1.0)


Runner = Callable[[Setting, int, "float | None"], Measured]


class Search:
    """`run(setting, steps, give_up_ms)` makes a trial. `base`: the trial of the unchanged script, with `short` steps."""

    def __init__(self, script: Script, base: Measured, steps: int, cores: int, run: Runner, has_time: Callable[[], bool] = lambda: True):
        self.script, self.steps, self.cores, self.run, self.has_time = script, steps, cores, run, has_time
        self.short = short_of(steps)
        self.best, self.now = Setting(), base
        self.trials: list[tuple[Setting, Measured]] = []

    def find(self) -> Found:
        """Tries the kinds of values in this order: readers, environment, threads, batches ahead, pinned memory."""
        self._workers()
        if not self.script.on_gpu and not self.script.has_environment and self.now.computes >= COMPUTES:
            self._try(replace(self.best, environment=True))
        self._threads()
        if self.now.waits >= WAITS and (self.best.workers or self.script.workers or 0) > 0:
            self._try(replace(self.best, prefetch=2 * self.script.prefetch))
        if self.script.on_gpu and self.script.workers is not None:
            self._try(replace(self.best, pinned=True))
        found = Found(self.best, [], [], self.trials)
        if self.best != Setting():
            self._compare(found)
        return found

    # -- kinds ---------------------------------------------------------------------------------------------------------------

    def _workers(self) -> None:
        now = self.script.workers
        if now is None or (self.now.waits < WAITS and now <= self.cores and self.script.advised_workers is None):
            return
        first = self.script.advised_workers if self.script.advised_workers is not None else (2 * now or 1) if now <= self.cores else self.cores
        tried = {now}
        self._try_workers(first, tried)
        for step in (lambda count: 2 * count, lambda count: count // 2):
            while self._try_workers(step(self._count()), tried):
                pass

    def _count(self) -> int:
        return self.best.workers if self.best.workers is not None else self.script.workers or 0

    def _try_workers(self, count: int, tried: set[int]) -> bool:
        if count in tried or count > MOST_WORKERS:
            return False
        tried.add(count)
        return self._try(replace(self.best, workers=count))

    def _threads(self) -> None:
        if self.now.computes < COMPUTES:
            return
        tried = {self.script.threads}
        for threads in (self.script.advised_threads, self.cores, max(1, self.cores // 2)):
            if threads and threads not in tried:
                tried.add(threads)
                if self._try(replace(self.best, threads=threads)):
                    return

    # -- trials --------------------------------------------------------------------------------------------------------------

    def _measure(self, setting: Setting, steps: int, give_up_ms: float | None = None) -> Measured:
        measured = self.run(setting, steps, give_up_ms)
        self.trials.append((setting, measured))
        return measured

    def _try(self, setting: Setting) -> bool:
        """Keeps `setting` if its steps are clearly shorter. If they are only a little shorter, first makes a second trial of both."""
        if not self.has_time():
            return False
        first = self._measure(setting, self.short, 1.1 * self.now.step_ms)
        if first.failure or first.step_ms > (1 - WORTH) * self.now.step_ms:
            return False
        if first.step_ms > (1 - CLEAR) * self.now.step_ms:
            old, new = self._measure(self.best, self.short), self._measure(setting, self.short)
            if old.failure or new.failure or first.step_ms + new.step_ms > (1 - WORTH) * (self.now.step_ms + old.step_ms):
                return False
        self.best, self.now = setting, first
        return True

    def _compare(self, found: Found) -> None:
        """Compares the best setting and the unchanged script in turns."""
        for _ in range(ROUNDS):
            best, base = self._measure(self.best, self.steps), self._measure(Setting(), self.steps)
            if not best.failure and not base.failure:
                found.best_ms.append(best.step_ms)
                found.base_ms.append(base.step_ms)


def short_of(steps: int) -> int:
    """Number of steps of a trial in the search, if the comparison at the end has `steps`."""
    return max(LEAST_STEPS, steps // 4)
