"""Watches the training loop of this process: one object for all processes of a script, started again in a fork.

It begins to look, write and sample at the first backward pass, so a process that trains nothing has only the borders.
"""
from __future__ import annotations

import atexit
import json
import math
import multiprocessing
import os
import resource
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from headrace._script import borders, evidence
from headrace._script.accounts import Accounts
from headrace._script.census import Census
from headrace._script.kept import Kept
from headrace._script.loaders import Loader, Page, Reading, facts_of
from headrace._script.memory import Memory

MOST_LOADERS = 256
LOSS_EVERY = 50_000_000          # ns between two losses that are read; doubled when there are MOST_ROWS of them
LOSS_EVERY_GPU = 1_000_000_000
MOST_ROWS = 1024
MOST_PLACES = 16                 # the most places of backward passes whose losses are told apart
current: "Watcher | None" = None  # the watcher of this process


def _nobody() -> None:
    return None


def _said(error: Exception) -> str:
    """An error in one line, with the place that raised it."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f" (line {frame.tb_lineno} of {os.path.basename(frame.tb_frame.f_code.co_filename)})" if frame else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"


class Occasions:
    """Work that a loop does from time to time, such as a save: how often, how long, and where."""

    def __init__(self) -> None:
        self.count = self.ns = 0
        self.step = -1
        self.lines: dict[tuple[str, int], int] = {}

    def add(self, ns: int, frame: Any, step: int) -> None:
        """Adds an occasion. Several within a step count as one, because a checkpoint has several files."""
        self.ns += ns
        if step == self.step:
            return
        self.step = step
        self.count += 1
        if self.count <= 64 or self.count % 64 == 0:
            line = borders.users_line(frame)
            if line is not None:
                self.lines[line] = self.lines.get(line, 0) + ns


class Watcher:
    """`folder`: evidence is written here, a file for each process that trains."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.on = True
        self.failed: str | None = None
        self.lost: set[str] = set()  # names of looks that have failed
        self.borders = borders.Borders(self)
        self._lines: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()
        self._lines_by_dataset: dict[int, tuple[Any, tuple[str, int]]] = {}  # each with a reference to its dataset
        self._begin()

    def _begin(self) -> None:
        """Sets everything that belongs to this process alone."""
        self.process = os.getpid()
        self.thread = threading.get_ident()  # another thread may get this number after this thread has ended
        self.native_id = threading.get_native_id()
        self.thread_taken = False
        self.busy = ""           # the original function of a border that is running now
        self.accounts = Accounts()
        self.lead: Any = _nobody  # while steps are passed over: a reference to the iterator or the optimizer that counts them
        self.lead_record: Loader | None = None
        self.left = self.chosen = self.waited = 0
        self.look_due = 0
        self.loss_every = LOSS_EVERY
        self.rows: list[list] = []  # [step, ns since the start, loss, ns in steps, ns by phase, place of the backward pass]
        self.places: dict[tuple, int] = {}  # the user's lines that led to a backward pass -> its number
        self.scaled: Any = None  # of GradScaler.scale: references to the loss and to its product, the scaler
        self.occasions = {"snapshot": Occasions(), "log": Occasions(), "validate": Occasions()}
        self.kept = Kept()
        self.memory = Memory()
        self.census = Census()
        self.not_finite = 0      # losses that were read
        self.loaders: list[Loader] = []
        self._records: "weakref.WeakKeyDictionary[Any, Loader]" = weakref.WeakKeyDictionary()
        self.page: Page | None = None
        self.own_reading: Reading | None = None  # counts of this process, if it is a worker
        self.looks: Any = None
        self.sampler: Any = None
        self.machine: dict[str, Any] = {}      # the machine at the start, and the lines of the sampler since
        self.machine_lines: list[dict] = []
        self.dialect = ""
        self.on_gpu = False
        self.pending_loss: Any = None
        self.usage_at = None     # rusage a few steps after the start
        self.looking_ns = 0
        self.ended_ns: int | None = None
        self.finished = False

    def after_fork(self) -> None:
        if self.on:
            page = self.page
            if self.busy == "passing":
                self.borders.come_back()
            self._begin()
            self.page = page  # a worker counts in its parent's page

    def fail(self, error: Exception) -> None:
        """Ends the watching, with one line."""
        if not self.on:
            return
        self._turn_off()
        try:
            self.failed = _said(error)
            print(f"headrace doctor  stopped watching, the script runs on: {self.failed}", file=sys.stderr, flush=True)
            self._write({"failed": self.failed})
        except Exception:
            pass

    def attempt(self, part: str, call: Any, *arguments: Any) -> Any:
        """The result of `call`. If it fails, prints one line, never calls it again, and returns None; the watching continues
        without it."""
        if part in self.lost:
            return None
        try:
            return call(*arguments)
        except Exception as error:
            self.lost.add(part)
            try:
                print(f"headrace doctor  goes on without {part}: {_said(error)}", file=sys.stderr, flush=True)
            except Exception:
                pass
            return None

    def _turn_off(self) -> None:
        global current
        self.on, self.busy, self.lead = False, "", _nobody
        if current is self:
            current = None
        try:
            self.borders.remove()
            if self.census.mode is not None:
                self.census.leave()
        except Exception:
            pass  # replacements that stay pass everything on

    def end(self) -> dict | None:
        """Ends the watching. Returns the evidence; None if there was no backward pass, or if watching failed."""
        found = None
        if self.on and self.looks is not None:
            try:
                found = self._last_evidence()
            except Exception as error:
                self.fail(error)
        self._turn_off()
        return found

    def imported(self, name: str, module: Any) -> None:
        if not self.on:
            return
        try:
            if name == "torch":
                (self.folder / "torch").touch()
            self.borders.module(name, module)
        except Exception as error:
            self.fail(error)

    # -- loaders -----------------------------------------------------------------------------------------------------------------

    def loader_made(self, loader: Any, frame: Any) -> None:
        line = borders.users_line(frame)
        if line is None:
            return
        while frame is not None and (frame.f_code.co_filename.startswith(borders.HERE) or frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is loader):
            frame = frame.f_back
        # Lightning and accelerate make new loaders from the user's loaders. The latest line for the same dataset is the user's.
        dataset, known = self._lines_by_dataset.get(id(loader.dataset), (None, line))
        if frame is not None and borders.is_users(frame.f_code.co_filename):
            known = line
        elif dataset is not None and dataset() is not loader.dataset:
            known = line  # another dataset is now at that address
        try:
            self._lines_by_dataset[id(loader.dataset)] = weakref.ref(loader.dataset), known
        except TypeError:  # a list
            self._lines_by_dataset[id(loader.dataset)] = None, known
        self._lines[loader] = known

    def record_of(self, iterator: Any, loader: Any = None) -> Loader:
        known = iterator.__dict__.get("_headrace")
        if known is not None and known.watcher is not self:
            known = None  # of an earlier watch
        if known is not None and loader is None:
            return known
        record = known or (self._records.get(loader) if loader is not None else None)
        if record is None:
            record = Loader(facts_of(loader) if loader is not None else {"workers": getattr(iterator, "_num_workers", 0)}, self)
            if loader is not None:
                from torch.utils.data import IterableDataset
                record.line, record.iterable = self._lines.get(loader), isinstance(loader.dataset, IterableDataset)
            self._add_loader(record)
            if loader is not None:
                self._records[loader] = record
        iterator.__dict__["_headrace"] = record
        fetcher = iterator.__dict__.get("_dataset_fetcher")
        if fetcher is not None:
            fetcher.__dict__["_headrace"] = record.reading
        elif self.page is not None:
            started = {worker.pid for worker in getattr(iterator, "_workers", ())}
            if started - record.workers:
                record.collect(self.page)
                record.workers = started
        return record

    def _add_loader(self, record: Loader) -> None:
        if len(self.loaders) >= MOST_LOADERS:  # made again in each pass: the earlier ones are joined
            used = list(self._records.values())
            gone = [each for each in self.loaders if each.trained and each not in used]
            for each in gone[1:]:
                if each.is_like(gone[0]):
                    each.collect(self.page)
                    gone[0].add(each)
                    self.loaders.remove(each)
        if len(self.loaders) < MOST_LOADERS:
            self.loaders.append(record)

    def loader_ended(self, record: Loader, took: int) -> None:
        record.ended(took)
        if not record.trained and self.accounts.started:
            self.occasions["validate"].add(0, sys._getframe(2), self.accounts.steps)
        if not record.facts.get("persistent"):
            record.collect(self.page)

    def before_workers(self) -> None:
        if self.page is None:
            self.page = Page(self.folder / f"workers-{self.process}")

    def workers_reading(self) -> Reading | None:
        """The sums of this process, if it is a worker; else None."""
        if self.own_reading is None:
            from torch.utils.data import get_worker_info
            if get_worker_info() is None:
                return None
            if self.page is None:
                parent = multiprocessing.parent_process()  # with the start method forkserver, os.getppid() is the server
                self.page = Page(self.folder / f"workers-{parent.pid if parent is not None else os.getppid()}")
            self.own_reading = Reading()
        return self.own_reading

    def batch_read(self, reading: Reading) -> None:
        if reading is not self.own_reading:
            return
        if reading.batches < 3 or reading.batches % 64 == 0:
            import torch
            reading.torch_threads = max(reading.torch_threads, torch.get_num_threads())
            reading.threads = max(reading.threads, len(os.listdir("/proc/self/task")))
        self.page.write(self.process, reading)

    # -- steps that are passed over --------------------------------------------------------------------------------------------

    def pass_over(self, lead: Any) -> None:
        # An iterator that the loop abandons ends its workers at once, so no reference to it is held.
        self.lead, self.lead_record, self.busy = weakref.ref(lead), lead.__dict__.get("_headrace"), "passing"
        self.left = self.chosen = self.accounts.passed
        self.waited = 0
        self.borders.stand_aside(not self.accounts.by_loader)

    def go_on(self, within: bool, end_ns: int | None = None) -> None:
        """Resumes watching, in a step or at the end of one. `end_ns`: time of the call that found no more batches."""
        try:
            record, steps = self.lead_record, self.chosen - self.left
            self.busy, self.lead = "", _nobody
            self.borders.come_back()
            self.accounts.go_on(steps, self.waited, within)
            if record is not None:
                record.batches += steps
                if end_ns is not None:
                    self.loader_ended(record, end_ns)
        except Exception as error:
            self.fail(error)

    def trains(self, iterator: Any) -> bool:
        record = iterator.__dict__.get("_headrace")
        return record is not None and record.trained

    def is_busy(self) -> bool:
        """True if a border is inside another one. Resumes watching."""
        if self.busy == "passing":
            self.go_on(True)
        return bool(self.busy)

    # -- the loop ----------------------------------------------------------------------------------------------------------------

    def take_thread(self) -> bool:
        """Takes the thread of the first backward pass as the loop's thread. When it has ended, takes the thread of the next
        backward pass."""
        if not self.on or (self.thread_taken and os.path.exists(f"/proc/self/task/{self.native_id}")):
            return False
        if not self.thread_taken:
            self.accounts = Accounts(self.accounts.began)
        self.is_busy()  # resumes watching
        self.thread, self.native_id, self.thread_taken = threading.get_ident(), threading.get_native_id(), True
        return True

    def look(self, now: int, tensors: Any) -> None:
        """Called at a backward pass from time to time: reads the loss, and values that change slowly."""
        began = time.perf_counter_ns()
        from torch.cuda import is_current_stream_capturing as is_capturing
        loss = borders.plain_tensor(tensors[0] if type(tensors) in (list, tuple) and tensors else tensors)
        on_gpu = loss is not None and loss.is_cuda
        if self.looks is None:
            self._start_looking(loss.device.index if on_gpu else None)
        self.on_gpu = self.on_gpu or on_gpu
        if on_gpu and is_capturing():  # a CUDA graph would repeat the work done here, and a query of an event ends its capture
            loss = None
        elif self.pending_loss is not None:
            self._take_pending()
        if loss is not None and loss.numel() == 1:
            loss = self._unscaled(loss)
            self.attempt("losses that are kept", self.kept.see, loss, self.accounts.steps, sys._getframe(2))
            place = self._place_of(sys._getframe(2))
            if on_gpu:
                self._send_for(loss, now, place)
            elif loss.device.type == "cpu":
                self._add_row(self.accounts.steps, now, float(loss.detach()), place)
        self.look_due = now + (LOSS_EVERY_GPU if on_gpu else self.loss_every)
        if self.usage_at is None and self.accounts.steps >= 3:
            self.usage_at = (self.accounts.steps, resource.getrusage(resource.RUSAGE_SELF))
        self.looking_ns += time.perf_counter_ns() - began

    def _unscaled(self, loss: Any) -> Any:
        """The loss before a GradScaler multiplied it."""
        if self.scaled is None or self.scaled[1]() is not loss:
            return loss
        original = self.scaled[0]()
        return original if original is not None else loss.detach() / self.scaled[2]._scale

    def _place_of(self, frame: Any) -> int:
        """The number of a backward pass's place. Two networks of a script may each have a loss, and the losses must not be mixed."""
        lines = []
        while frame is not None:
            if borders.is_users(frame.f_code.co_filename):
                lines.append(borders.line_of(frame))
            frame = frame.f_back
        if len(self.places) < MOST_PLACES:
            return self.places.setdefault(tuple(lines), len(self.places))
        return self.places.get(tuple(lines), MOST_PLACES - 1)

    def _add_row(self, step: int, now: int, loss: float, place: int) -> None:
        if not math.isfinite(loss):
            self.not_finite += 1
        self.rows.append([step, now - self.accounts.began, loss if math.isfinite(loss) else None, self.accounts.step_ns, list(self.accounts.ns),
                          place])
        if len(self.rows) >= MOST_ROWS:
            del self.rows[1::2]
            self.loss_every *= 2

    def _send_for(self, loss: Any, now: int, place: int) -> None:
        """Copies a loss to the host without waiting for the GPU; a later look reads it."""
        import torch
        host = torch.empty((), dtype=torch.float32, pin_memory=True)
        host.copy_(loss.detach().reshape(()).float(), non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(loss.device))  # the stream of the copy, because the loss may be on another GPU than the current one
        self.pending_loss = (host, event, self.accounts.steps, now, place)

    def _take_pending(self) -> None:
        host, event, step, now, place = self.pending_loss
        if event.query():
            self._add_row(step, now, float(host), place)
            self.pending_loss = None

    def _start_looking(self, gpu: int | None) -> None:
        from headrace._script.looks import Looks
        self.thread_taken = True
        (self.folder / "trains").touch()
        self.dialect = evidence.dialect_of(sys._getframe(3))
        self._start_sampler(gpu)
        self.looks = Looks(self)
        self.looks.start()
        if multiprocessing.parent_process() is not None:  # such a process does not run atexit where it was forked
            from multiprocessing.util import Finalize
            Finalize(None, self.finish, exitpriority=0)
        atexit.register(self.finish)

    def _start_sampler(self, gpu: int | None) -> None:
        """Starts the library's sampler, a separate thread that measures the machine. Without it the evidence has fewer values.
        `gpu`: the GPU of the loss, if known."""
        import torch
        from headrace import _library
        try:
            library = _library.library()
            self.machine = _library.text(library.machine())
            if type(gpu) is not int:
                gpu = torch.cuda.current_device() if torch.cuda.is_initialized() else -1
            self.sampler = library.sampler_start(gpu)
        except Exception:
            self.sampler = None

    def sample(self, last: bool = False) -> dict[str, Any]:
        """The sampler's values for the evidence. Only one thread at a time may call it."""
        if self.sampler is None:
            return {}
        from headrace import _library
        library = _library.library()
        said = _library.text((library.sampler_stop if last else library.sampler_read)(self.sampler))
        if last:
            self.sampler = None
        if said.get("machine"):
            if len(self.machine_lines) >= MOST_ROWS:
                del self.machine_lines[1::2]
            self.machine_lines.append({"kind": "machine", "time": self.accounts.read()[0], "step": self.accounts.steps, **said["machine"]})
        return said.get("evidence") or {}

    # -- the evidence --------------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        self._write(evidence.of(self, self.sample()))

    def _last_evidence(self) -> dict:
        if threading.get_ident() == self.thread:
            self.is_busy()  # resumes watching
        self.ended_ns = time.perf_counter_ns()
        self.looks.stop()
        return evidence.of(self, self.sample(True))

    def _write(self, value: dict) -> None:
        path = self.folder / f"process-{self.process}.json"
        part = path.with_suffix(f".part{threading.get_ident()}")
        part.write_text(json.dumps(value))
        os.replace(part, path)

    def finish(self) -> None:
        """Called at the end of the process, or of the watching."""
        if not self.on or self.finished or os.getpid() != self.process:
            return
        self.finished = True  # a spawned process calls this twice, and the sampler is gone the second time
        try:
            if self.looks is not None:
                self._write(self._last_evidence())
        except Exception as error:
            self.fail(error)


def watch(folder: Path) -> Watcher:
    """Starts watching this process and those that it forks."""
    global current
    watcher = current = Watcher(folder)
    (folder / "hook").touch()  # shows `headrace doctor` how far a script came that has not trained
    os.register_at_fork(after_in_child=watcher.after_fork)
    finder = borders.Finder(watcher.imported)
    for name in borders.MODULES:  # modules that exist already, if watching begins late
        if name in sys.modules:
            finder.waiting.discard(name)
            watcher.imported(name, sys.modules[name])
    sys.meta_path.insert(0, finder)
    watcher.borders._undo.append(lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None)
    return watcher
