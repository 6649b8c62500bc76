"""Runs inside a script that `headrace tune` has started: changes arguments of its DataLoader, ends it after some steps, and
protects other files.

HEADRACE_TRIAL holds the trial as JSON: {"result": the file to write, "steps", "warm": steps before the first that counts, "loader":
{argument: value}, "where": the line of the DataLoader that gets them ("" = every DataLoader), "threads": number of torch's threads
or null, "give_up_ms": mean time of a step from which on the trial is lost, or null, "writable": folders, the first of which is the
copy in which the script runs, "everywhere": true if other folders are writable too, "theirs": the user's working folder. No file of
"theirs" is writable; with "everywhere" only its files that are linked into the copy are protected}.
"""
from __future__ import annotations

import atexit
import functools
import inspect
import json
import os
import sys
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any, Callable

from headrace._script import accounts, borders
from headrace._script.evidence import place

ONLY_WITH_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "worker_init_fn", "timeout")
EARLY = 0.25  # share of the steps after which a trial may be given up
_CHANGES = {"os.remove": 1, "os.rename": 2, "os.rmdir": 1, "os.mkdir": 1, "os.truncate": 1, "os.link": 2, "os.symlink": 2, "shutil.rmtree": 1, "shutil.move": 2}
_ANEW = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def with_workers_right(arguments: dict[str, Any]) -> dict[str, Any]:
    """Removes arguments about workers if there are no workers, because DataLoader refuses them then."""
    if arguments.get("num_workers", 0):
        return arguments
    return {name: value for name, value in arguments.items() if name not in ONLY_WITH_WORKERS}


def audited(write: Any, name: str, at: int = 1, changes: Callable[..., bool] = lambda *_, **__: True) -> Any:
    """Wraps a function that opens its file outside of Python, where no audit sees it. The file is argument `at`, called `name`.
    `changes` gets the same arguments, and says whether the file is opened for writing."""
    @functools.wraps(write)
    def written(*arguments: Any, **named: Any) -> Any:
        if changes(*arguments, **named):
            sys.audit("open", arguments[at] if len(arguments) > at else named.get(name), "w", _ANEW)
        return write(*arguments, **named)
    return written


def database_file(named: Any) -> tuple[str, ...]:
    """The file that sqlite3.connect(named) may write to; () if there is none. SQLite opens a file that is not writable for reading."""
    if not isinstance(named, (str, bytes, os.PathLike)):
        return ()
    path = os.fsdecode(named)
    if path.startswith("file:"):
        parts = urllib.parse.urlsplit(path)
        asked = urllib.parse.parse_qs(parts.query)
        if asked.get("mode") in (["ro"], ["memory"]) or asked.get("immutable") == ["1"]:
            return ()
        path = urllib.parse.unquote(parts.path)
    if path in ("", ":memory:") or (os.path.exists(path) and not os.access(path, os.W_OK)):
        return ()
    return (path,)


class Guard:
    """Ends the process before it changes a file, unless the file is in `folders` or is a temporary or hidden file of the user's. In
    `theirs` all files are protected. With `everywhere`, protects only files of `theirs` that are linked into the copy (the first of
    `folders`), because a script that writes there means the copy."""

    def __init__(self, folders: list[str], theirs: str, refuse: Any, everywhere: bool = False):
        def inside(folder: str) -> str:
            return os.path.realpath(folder) + os.sep
        self.refuse, self.everywhere = refuse, everywhere
        self.copy = (inside(folders[0]), os.path.abspath(folders[0]) + os.sep)
        self.home, self.theirs = inside(os.path.expanduser("~")), inside(theirs)
        self.folders = tuple(map(inside, folders))
        self.others = tuple(map(inside, (tempfile.gettempdir(), "/dev", "/proc", "/sys")))

    def is_allowed(self, path: Any) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return True
        path = os.path.realpath(os.fsdecode(path)) + os.sep
        if path.startswith(self.folders):
            return True
        return not path.startswith(self.theirs) and (path.startswith(self.others) or path.startswith(self.home + "."))

    def is_linked(self, path: Any, follows: bool = True) -> bool:
        """Whether this is a file of the user's that only a link has in the copy. `follows`: a link itself stands for what it names."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        named = os.path.abspath(os.fsdecode(path))
        real = os.path.realpath(named) if follows else os.path.join(os.path.realpath(os.path.dirname(named)), os.path.basename(named))
        return named.startswith(self.copy) and not real.startswith(self.folders) and (real + os.sep).startswith(self.theirs)

    def __call__(self, event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            paths = (path,) if isinstance(flags, int) and flags & _ANEW else ()
        elif event == "sqlite3.connect":
            paths = database_file(arguments[0])
        else:
            paths = arguments[: _CHANGES.get(event, 0)]
        for path in paths:
            if self.is_linked(path, event in ("open", "os.truncate", "sqlite3.connect")) if self.everywhere else not self.is_allowed(path):
                self.refuse(os.fsdecode(path))


class Trial:
    def __init__(self, watcher: Any, asked: dict[str, Any]):
        self.watcher, self.asked = watcher, asked
        self.began: tuple[int, int, list[int]] | None = None  # steps, ns in steps, ns by phase, where counting began
        self.guard = Guard([*asked["writable"], str(watcher.folder)], asked["theirs"], self.refuse, asked["everywhere"])
        sys.addaudithook(self.guard)
        # Behind the borders of a module, so that a step is ended before it is counted here.
        before = watcher.borders.module
        watcher.borders.module = lambda name, module: (before(name, module), self.imported(name, module))
        atexit.register(self.end)

    def imported(self, name: str, module: Any) -> None:
        if name == "torch":
            self.torch(module)
        elif name == "safetensors.torch":
            for function in ("save_file", "save_model"):
                setattr(module, function, audited(getattr(module, function), "filename"))
        elif name == "h5py":
            files, writes = module.h5f, module.h5f.ACC_RDWR
            files.open = audited(files.open, "name", 0, lambda name, flags=writes, *_, **__: bool(flags & writes))
            files.create = audited(files.create, "name", 0)
        elif name == "tables" and hasattr(module, "hdf5_version"):  # another module of this name may be the user's own
            module.open_file = audited(module.open_file, "filename", 0, lambda filename, mode="r", *_, **__: mode != "r")

    def torch(self, torch: Any) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data import DataLoader
        from torch.utils.data.dataloader import _BaseDataLoaderIter
        register_optimizer_step_post_hook(self.after_step)
        following = _BaseDataLoaderIter.__next__

        def after_batch(iterator: Any) -> Any:
            batch = following(iterator)
            self.after_step()  # a script may update its weights without an optimizer of torch.optim
            return batch
        _BaseDataLoaderIter.__next__ = after_batch
        if self.asked["threads"]:
            torch.set_num_threads(self.asked["threads"])
            torch.set_num_threads = lambda _: None  # the script's own number would override it
        make = DataLoader.__init__
        self.names = list(inspect.signature(make).parameters)[2:]  # after self and dataset

        def made(loader: Any, dataset: Any, *arguments: Any, **named: Any) -> None:
            make(loader, dataset, **self.arguments(arguments, named))
        DataLoader.__init__ = functools.wraps(make)(made)
        torch.save = torch.serialization.save = audited(torch.save, "f")

    def arguments(self, arguments: tuple, named: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a DataLoader: the script's, and the trial's if this is the loader that they are for."""
        named = {**dict(zip(self.names, arguments)), **named}
        line = borders.users_line(sys._getframe(2))
        if self.asked["loader"] and (not self.asked["where"] or place(line) == self.asked["where"]):
            named = with_workers_right({**named, **self.asked["loader"]})
        return named

    def after_step(self, *_: Any) -> None:
        kept = self.watcher.accounts
        steps = getattr(kept, "steps", None)
        if not isinstance(steps, int):  # watching has failed, and has reported that
            return self.leave({"failure": "watching failed"})
        if self.began is None:
            if steps >= self.asked["warm"]:
                self.began = (steps, kept.step_ns, list(kept.ns))
            return
        done = steps - self.began[0]
        if done >= self.asked["steps"] or (done >= EARLY * self.asked["steps"] and self.is_lost(done)):
            self.leave(self.result())

    def is_lost(self, done: int) -> bool:
        limit = self.asked["give_up_ms"]
        return limit is not None and self.watcher.accounts.step_ns - self.began[1] > limit * 1e6 * done

    def result(self) -> dict[str, Any]:
        kept = self.watcher.accounts
        if self.began is None or kept.steps == self.began[0]:
            return {"failure": f"it ended after {getattr(kept, 'steps', 0)} steps"}
        steps, step_ns, by_phase = self.began
        passed = [now - then for now, then in zip(kept.ns, by_phase)]
        return {"steps": kept.steps - steps, "step_ms": (kept.step_ns - step_ns) / (kept.steps - steps) / 1e6,
                "shares": {name: ns / max(1, sum(passed)) for name, ns in zip(accounts.PHASES, passed) if ns}}

    def write(self, result: dict[str, Any]) -> None:
        path = Path(self.asked["result"])
        part = path.with_suffix(f".part{os.getpid()}")
        part.write_text(json.dumps(result))
        os.replace(part, path)

    def leave(self, result: dict[str, Any]) -> None:
        """Ends the script at once; `headrace tune` ends its workers and ranks."""
        self.watcher.finish()
        self.write(result)
        os._exit(0)

    def end(self) -> None:
        """Called if the script has ended by itself. If it ended with an error, `headrace tune` shows that error."""
        if os.getpid() == self.watcher.process and self.watcher.looks is not None and not Path(self.asked["result"]).exists():
            self.write(self.result())

    def refuse(self, path: str) -> None:
        self.write({"failure": f"it would write {path}", "writes": path, "linked": self.guard.is_linked(path)})
        os._exit(3)


def install(watcher: Any, text: str) -> None:
    Trial(watcher, json.loads(text))
