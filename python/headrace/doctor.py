"""`headrace doctor -- python train.py`: starts an unchanged training script, and at its end says what held it back."""
from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, Sequence

from headrace._script import folder as folders
from headrace._script import verdict as verdicts
from headrace._script.moments import Moments
from headrace.errors import Error, UsageError
from headrace.run import _script_of, check, end_as, start_and_wait, tell as _tell

HELP = """\
headrace doctor [--run DIR] [--json] -- COMMAND...
headrace doctor RUN [--json]

Starts COMMAND (python train.py, torchrun ..., accelerate launch ..., python -m ...) and watches its training loop, of which no line
changes. At the end it says on stderr where the time of the loop went, what held it back, what to change, and what that would gain.
Exit code, signals, input and output are COMMAND's. The second form says it again of a run folder.

  --run DIR   the run folder; else runs/script/NAME, which millrace report, compare and doctor read too
  --json      the verdict as JSON, the last line of stdout, in place of the text
"""
RIGHT = "write: headrace doctor -- python train.py"
HOOK = Path(__file__).resolve().parent / "_script" / "hook"


def parse(words: Sequence[str]) -> dict[str, Any]:
    """{"help", "json", "run", "command"}; without a command, "run" is an existing run folder."""
    where = " ".join(["headrace doctor", *words])
    before, command = list(words), []
    if "--" in before:
        at = before.index("--")
        before, command = before[:at], before[at + 1:]
        if not command:
            raise UsageError("there is no command behind --", where, RIGHT)
    chosen: dict[str, Any] = {"help": False, "json": False, "run": None, "command": command}
    while before:
        word = before.pop(0)
        if word in ("--help", "-h"):
            chosen["help"] = True
        elif word == "--json":
            chosen["json"] = True
        elif word == "--run":
            if not before:
                raise UsageError("--run has no folder", where, "write: headrace doctor --run runs/x -- python train.py")
            chosen["run"] = before.pop(0)
        elif word.startswith("-"):
            raise UsageError(f"headrace doctor has no option {word}", where, "options: --run DIR, --json; all that is the command's goes behind --")
        elif command:
            raise UsageError(f"{word} stands before --", where, "all that is the command's goes behind --")
        elif chosen["run"] is not None or word.endswith(".py") or shutil.which(word) is not None and not os.path.isdir(word):
            rest = " ".join([word, *before])
            raise UsageError("there is no -- before the command", where, f"write: headrace doctor -- {'python ' if word.endswith('.py') else ''}{rest}")
        else:
            chosen["run"] = word
    if not command and chosen["run"] is None and not chosen["help"]:
        raise UsageError("no command and no run is named", where, f"{RIGHT}, or: headrace doctor RUN")
    return chosen


def name_of(command: Sequence[str]) -> str:
    """The script of a command: train.py of `torchrun --nproc-per-node 2 train.py --fast`."""
    script = _script_of(command) or next((word for word in command if word.endswith(".py")), None)
    if script is None and "-m" in command[:-1]:
        script = command[list(command).index("-m") + 1]
    return os.path.basename(script or command[0])


def _ending(status: int) -> dict[str, Any]:
    if os.WIFSIGNALED(status):
        return {"exit_reason": "signal", "signal": signal.Signals(os.WTERMSIG(status)).name}
    code = os.WEXITSTATUS(status)
    return {"exit_reason": "end"} if code == 0 else {"exit_reason": "error", "error": f"exit code {code}"}


def _processes(scratch: Path) -> list[dict[str, Any]]:
    found = []
    for path in scratch.glob("process-*.json"):
        try:
            found.append(json.loads(path.read_text()))
        except (OSError, ValueError):
            continue
    return found


def _trained(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The process whose loop is judged: the one with most steps; among equals, rank 0."""
    best = max((each for each in found if "evidence" in each), key=lambda each: (each["evidence"]["step"], each["rank"] in ("", "0")), default=None)
    if best is not None and best["rank"]:
        for each in found:
            if "evidence" in each and each["rank"] == "0" and 2 * each["evidence"]["step"] > best["evidence"]["step"]:
                return each
    return best


def _nothing(scratch: Path, found: list[dict[str, Any]]) -> str:
    """The reason why there is no verdict."""
    failed = next((each["failed"] for each in found if "failed" in each), None)
    if failed is not None:
        return "no verdict: watching failed, as said above"
    if not (scratch / "hook").exists():
        return "no verdict: no Python was started that reads PYTHONPATH (options -I, -E and -S turn that off; a wrapper may set it anew)"
    if not (scratch / "torch").exists():
        return "no verdict: the script does not import torch"
    if not (scratch / "trains").exists():
        return "no verdict: there was no backward pass, so nothing was trained"
    if not any("evidence" in each for each in found):
        return "no verdict: the process that trains was killed before anything was written"
    if not any(each.get("tells_steps") for each in found):
        return f"no verdict: {verdicts.NO_STEPS}"
    return "no verdict: fewer than two steps were done"


def _watched(command: list[str], run: Path | None, as_json: bool) -> int:
    check(command, "doctor")
    script = name_of(command)
    folder = folders.new(run, script, command)
    scratch = Path(tempfile.mkdtemp(prefix="headrace-"))
    try:
        path = os.environ.get("PYTHONPATH")
        environment = {**os.environ, "HEADRACE_DOCTOR": str(scratch), "PYTHONPATH": f"{HOOK}{os.pathsep}{path}" if path else str(HOOK)}
        usage = start_and_wait(command, environment, _Meanwhile(scratch, folder, " ".join(command)))
        try:
            _conclude(scratch, folder, " ".join(command), _ending(usage.status), as_json)
        except Exception as error:  # the exit code says whether the script ended well
            _tell(f"headrace doctor  no verdict: {type(error).__name__}: {error}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return end_as(usage.status)


class _Meanwhile:
    """Updates the run folder while the script runs, so that it can be read, and so that a kill of both processes leaves the
    measurements."""

    def __init__(self, scratch: Path, folder: folders.Folder, name: str):
        self._scratch, self._folder, self._name = scratch, folder, name
        self._moments = Moments()

    def __call__(self) -> float:
        if self._moments.left() <= 0:
            self._moments.next()
            try:
                trained = _judged(self._scratch, self._name)
                if trained is not None:
                    self._folder.write(trained, verdicts.diagnose(trained["evidence"], trained["hints"]), None)
            except Exception:  # a failure here is reported at the end, when the same is done again
                pass
        return max(0.0, self._moments.left())


def _judged(scratch: Path, name: str) -> dict[str, Any] | None:
    """The measurements of the process that trains; None before its first step."""
    trained = _trained(_processes(scratch))
    if trained is None or trained["evidence"]["step"] < 1:
        return None
    trained["evidence"]["script"]["command"] = name
    trained["name"] = name
    return trained


def _conclude(scratch: Path, folder: folders.Folder, name: str, ending: dict[str, Any], as_json: bool) -> None:
    """Prints the result and saves it. The script has ended, so a failure here is only a line."""
    trained = _judged(scratch, name)
    if trained is None:
        folder.remove()
        why = _nothing(scratch, _processes(scratch))
        _tell(f"headrace doctor  {why}")
        if as_json:
            print(json.dumps({"findings": [], "accounts": [], "verdict": why}), flush=True)
        return
    try:
        verdict = verdicts.diagnose(trained["evidence"], trained["hints"])
    except Error as error:
        _tell(f"headrace doctor  no verdict: {error.what}")
        verdict = {}
    try:
        folder.write(trained, verdict, ending)
    except OSError as error:
        _tell(f"headrace doctor  {folder.path} can't be written: {error}")
    _say(name, trained["evidence"], verdict, as_json)
    if not as_json:
        _tell(f"  kept in {folder.path}")


def _say(name: str, evidence: dict[str, Any], verdict: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps({**verdict, "evidence": evidence}), flush=True)
    else:
        _tell(verdicts.text(name, evidence, verdict))


def main(words: Sequence[str]) -> int:
    """`words`: the words after `headrace doctor`. Returns the exit code of the command; raises `Error` if it can't be started."""
    chosen = parse(words)
    if chosen["help"]:
        print(HELP, end="")
        return 0
    if chosen["command"]:
        return _watched(chosen["command"], Path(chosen["run"]) if chosen["run"] else None, chosen["json"])
    kept = folders.read(Path(chosen["run"]))
    _say(kept.get("name", chosen["run"]), kept["evidence"], verdicts.diagnose(kept["evidence"], kept.get("hints")), chosen["json"])
    return 0
