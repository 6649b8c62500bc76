"""`headrace tune -- python train.py`: tries values for an unchanged training script, and says which lines to change."""
from __future__ import annotations

import ctypes
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Sequence

from headrace._script import scratch, verdict
from headrace._script.search import Found, Measured, Script, Search, Setting, short_of
from headrace.doctor import HOOK, name_of
from headrace.environment import plan_for, this_machine
from headrace.errors import Error, UsageError
from headrace.run import PR_SET_PDEATHSIG, check

HELP = """\
headrace tune [--steps N] [--minutes M] [--writes] [--json] -- COMMAND...

Starts COMMAND (python train.py, torchrun ..., accelerate launch ...) again and again for a few steps, with other values for its
DataLoader (workers, batches ahead, pinned memory), for torch's threads and for the environment, and says which lines to change.

The script is not changed. Each trial runs in a copy of the current folder (files above 16 MB are linked, not copied), with trackers off,
and is ended after its steps. A trial in which Python, torch, safetensors, h5py, PyTables or sqlite3 would write a file anywhere else
is ended before it does.

  --steps N     steps of a trial in the comparison at the end; those of the search have a quarter (200)
  --minutes M   begin no further trial of the search after this time (30)
  --writes      let the script write outside of the copy; your files that are linked into it stay protected
  --json        the result as JSON on stdout
"""
RIGHT = "write: headrace tune -- python train.py"
# Services to which a training may log, because a trial is not a run for them.
TRACKERS_OFF = {"WANDB_MODE": "disabled", "COMET_MODE": "disabled", "NEPTUNE_MODE": "debug", "SWANLAB_MODE": "disabled", "CLEARML_OFFLINE_MODE": "1",
                "MLFLOW_TRACKING_URI": "", "HF_HUB_DISABLE_TELEMETRY": "1"}
FIRST_STEPS = 900  # seconds that a script may take until its first steps
WORDS = {"trainer": {"num_workers": "dataloader_num_workers", "persistent_workers": "dataloader_persistent_workers",
                     "prefetch_factor": "dataloader_prefetch_factor", "pin_memory": "dataloader_pin_memory"}}


def parse(words: Sequence[str]) -> dict[str, Any]:
    """{"help", "steps", "minutes", "writes", "json", "command"}"""
    where = " ".join(["headrace tune", *words])
    chosen: dict[str, Any] = {"help": False, "steps": 200, "minutes": 30.0, "writes": False, "json": False, "command": []}
    before = list(words)
    if "--" in before:
        at = before.index("--")
        before, chosen["command"] = before[:at], before[at + 1:]
    while before:
        word = before.pop(0)
        name, _, value = word.partition("=")
        if word in ("--help", "-h"):
            return {**chosen, "help": True}
        if word in ("--writes", "--json"):
            chosen[word[2:]] = True
        elif name in ("--steps", "--minutes"):
            value = value or (before.pop(0) if before else "")
            try:
                chosen[name[2:]] = int(value) if name == "--steps" else float(value)
            except ValueError:
                raise UsageError(f"{name} takes a number, not {value or 'nothing'}", where, "write: headrace tune --steps 200 -- python train.py") from None
        else:
            raise UsageError(f"headrace tune has no option {word}" if word.startswith("-") else "there is no -- before the command", where,
                             "options: --steps N, --minutes M, --writes, --json" if word.startswith("-") else f"write: headrace tune -- {shlex.join([word, *before])}")
    if not chosen["command"]:
        raise UsageError("there is no command behind --", where, RIGHT)
    if chosen["steps"] < 20:
        raise UsageError(f"{chosen['steps']} steps are too few: a trial needs 20 or more", where, "write: headrace tune --steps 200 -- python train.py")
    if not 0 < chosen["minutes"] < 1e5:
        raise UsageError(f"--minutes takes a time above 0, not {chosen['minutes']:g}", where, "write: headrace tune --minutes 30 -- python train.py")
    return chosen


class Trials:
    """Starts the script for trials, each in a fresh copy of the current folder."""

    def __init__(self, command: Sequence[str], writes: bool):
        self.command, self.writes = list(command), writes
        self.theirs = os.getcwd()
        self.folder = Path(tempfile.mkdtemp(prefix=scratch.OWN))
        self.where = ""          # line of the DataLoader
        self.evidence: dict[str, Any] = {}  # values of the latest trial
        self.hints: dict[str, str] = {}     # warnings of the same trial for arguments that are set
        self.count = 0
        self.plan = plan_for(command, os.environ, this_machine())

    def __enter__(self) -> "Trials":
        return self

    def __exit__(self, *_: Any) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, setting: Setting, steps: int, give_up_ms: float | None) -> Measured:
        self.count += 1
        place = self.folder / str(self.count)
        place.mkdir()
        try:
            return self._run(place, setting, steps, give_up_ms)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _run(self, place: Path, setting: Setting, steps: int, give_up_ms: float | None) -> Measured:
        copy, watched, result = place / "copy", place / "watched", place / "result.json"
        scratch.copy_of(Path(self.theirs), copy)
        watched.mkdir()
        asked = {"result": str(result), "steps": steps, "warm": max(3, min(steps // 4, 2 * (setting.workers or 1))), "loader": setting.loader(), "where": self.where,
                 "threads": setting.threads, "give_up_ms": give_up_ms, "writable": [str(copy), str(place)], "everywhere": self.writes,
                 "theirs": self.theirs}
        path = os.environ.get("PYTHONPATH")
        variables = {**os.environ, **TRACKERS_OFF, **(self.plan.variables if setting.environment else {}), "HEADRACE_DOCTOR": str(watched),
                     "HEADRACE_TRIAL": json.dumps(asked), "PYTHONDONTWRITEBYTECODE": "1", "PWD": str(copy),
                     "PYTHONPATH": f"{HOOK}{os.pathsep}{path}" if path else str(HOOK)}
        words = [str(copy) + word[len(self.theirs):] if word.startswith(self.theirs + os.sep) else word for word in self.command]
        with open(place / "said", "w+b") as said:
            child = subprocess.Popen(words, cwd=copy, env=variables, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_with_parent)
            try:
                _wait(child, result)
            finally:
                _end(child)
            said.seek(0)
            last = said.read().decode(errors="replace").strip().splitlines()[-1:]
        return self._read(result, watched, child.returncode, last)

    def _read(self, result: Path, watched: Path, code: int, said: list[str]) -> Measured:
        kept = next((json.loads(path.read_text()) for path in sorted(watched.glob("process-*.json")) if '"evidence"' in path.read_text()), {})
        self.evidence, self.hints = kept.get("evidence", {}), kept.get("hints", {})
        found = json.loads(result.read_text()) if result.exists() else {"failure": f"it ended with exit code {code}: {' '.join(said)}" if code else "it trained nothing that is watched"}
        if found.get("linked"):
            raise UsageError(f"the script would write {found['writes']} in each trial, and that is your own file", "headrace tune",
                             "files above 16 MB and folders of more than 1,000 entries are linked into the copy, not copied: name another file by the script's arguments, or move this one away" + only_read(found["writes"]))
        if "writes" in found:
            raise UsageError(f"the script would write {found['writes']} in each trial", "headrace tune", "give it a place in the current folder by its arguments, or allow it: headrace tune --writes ..." + only_read(found["writes"]))
        if "failure" in found:
            return Measured(failure=found["failure"])
        shares = found["shares"]
        return Measured(found["step_ms"], shares.get("data_wait", 0.0), sum(shares.get(name, 0.0) for name in ("forward", "backward", "optimizer")))


def only_read(path: str) -> str:
    """What to do about a database that the script only reads, which can't be told from one that it writes to."""
    return '; if the script only reads this database: sqlite3.connect("file:PATH?mode=ro", uri=True)' if scratch.is_database(path) else ""


def _with_parent() -> None:
    """Makes the kernel end the script if `headrace tune` is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait(child: subprocess.Popen, result: Path) -> None:
    """Waits until the trial's result exists or its script has ended."""
    began = time.monotonic()
    while not result.exists() and child.poll() is None:
        if time.monotonic() - began > FIRST_STEPS and not any(result.parent.joinpath("watched").glob("process-*.json")):
            return
        time.sleep(0.02)


def _end(child: subprocess.Popen) -> None:
    """Ends the script with its workers and ranks, which form a separate session."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


# -- what is said ----------------------------------------------------------------------------------------------------------------

def _tell(text: str) -> None:
    print(f"headrace tune  {text}", file=sys.stderr, flush=True)


def _announce(command: Sequence[str], steps: int, minutes: float, writes: bool) -> None:
    _tell(f"starts {' '.join(command)} about ten times for {short_of(steps)} steps and four times for {steps}, for up to {minutes:g} minutes and the comparison,")
    _tell("each in a fresh copy of the current folder, with WANDB_MODE=disabled and the like; it is ended after its steps." +
          (" It may write outside of the copy." if writes else " What it would write elsewhere ends the search."))


def _advice(evidence: dict[str, Any]) -> dict[str, Any]:
    """The arguments that the doctor's findings set."""
    try:
        found = verdict.diagnose(evidence)["findings"]
    except (Error, AttributeError):
        return {}
    advice: dict[str, Any] = {}
    for finding in reversed(found):  # the first finding wins
        for name, value in {**finding.get("set", {}), **finding.get("environment", {})}.items():
            advice[name.removeprefix("dataloader_")] = value
    return advice


def script_of(evidence: dict[str, Any]) -> Script:
    said, advice = evidence.get("script", {}), _advice(evidence)
    loader = said.get("loader")
    script = Script(threads=said.get("threads", 1), on_gpu=evidence.get("on_gpu", False), has_environment=said.get("faults", {}).get("below_headrace_run", False))
    if loader is not None:
        script.workers, script.prefetch = loader["workers"], loader["prefetch"]
    if isinstance(advice.get("num_workers"), int):
        script.advised_workers = advice["num_workers"]
    if str(advice.get("OMP_NUM_THREADS", "")).isdigit():
        script.advised_threads = int(advice["OMP_NUM_THREADS"])
    return script


def lines_of(best: Setting, evidence: dict[str, Any], command: Sequence[str], hints: dict[str, str] | None = None) -> list[str]:
    """The lines to write, in the terms of the script's library."""
    said, lines = evidence.get("script", {}), []
    dialect, where = said.get("dialect", "loop"), said.get("loader", {}).get("where", "")
    names = WORDS.get(dialect, {})
    if best.loader():
        arguments = ", ".join(f"{names.get(name, name)}={value}" for name, value in best.loader().items())
        place = f"   ({where})" if where and not names else ""
        lines.append(f"{'TrainingArguments' if names else 'DataLoader'}(..., {arguments}){place}")
        lines += [hint for name, hint in (hints or {}).items() if best.loader().get(name)]
    if best.threads:
        lines.append(f"torch.set_num_threads({best.threads})   (at the beginning)")
    if best.environment:
        lines.append(f"headrace run -- {shlex.join(command)}   (as the command)")
    return lines


def _result(found: Found, evidence: dict[str, Any], command: Sequence[str], seconds: float, hints: dict[str, str]) -> dict[str, Any]:
    low, high = found.span()
    return {"settings": {**found.best.loader(), **({"threads": found.best.threads} if found.best.threads else {}), **({"environment": True} if found.best.environment else {})},
            "change": lines_of(found.best, evidence, command, hints), "speedup": found.speedup(), "speedup_low": low, "speedup_high": high,
            "step_ms": {"as_it_is": found.base_ms, "best": found.best_ms}, "trials": len(found.trials) + 1, "seconds": seconds}


def _say(result: dict[str, Any]) -> None:
    took = f"{result['trials']} trials in {result['seconds'] / 60:.1f} minutes"
    if not result["change"] or result["speedup"] < 1.03:
        _tell(f"nothing that was tried makes it clearly faster ({took})")
        return
    old, new = (sum(times) / len(times) for times in result["step_ms"].values())
    _tell(f"{result['speedup']:.2f} times as fast: a step takes {new:.3g} instead of {old:.3g} ms ({result['speedup_low']:.2f} to {result['speedup_high']:.2f} in {len(result['step_ms']['best'])} comparisons; {took})")
    for line in result["change"]:
        _tell(f"write  {line}")


def tune(command: Sequence[str], steps: int = 200, minutes: float = 30.0, writes: bool = False) -> dict[str, Any]:
    """Searches. Returns {"settings", "change": lines to write, "speedup", "speedup_low", "speedup_high", "step_ms", "trials",
    "seconds"}."""
    began = time.monotonic()
    with Trials(command, writes) as trials:
        base = trials.run(Setting(), short_of(steps), None)
        if base.failure:
            raise Error(f"the script can't be tried: {base.failure}", f"headrace tune -- {' '.join(command)}",
                        "a trial runs in a copy of the current folder; see that the script runs there, for more steps than a trial has (--steps)")
        evidence, hints = trials.evidence, trials.hints
        script = script_of(evidence)
        trials.where = evidence.get("script", {}).get("loader", {}).get("where", "")
        _tell(f"{name_of(command)} as it is: {base.step_ms:.3g} ms a step, {100 * base.waits:.0f} % of it waiting for data")

        def run(setting: Setting, steps_: int, give_up_ms: float | None) -> Measured:
            measured = trials.run(setting, steps_, give_up_ms)
            _tell(f"  {str(setting):<44} " + (measured.failure or f"{measured.step_ms:.3g} ms a step"))
            return measured
        search = Search(script, base, steps, this_machine().cores, run, lambda: time.monotonic() - began < 60 * minutes)
        return _result(search.find(), evidence, command, time.monotonic() - began, hints)


def _interrupt(number: int, _: Any) -> None:
    raise KeyboardInterrupt(number)


def main(words: Sequence[str]) -> int:
    """`words`: the words after `headrace tune`. Returns the exit code."""
    chosen = parse(words)
    if chosen["help"]:
        print(HELP, end="")
        return 0
    check(chosen["command"], "tune")
    _announce(chosen["command"], chosen["steps"], chosen["minutes"], chosen["writes"])
    # A terminal that is closed sends SIGHUP, unless nohup has made the process ignore it.
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN}
    try:
        result = tune(chosen["command"], chosen["steps"], chosen["minutes"], chosen["writes"])
    except KeyboardInterrupt as stopped:
        _tell("interrupted: nothing is left of its trials")
        return 128 + (stopped.args[0] if stopped.args else signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    _say(result)
    if chosen["json"]:
        print(json.dumps(result))
    return 0
