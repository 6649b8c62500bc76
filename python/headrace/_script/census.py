"""Examines the calls of torch in two steps, to find calls that made the same tensors both times although they could be made once.

The calls pass a `TorchFunctionMode`, above autograd and dispatch, so their results do not change. The mode is entered after a batch
has arrived, only if the script has no mode itself, and left before the backward pass.
"""
from __future__ import annotations

import sys
import time
from typing import Any

from headrace._script import borders

FIRST_STEP = 10
TRIES = 4                # the most steps that are examined
MOST_PARTS = 64          # the most examinations that end because another batch is taken
LEAST_NS = 200_000       # the least time of a call whose result is kept for the second step
MOST_BYTES = 256 << 20   # the most bytes of all such results
_now = time.perf_counter_ns


def _tensors(value: Any) -> list:
    import torch
    if isinstance(value, torch.Tensor):
        return [value]
    return [each for each in value if isinstance(each, torch.Tensor)] if isinstance(value, (tuple, list)) else []


def _compiles() -> bool:
    """True if the script uses torch.compile: a compiled function would be compiled again for a mode, or refuse the mode."""
    evaluation, frames = sys.modules.get("torch._dynamo.eval_frame"), sys.modules.get("torch._dynamo.convert_frame")
    backends = getattr(evaluation, "cached_backends", {})  # None means torch.compiler.disable
    return any(backend is not None for backend in backends.values()) or getattr(frames, "FRAME_COUNTER", 0) > 0


class Step:
    """The calls of a step, with the results that may be compared."""

    def __init__(self) -> None:
        self.calls = self.bytes = 0
        self.kept: dict[tuple, list[tuple[float, list, Any]]] = {}  # (call, shapes) -> [(seconds, results, line)]

    def add(self, call: Any, took: int, result: Any) -> None:
        self.calls += 1
        if took < LEAST_NS:
            return
        results = _tensors(result)
        size = sum(each.numel() * each.element_size() for each in results)
        if not results or any(each.requires_grad for each in results) or self.bytes + size > MOST_BYTES:
            return
        self.bytes += size
        key = (_name(call), tuple(tuple(each.shape) for each in results))
        self.kept.setdefault(key, []).append((took / 1e9, [each.detach() for each in results], borders.users_line(sys._getframe(2))))


def _name(call: Any) -> str:
    return f"{getattr(call, '__module__', None) or 'torch'}.{getattr(call, '__name__', '?')}".removeprefix("torch._C.").replace("torch._tensor", "torch.Tensor")


class Census:
    def __init__(self) -> None:
        self.tries = self.parts = 0
        self.mode: Any = None   # set while the mode is entered
        self.asked: Any = None  # torch.overrides.has_torch_function, while it is replaced
        self.steps: list[Step] = []
        self.result: dict[str, Any] | None = None

    def is_due(self, step: int) -> bool:
        return self.result is None and self.mode is None and self.tries < TRIES and step >= FIRST_STEP

    def enter(self) -> None:
        import torch
        self.tries += 1
        if torch._C._len_torch_function_stack() or _compiles():
            if self.tries == TRIES:
                self.steps.clear()  # drops the results that a second step would have been compared with
            return
        self.steps.append(Step())
        self.mode = _mode(self.steps[-1])
        self.mode.__enter__()
        # Layers that look for modes with this function, such as those of transformers, would take another path, with other
        # rounding.
        self.asked, torch.overrides.has_torch_function = torch.overrides.has_torch_function, _without(self.mode, torch.overrides.has_torch_function)

    def next_batch(self) -> None:
        """Leaves the mode if another batch is taken: the calls so far are not the whole step, because a step begins with its last
        batch."""
        if self.parts < MOST_PARTS and self.mode.step is not None:
            self.parts, self.tries = self.parts + 1, self.tries - 1
            self.steps.pop()
        self.leave()

    def leave(self) -> None:
        """Leaves the mode at the next border of the loop, or at a later border if the script has entered a mode meanwhile."""
        import torch
        mode = self.mode
        mode.step = None
        if self.asked is not None:
            torch.overrides.has_torch_function, self.asked = self.asked, None
        if not _is_on_top(mode):
            return
        self.mode = None
        mode.__exit__(None, None, None)
        if len(self.steps) == 2:
            try:
                self._compare()
            except Exception:  # no census, because results such as sparse tensors can't be compared
                self.tries = TRIES
            finally:
                self.steps.clear()

    def _compare(self) -> None:
        import torch
        first, second = self.steps
        found: dict[tuple, tuple[float, Any]] = {}
        size = 0
        for key, calls in second.kept.items():
            for (before, old, _), (now, new, line) in zip(first.kept.get(key, ()), calls):
                if all(torch.equal(*pair) for pair in zip(old, new)):
                    size += sum(each.numel() * each.element_size() for each in new)
                    found[key] = (found.get(key, (0.0, None))[0] + (before + now) / 2, line)
        self.result = {"operations": second.calls, "rebuilt_seconds": sum(seconds for seconds, _ in found.values()), "rebuilt_bytes": size,
                       "rebuilt": max(((seconds, *key, line) for key, (seconds, line) in found.items()), key=lambda each: each[0], default=None)}


def _is_on_top(mode: Any) -> bool:
    import torch
    count = torch._C._len_torch_function_stack()
    return count > 0 and torch._C._get_function_stack_at(count - 1) is mode


def _without(mode: Any, has_torch_function: Any) -> Any:
    """Returns the function as it would answer without `mode`."""
    from torch.overrides import _pop_mode_temporarily

    def asked(arguments: Any) -> bool:
        if not _is_on_top(mode):
            return has_torch_function(arguments)
        with _pop_mode_temporarily():
            return has_torch_function(arguments)
    return asked


def _mode(step: Step) -> Any:
    from torch.compiler import is_compiling
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, call: Any, types: Any, arguments: tuple = (), named: dict | None = None) -> Any:
            if is_compiling():
                return call(*arguments, **(named or {}))
            began = _now()
            result = call(*arguments, **(named or {}))
            if self.step is not None:
                try:
                    self.step.add(call, _now() - began, result)
                except Exception:  # no census, but the script gets its result
                    self.step = None
            return result
    mode = Mode()
    mode.step = step
    return mode
