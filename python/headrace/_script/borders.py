"""Replaces the functions of torch and other packages at which a training loop changes its work. The replacements also read the
clock.

Only this file depends on the internals of torch: `_BaseDataLoaderIter.__next__`, `DataLoader.__iter__`, `torch.autograd.backward`,
`_MapDatasetFetcher.fetch`. Hooks of optimizers are public. A replacement calls the original first. An error in the replacement ends
the watching, but never the script.
"""
from __future__ import annotations

import functools
import os
import sys
import time
import weakref
from typing import Any, Callable

from threading import get_ident

from headrace._script import accounts
from headrace._script.loaders import Timed, gives_samples

_now = time.perf_counter_ns
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = (os.path.dirname(os.__file__) + os.sep, HERE, "<frozen")
_INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


def is_users(file: str) -> bool:
    """True if a source file is the user's: not Python's, and not an installed package's."""
    return not file.startswith("<") and not file.startswith(_LIBRARIES) and not any(part in file for part in _INSTALLED)


def count_as_installed(package: Any) -> None:
    """From now on is_users() is false for the files of `package`, also if they are in no folder called site-packages: the package was
    built in place, or `pip install --target` put it somewhere. Then is_users() is false for everything there, unless the script is
    there too."""
    global _LIBRARIES
    file = os.path.abspath(package.__file__)
    if not is_users(file):
        return
    folder = os.path.dirname(file)
    target = os.path.dirname(folder)
    script = os.path.abspath(getattr(sys.modules.get("__main__"), "__file__", None) or "script.py")
    try:
        is_target = any(name.endswith(".dist-info") for name in os.listdir(target)) and not script.startswith(target + os.sep)
    except OSError:  # a folder that may be entered but not listed
        is_target = False
    _LIBRARIES += ((target if is_target else folder) + os.sep,)


def line_of(frame: Any) -> tuple[str, int]:
    """File and line at which a frame is. Python 3.10 knows no line for a jump that it has added; the line is then that of the code
    before."""
    code, line = frame.f_code, frame.f_lineno
    if line is None:
        lines = [number for begin, _, number in code.co_lines() if begin <= frame.f_lasti and number is not None]
        line = lines[-1] if lines else code.co_firstlineno
    return code.co_filename, line


def users_line(frame: Any) -> tuple[str, int] | None:
    """The innermost line of the user's code that led to `frame`."""
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return line_of(frame)
        frame = frame.f_back
    return None


def plain_tensor(value: Any) -> Any:
    """`value`, if its number can be read directly, without calling a user's code that observes the tensor; else None."""
    from torch import Tensor
    is_plain = isinstance(value, Tensor) and type(value).__torch_dispatch__ is Tensor.__torch_dispatch__ and value.is_floating_point()
    return value if is_plain else None


class Borders:
    """Installs the borders of one watcher, and removes them. `watcher` has `accounts`, `thread`, `busy`, `record_of`, `fail`."""

    def __init__(self, watcher: Any):
        self.watcher = watcher
        self._undo: list[Callable[[], None]] = []
        self._seen: set[str] = set()

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any], home: Any = None) -> None:
        """`home`: the module by which a function is pickled, if that is another module."""
        original = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
        made = functools.wraps(original)(make(original))
        owners = [each for each in (owner, home) if each is not None]
        for each in owners:
            setattr(each, name, made)

        def undo() -> None:
            # If another replacement was installed over this one, it stays and calls this one, which then passes everything on.
            for each in owners:
                if (each.__dict__.get(name) if isinstance(each, type) else getattr(each, name, None)) is made:
                    setattr(each, name, original)
        self._undo.append(undo)

    # -- torch ---------------------------------------------------------------------------------------------------------------

    def torch(self, torch: Any) -> None:
        count_as_installed(torch)
        from torch.optim.optimizer import (_global_optimizer_post_hooks, _global_optimizer_pre_hooks, register_optimizer_step_post_hook,
                                           register_optimizer_step_pre_hook)
        from torch.utils.data import DataLoader, _utils
        from torch.utils.data.dataloader import _BaseDataLoaderIter
        self._replace(_BaseDataLoaderIter, "__next__", self._next)
        self._replace(DataLoader, "__iter__", self._iter)
        self._replace(DataLoader, "__init__", self._made)
        self._replace(torch.autograd, "backward", self._backward)
        self._replace(torch, "save", functools.partial(self._around, accounts.SNAPSHOT), torch.serialization)
        for kind in (_utils.fetch._MapDatasetFetcher, _utils.fetch._IterableDatasetFetcher):
            self._replace(kind, "fetch", self._fetch)
        self._replace(os, "_exit", self._exit, sys.modules.get("posix"))
        if hasattr(torch.amp, "GradScaler"):
            self._replace(torch.amp.GradScaler, "scale", self._scale)
        before, after = self._optimizer(torch)
        handles = register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)
        self._undo += [handle.remove for handle in handles]
        self._hooks = [(_global_optimizer_pre_hooks, handles[0].id, before), (_global_optimizer_post_hooks, handles[1].id, after)]
        self._autograd, self._watched_backward = torch.autograd, torch.autograd.backward

    def stand_aside(self, by_optimizer: bool) -> None:
        """Removes replacements that are not needed while steps are passed over, because even the check whether there is work takes
        2 us in total. `by_optimizer`: steps are counted when an optimizer is done."""
        for hooks, name, _ in self._hooks[:1 if by_optimizer else 2]:
            hooks.pop(name, None)
        if self._autograd.backward is self._watched_backward:
            self._autograd.backward = self._watched_backward.__wrapped__

    def come_back(self) -> None:
        for hooks, name, hook in self._hooks:
            hooks.setdefault(name, hook)
        if self._autograd.backward is self._watched_backward.__wrapped__:
            self._autograd.backward = self._watched_backward

    def _next(self, original: Callable) -> Callable:
        from torch import is_grad_enabled
        watcher = self.watcher

        def watched(iterator: Any) -> Any:
            if watcher.busy:
                if watcher.busy != "passing" or get_ident() != watcher.thread:
                    return original(iterator)
                if iterator is watcher.lead():
                    if watcher.left > 0:
                        began = _now()
                        try:
                            batch = original(iterator)
                        except BaseException:
                            took = _now() - began
                            watcher.waited += took
                            watcher.go_on(False, took)
                            raise
                        watcher.left -= 1
                        watcher.waited += _now() - began
                        return batch
                    watcher.go_on(False)
                elif watcher.trains(iterator) and watcher.accounts.by_loader:
                    return original(iterator)
                else:
                    watcher.go_on(True)
            elif get_ident() != watcher.thread:
                return original(iterator)
            began = record = None
            try:
                if watcher.census.mode is not None:
                    watcher.census.next_batch()
                watcher.busy = "data_wait"
                record = iterator.__dict__.get("_headrace")
                if record is None or record.watcher is not watcher:
                    record = watcher.record_of(iterator)
                began = watcher.accounts.before_batch()
                if watcher.accounts.passed and record.trained and is_grad_enabled():
                    watcher.pass_over(iterator)
            except Exception as error:
                watcher.fail(error)
            if watcher.busy == "passing":
                return watched(iterator)
            ended = True
            try:
                batch = original(iterator)
                ended = False
                return batch
            finally:
                watcher.busy = ""
                if began is not None and watcher.on:
                    try:
                        now = watcher.accounts.after_batch(record, is_grad_enabled(), ended)
                        if ended:
                            watcher.loader_ended(record, now - began)
                        else:
                            record.batch_came(now - began)
                            if record.trained and is_grad_enabled() and watcher.census.is_due(watcher.accounts.steps):
                                watcher.census.enter()
                    except Exception as error:
                        watcher.fail(error)
        return watched

    def _iter(self, original: Callable) -> Callable:
        from torch import is_grad_enabled
        watcher = self.watcher

        def watched(loader: Any) -> Any:
            if get_ident() != watcher.thread or watcher.is_busy():
                return original(loader)
            began = None
            try:
                if watcher.census.mode is not None:
                    watcher.census.leave()
                watcher.busy = "data_wait"
                watcher.before_workers()
                began = watcher.accounts.before_batch()
            except Exception as error:
                watcher.fail(error)
            try:
                iterator = original(loader)
            finally:
                watcher.busy = ""
            if began is not None and watcher.on:
                try:
                    record = watcher.record_of(iterator, loader)
                    record.iterator_made(watcher.accounts.iterator_made(record, is_grad_enabled()) - began)
                except Exception as error:
                    watcher.fail(error)
            return iterator
        return watched

    def _made(self, original: Callable) -> Callable:
        watcher = self.watcher

        def watched(loader: Any, *arguments: Any, **named: Any) -> None:
            original(loader, *arguments, **named)
            try:
                watcher.loader_made(loader, sys._getframe(1))
            except Exception as error:
                watcher.fail(error)
        return watched

    def _backward(self, original: Callable) -> Callable:
        watcher = self.watcher

        def watched(tensors: Any, *arguments: Any, **named: Any) -> None:
            if watcher.busy:  # nested passes, as of checkpoints, or a pass of a step that is passed over
                return original(tensors, *arguments, **named)
            if get_ident() != watcher.thread and not watcher.take_thread():
                return original(tensors, *arguments, **named)
            try:
                if watcher.census.mode is not None:
                    watcher.census.leave()
                watcher.busy = "backward"
                now = watcher.accounts.before_backward()
                if now >= watcher.look_due:
                    watcher.look(now, tensors)
            except Exception as error:
                watcher.fail(error)
            try:
                return original(tensors, *arguments, **named)
            finally:
                watcher.busy = ""
                try:
                    watcher.accounts.mark(accounts.BACKWARD)
                except Exception as error:
                    watcher.fail(error)
        return watched

    def _exit(self, original: Callable) -> Callable:
        """Exits without running the functions of atexit."""
        def watched(status: int) -> Any:
            self.watcher.finish()
            return original(status)
        return watched

    def _scale(self, original: Callable) -> Callable:
        watcher = self.watcher

        def watched(scaler: Any, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            if get_ident() == watcher.thread and hasattr(scaled, "grad_fn"):
                watcher.scaled = weakref.ref(outputs), weakref.ref(scaled), scaler
            return scaled
        return watched

    def _optimizer(self, torch: Any) -> tuple[Callable, Callable]:
        watcher, is_compiling = self.watcher, torch.compiler.is_compiling

        # A compiled update has no place for a clock, so its time belongs to the interval around it.
        def before(optimizer: Any, _: Any, __: Any) -> None:
            if watcher.busy or is_compiling() or get_ident() != watcher.thread:
                return
            try:
                if watcher.census.mode is not None:
                    watcher.census.leave()
                watcher.accounts.before_optimizer()
            except Exception as error:
                watcher.fail(error)

        def after(optimizer: Any, _: Any, __: Any) -> None:
            if is_compiling() or get_ident() != watcher.thread or watcher.busy not in ("", "passing"):
                return
            try:
                if watcher.busy and watcher.lead() is not optimizer:
                    if not watcher.accounts.succeeds(id(optimizer)):
                        return
                    watcher.go_on(False)
                elif watcher.busy:
                    watcher.left -= 1
                    if watcher.left > 0:
                        return
                    watcher.go_on(False)
                else:
                    watcher.accounts.after_optimizer(id(optimizer))
                    if watcher.accounts.passed and not watcher.accounts.by_loader:
                        watcher.pass_over(optimizer)
            except Exception as error:
                watcher.fail(error)
        return before, after

    def _around(self, phase: int, original: Callable) -> Callable:
        """For functions that are called from time to time: counts calls by the user's line."""
        watcher, name = self.watcher, accounts.PHASES[phase]

        def watched(*arguments: Any, **named: Any) -> Any:
            if get_ident() != watcher.thread or watcher.is_busy():
                return original(*arguments, **named)
            began = None
            try:
                if watcher.census.mode is not None:
                    watcher.census.leave()
                watcher.busy = name
                began = watcher.accounts.passing()
            except Exception as error:
                watcher.fail(error)
            try:
                return original(*arguments, **named)
            finally:
                watcher.busy = ""
                if began is not None and watcher.on:
                    try:
                        watcher.occasions[name].add(watcher.accounts.mark(phase) - began, sys._getframe(1), watcher.accounts.steps)
                    except Exception as error:
                        watcher.fail(error)
        return watched

    # -- reading, also in workers -----------------------------------------------------------------------------------------------

    def _fetch(self, original: Callable) -> Callable:
        watcher = self.watcher

        def watched(fetcher: Any, indices: Any) -> Any:
            dataset = None
            if watcher.busy == "passing" or not watcher.on or (reading := fetcher.__dict__.get("_headrace") or watcher.workers_reading()) is None:
                return original(fetcher, indices)
            reading.left -= 1
            if reading.left > 0:
                return original(fetcher, indices)
            try:
                # Reading the clocks takes 3 us. If batches are short, every eighth batch is measured and counts eight times.
                reading.left = 8 if reading.batches >= 8 and reading.wall < 1e-3 * reading.batches else 1
                if reading.is_slow_enough() and fetcher.auto_collation and type(fetcher).__name__ == "_MapDatasetFetcher" and gives_samples(fetcher.dataset):
                    dataset = fetcher.dataset
                    fetcher.dataset = Timed(dataset, reading)
                # In the loop's process, threads of torch may still spin after a step; a worker does nothing else.
                cpu_clock = time.process_time_ns if reading is watcher.own_reading else time.thread_time_ns
                wall, cpu = _now(), cpu_clock()
            except Exception as error:
                watcher.fail(error)
                return original(fetcher, indices)
            try:
                batch = original(fetcher, indices)
            finally:
                if dataset is not None:
                    fetcher.dataset = dataset
            try:
                reading.count(len(indices) if isinstance(indices, (list, tuple)) else 1, _now() - wall, cpu_clock() - cpu)
                watcher.batch_read(reading)
            except Exception as error:
                watcher.fail(error)
            return batch
        return watched

    # -- others ----------------------------------------------------------------------------------------------------------------

    def module(self, name: str, module: Any) -> None:
        """Installs the borders of a module that has just been imported."""
        if name == "torch":
            self.torch(module)
        elif name == "safetensors.torch":
            for function in ("save_file", "save_model"):
                self._replace(module, function, functools.partial(self._around, accounts.SNAPSHOT))
        elif name in ("torch.utils.tensorboard.writer", "tensorboardX.writer"):
            for method in [method for method in vars(module.SummaryWriter) if method.startswith("add_") or method == "flush"]:
                self._replace(module.SummaryWriter, method, functools.partial(self._around, accounts.LOG))
        elif name in SAVES:  # includes parts of a checkpoint that torch.save does not write
            kind, method = SAVES[name]
            if method in vars(getattr(module, kind, object)):
                self._replace(getattr(module, kind), method, functools.partial(self._around, accounts.SNAPSHOT))
        elif name == "wandb.sdk.wandb_run":
            self._replace(module.Run, "log", functools.partial(self._around, accounts.LOG))
        elif name == "mlflow.tracking.fluent":
            for function in ("log_metric", "log_metrics", "log_artifact"):
                self._replace(module, function, functools.partial(self._around, accounts.LOG))


SAVES = {"transformers.trainer": ("Trainer", "_save_checkpoint"), "lightning.pytorch.trainer.trainer": ("Trainer", "save_checkpoint"),
         "pytorch_lightning.trainer.trainer": ("Trainer", "save_checkpoint"), "accelerate.accelerator": ("Accelerator", "save_state")}
MODULES = ("torch", "safetensors.torch", "h5py", "tables", "torch.utils.tensorboard.writer", "tensorboardX.writer", "wandb.sdk.wandb_run", "mlflow.tracking.fluent", *SAVES)


class Finder:
    """Waits for imports of `MODULES`, and calls `done(name, module)` after each. It is the first finder of sys.meta_path."""

    def __init__(self, done: Callable[[str, Any], None]):
        self.done = done
        self.waiting = set(MODULES)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.waiting:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
            if spec is not None:
                break
        else:
            return None
        try:
            self._follow(name, spec.loader)
        except Exception:  # a loader that accepts no attribute: this module is not watched
            pass
        return spec

    def _follow(self, name: str, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module  # the loader is restored
            run(module)
            self.waiting.discard(name)
            self.done(name, module)
        loader.exec_module = exec_module
