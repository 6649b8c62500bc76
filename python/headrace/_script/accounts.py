"""Measures where the time of a loop's thread goes. An interval has the name of the border that ends it."""
from __future__ import annotations

import time
from typing import Any

# The accounts of Millrace, in its order. A script has no trials, and its reduction is part of backward.
PHASES = ("startup", "trials", "data_wait", "copy", "prepare", "forward", "backward", "reduction", "optimizer", "metrics", "log", "snapshot",
          "validate", "profile", "rest")
STARTUP, _, DATA_WAIT, _, PREPARE, FORWARD, BACKWARD, _, OPTIMIZER, _, LOG, SNAPSHOT, VALIDATE, PROFILE, REST = range(len(PHASES))
_now = time.perf_counter_ns
MOST_STEPS = 2048  # step times that are kept
PREFETCHED = 2     # batches that a loop may have taken before it trains on the first of them
SUCCEEDS = 32      # if an optimizer makes this many updates within an apparent step, its updates are the steps
# Watching a step takes about 15 us. If steps are short, some are passed over, so that watching stays below 0.4 % of the time. For
# those steps only the wait for data is measured; the rest of their time is divided like that of the watched steps.
STEP_NS = 3_750_000
MOST_PASSED = 31
CPU_EVERY = 50_000_000  # ns between two steps whose CPU time is measured; while others wait for the core, the question itself gives the core away
LOST = 4  # as a multiple of the usual time: a longer step lost its core, so it says nothing about steps that are passed over
_SHARED = (PREPARE, FORWARD, BACKWARD, OPTIMIZER, REST)


class Steps:
    """An even selection of step times, in ms: at first all steps, then every second, every fourth..."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []
        self.stride = self.left = 1

    def add(self, milliseconds: float) -> None:
        self.left -= 1
        if self.left:
            return
        self.milliseconds.append(milliseconds)
        if len(self.milliseconds) >= MOST_STEPS:
            del self.milliseconds[::2]
            self.stride *= 2
        self.left = self.stride

    def quantile(self, fraction: float) -> float:
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] if ordered else 0.0


class Accounts:
    """Nanoseconds by phase, since `began`. Only the loop's thread uses it; other threads may read.

    A loader's batches belong to the training if a backward pass follows them, else to a validation. That is known only later. Until
    a loader is used for training, its time waits in its record and counts for the validation. Startup lasts until the first step is
    done, because that step compiles, opens and allocates what later steps use.
    """

    def __init__(self, began: int | None = None):
        self.began = self.last = _now() if began is None else began
        self.ns = [0] * len(PHASES)
        self.steps = 0           # steps done since startup
        self.step_ns = 0         # time of these steps, without validations and saves between them
        self.times = Steps()
        self.by_loader = False   # true: steps end when the next batch is taken; false: after the first optimizer
        self.lead: int | None = None
        self.updates: dict[int, int] = {}  # updates of each optimizer since the latest step ended
        self.started = False     # whether startup is over
        self.since = False       # whether a backward pass followed the latest batch
        self.current: Any = None  # the record of the loader that gave the latest batch
        self.judging = False     # whether that batch was taken without gradients
        self.taken: list[Any] = []  # records that gave batches since the last backward pass
        self.step_began = self.step_waited = 0
        self.step_outside = 0
        self.counted = True      # the step under way counts when it ends
        self.usual_ns = 0.0      # of a quick step
        self.passed = 0          # steps to be passed over now
        self.turn = 0
        self.at_step: list[int] | None = None  # ns at the beginning of a short step
        self.shares = [0] * len(_SHARED)       # ns of the short steps that were watched
        self.cpu_began = -1
        self.cpu_from = self.cpu_due = 0
        self.cpu_ns = self.cpu_wall = 0  # CPU time of the process in watched steps, and the wall time of the same

    # -- intervals -----------------------------------------------------------------------------------------------------------

    def passing(self) -> int:
        """Ends an interval at a border that says nothing about the interval, such as a save. Returns the time."""
        now = _now()
        passed, self.last = now - self.last, now
        if self.since or self.current is None:
            self.ns[REST] += passed
        elif self.current.trained and not self.judging:
            self.ns[FORWARD] += passed
        else:
            self.ns[VALIDATE] += passed
            self.current.between_ns += passed
        return now

    def mark(self, phase: int) -> int:
        now = _now()
        self.ns[phase] += now - self.last
        self.last = now
        return now

    def before_batch(self) -> int:
        """Called when a loader is asked for its iterator or its next batch."""
        now = _now()
        passed, self.last, self.passed = now - self.last, now, 0
        if self.since:
            self.ns[REST] += passed
            self.since = False
            if self.by_loader:
                self.end_step(now)
            self.current = None
        elif self.current is None or self.current.trained and not self.judging:
            # If a later batch has a backward pass that also covers this batch, this batch is trained.
            self.ns[FORWARD if self.current is not None and self.current.taken else REST] += passed
        else:
            self.ns[VALIDATE] += passed
            self.current.between_ns += passed
        return now

    def after_batch(self, record: Any, with_grad: bool, ended: bool) -> int:
        now = _now()
        passed, self.last = now - self.last, now
        if record.trained and with_grad:
            self.ns[DATA_WAIT] += passed
        else:
            self.ns[VALIDATE] += passed
            record.wait_ns += passed
        self.current, self.judging = record, not with_grad and not ended
        if ended:
            if not record.trained:  # it was a validation
                record.judged_ns += record.wait_ns
                record.wait_ns = record.between_ns = 0
            record.taken = 0
            if record in self.taken:
                self.taken.remove(record)
        elif with_grad:
            record.taken += 1
            if record.taken == 1:
                self.taken.append(record)
            if self.started:
                self._watch_cpu(now)
        return now

    def iterator_made(self, record: Any, with_grad: bool) -> int:
        """Called when iter() has returned. Its time counts for the loader's next batch."""
        now = _now()
        passed, self.last = now - self.last, now
        if record.trained and with_grad:
            self.ns[DATA_WAIT] += passed
        else:
            self.ns[VALIDATE] += passed
            record.wait_ns += passed
        return now

    def before_backward(self) -> int:
        now = _now()
        self.ns[FORWARD] += now - self.last
        self.last = now
        if self.taken:
            self._train_taken()
        self.since = True
        return now

    def _train_taken(self) -> None:
        for record in self.taken:
            # A batch of the training follows a validation that was cut short.
            if not record.trained and (record.taken <= PREFETCHED or record is self.current):
                record.trained = self.by_loader = True
                self.ns[VALIDATE] -= record.wait_ns + record.between_ns
                self.ns[DATA_WAIT] += record.wait_ns
                self.ns[REST] += record.between_ns
            elif not record.trained:
                record.judged_ns += record.wait_ns
            record.wait_ns = record.between_ns = record.taken = 0
        self.taken.clear()

    def before_optimizer(self) -> int:
        return self.mark(REST if self.since or self.current is None else PREPARE)

    def after_optimizer(self, optimizer: int) -> int:
        now = _now()
        self.ns[OPTIMIZER] += now - self.last
        self.last = now
        if not self.by_loader and self.lead is None:
            self.lead = optimizer
        if not self.by_loader and optimizer == self.lead or self.succeeds(optimizer):
            self.end_step(now)
            self._watch_cpu(now)
        return now

    def succeeds(self, optimizer: int) -> bool:
        """Counts an update that ends no step. Returns whether this optimizer's updates end the steps from now on, because the loop
        has made another optimizer (as for each fold) or trains on batches that it keeps."""
        self.updates[optimizer] = count = self.updates.get(optimizer, 0) + 1
        if count < SUCCEEDS:
            return False
        self.by_loader, self.lead, self.counted = False, optimizer, False
        return True

    def _watch_cpu(self, now: int) -> None:
        """Begins to measure the CPU time of a step."""
        if now >= self.cpu_due:
            self.cpu_began, self.cpu_from = time.process_time_ns(), now

    # -- steps ---------------------------------------------------------------------------------------------------------------

    def _outside(self) -> int:
        return self.ns[VALIDATE] + self.ns[SNAPSHOT] + self.ns[PROFILE]

    def end_step(self, now: int) -> None:
        if not self.started:
            self.started = True
            self.ns = [0] * len(PHASES)
            self.ns[STARTUP] = now - self.began
        elif self.counted:
            self.steps += 1
            took = now - self.step_began - (self._outside() - self.step_outside)
            self.step_ns += took
            self.times.add(took / 1e6)
            if self.by_loader and self.current is not None:
                self.current.step_done(took - (self.ns[DATA_WAIT] - self.step_waited))
            if self.cpu_began >= 0:
                self.cpu_ns += time.process_time_ns() - self.cpu_began
                self.cpu_wall += now - self.cpu_from
                self.cpu_due = now + CPU_EVERY
            self._choose(took)
        self.counted = True
        self.updates.clear()
        self.cpu_began = -1
        self.step_began, self.step_outside, self.step_waited = now, self._outside(), self.ns[DATA_WAIT]

    def _choose(self, took: int) -> None:
        """Chooses how many of the next steps to pass over."""
        if self.steps <= 8:
            self.usual_ns = min(self.usual_ns or took, took)
        else:  # follows the quicker steps, because steps that lost their core must not make others seem long
            self.usual_ns *= 1.01 if took > self.usual_ns else 0.95
        if self.usual_ns >= STEP_NS:
            return
        if self.at_step is not None and took < LOST * self.usual_ns:
            for place, phase in enumerate(_SHARED):
                self.shares[place] += self.ns[phase] - self.at_step[phase]
            if self.steps >= 32:
                # The number changes, so that it does not coincide with other cycles, such as the workers' turns.
                self.turn = (self.turn + 1) % 4
                self.passed = min(MOST_PASSED, int(STEP_NS / self.usual_ns)) + self.turn
        self.at_step = list(self.ns)

    def go_on(self, steps: int, wait_ns: int, within: bool) -> None:
        """Resumes watching after steps that were passed over, of which `wait_ns` was waiting for data. `within`: the last of these
        steps has not ended yet."""
        now = _now()
        left, self.last = now - self.last - wait_ns, now
        whole = sum(self.shares) or 1
        given = [left * share // whole for share in self.shares]
        given[1] += left - sum(given)
        for phase, ns in zip(_SHARED, given):
            self.ns[phase] += ns
        self.ns[DATA_WAIT] += wait_ns
        self.steps += steps
        self.step_ns += left + wait_ns
        self.passed, self.since, self.current, self.counted = 0, within, None, not within
        self.at_step = None if within else list(self.ns)
        self.step_began, self.step_outside, self.step_waited = now, self._outside(), self.ns[DATA_WAIT]
        self.cpu_began = -1
        if not within:
            self._watch_cpu(now)

    # -- what came out ---------------------------------------------------------------------------------------------------------

    def read(self, now: int | None = None) -> tuple[float, dict[str, float]]:
        """(wall seconds, seconds by phase); the phases add up to the wall time. An interval that has not ended yet counts as rest,
        or as startup."""
        now = _now() if now is None else now
        ns = list(self.ns)
        if not self.started:
            return (now - self.began) / 1e9, {"startup": (now - self.began) / 1e9}
        ns[REST] += now - self.last
        return (now - self.began) / 1e9, {name: value / 1e9 for name, value in zip(PHASES, ns) if value}
