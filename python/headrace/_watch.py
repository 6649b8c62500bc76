"""`headrace.watch`: what `headrace doctor` measures of a script, but inside the process; for notebooks and for loops in a larger
program."""
from __future__ import annotations

import html
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from headrace._runs import Finding, Run, _number
from headrace._script import folder as folders
from headrace._script import verdict as verdicts
from headrace._script import watcher as watchers
from headrace.errors import Error, MomentError


class Watch:
    """A training loop that is or was watched. Make it with `headrace.watch`."""

    def __init__(self, run: str | os.PathLike | None = None, model: Any = None):
        self._asked = run
        self._model = model
        self._watcher: Any = None
        self._folder: folders.Folder | None = None
        self._scratch: Path | None = None
        self._found: dict[str, Any] = {}
        self._verdict: dict[str, Any] = {}
        self._why = "nothing is known before the end of the with block"

    def __enter__(self) -> "Watch":
        where = f"headrace.watch({str(self._asked)!r})" if self._asked is not None else "headrace.watch()"
        if watchers.current is not None:
            raise MomentError("this process is being watched already", where, "end the other watch first; below headrace doctor leave headrace.watch out")
        if self._watcher is not None:
            raise MomentError("this watch was used before", where, "make another one: headrace.watch(...)")
        script = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0].endswith(".py") and "ipykernel" not in sys.argv[0] else "notebook"
        self._folder = folders.new(Path(self._asked) if self._asked is not None else None, script, [script])
        self._scratch = Path(tempfile.mkdtemp(prefix="headrace-"))
        self._watcher = watchers.watch(self._scratch)
        return self

    def __exit__(self, kind: Any, error: Any, _: Any) -> None:
        # An error here must not hide the user's exception or end the training.
        try:
            self._conclude({"exit_reason": "end"} if kind is None else {"exit_reason": "error", "error": f"{kind.__name__}: {error}"})
        except Exception as failure:
            self._why = f"no verdict: {type(failure).__name__}: {failure}"
            print(f"headrace watch  {self._why}", file=sys.stderr)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _conclude(self, ending: dict[str, Any]) -> None:
        found = self._watcher.end()
        if found is None or found["evidence"]["step"] < 1:
            self._folder.remove()
            why = "fewer than two steps were done" if found is None or found["tells_steps"] else verdicts.NO_STEPS
            self._why = f"no verdict: {self._watcher.failed or why}"
            return
        if self._model is not None:
            found["parameters"] = sum(each.numel() for each in self._model.parameters())
        found["name"] = self._folder.script
        self._found = found
        try:
            self._verdict = verdicts.diagnose(found["evidence"], found["hints"])
        except Error as error:
            self._why = f"no verdict: {error.what}"
        self._folder.write(found, self._verdict, ending)

    @property
    def is_watching(self) -> bool:
        return self._watcher is not None and watchers.current is self._watcher

    @property
    def folder(self) -> Path | None:
        """The run folder; it is kept if at least two steps were done."""
        return self._folder.path if self._folder is not None else None

    @property
    def run(self) -> Run:
        """The run folder as a `Run`: history, summary. Raises `MissingError` if nothing was trained."""
        return Run(self.folder)

    @property
    def findings(self) -> list[Finding]:
        """The causes that held the loop back, the largest gain first."""
        return [Finding(each["id"], each["text"], _number(each.get("gain"))) for each in self._verdict.get("findings", [])]

    @property
    def accounts(self) -> dict[str, float]:
        """Seconds of the loop by kind of work; with "startup" they add up to the wall time."""
        return dict(self._found["evidence"]["times"]["seconds"]) if self._found else {}

    @property
    def evidence(self) -> dict[str, Any]:
        """The measurements, in the form in which the rules read them."""
        return self._found.get("evidence", {})

    def __str__(self) -> str:
        if not self._found:
            return f"headrace watch  {self._why}"
        return verdicts.text(self._found["name"], self._found["evidence"], self._verdict).replace("headrace doctor", "headrace watch", 1)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>" + (self.run._repr_html_() if self._found else "")


def watch(run: str | os.PathLike | None = None, *, model: Any = None) -> Watch:
    """Watches any training loop in a with block, on the thread that makes backward passes. The loop's results do not change.

        with headrace.watch("runs/unet", model=model) as run:
            train(model, loader)
        print(run)                   # where the time went, what held it back, what to change

    `run`: the folder to be made; default: runs/script/NAME. `model`: its parameters are counted. Raises `UsageError` if the folder is
    not empty, and `MomentError` if the process is already being watched.
    """
    return Watch(run, model)
