"""`headrace tune` beside a grid over the same values, on scripts with a planted fault.

    python bench/headrace/doctor/grid.py [--faults no_workers ...] [--steps 100] [--json FILE]

Run as measure.py. The grid is every combination of 0, 1, 2, 4 and 8 workers, twice or four batches ahead for a worker, one thread or as many as there are cores, with and
without the environment of `headrace run`; each trial has --steps steps. Bars: tune has at least 0.8 of the gain of the grid's best, in at
most 0.25 of its time. Gains are compared by trials of both bests and of the script as it is in turns.
"""
import argparse
import contextlib
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2] / "python")]
from faults import FAULTS, planted
from headrace import tune
from headrace._script.search import Setting

SLOW = ("no_workers", "few_workers", "no_workers_trainer", "threads")
ROUNDS = 3


def settings(cores):
    for workers, ahead, threads, environment in itertools.product((0, 1, 2, 4, 8), (None, 4), sorted({1, cores}), (False, True)):
        if workers or ahead is None:
            yield Setting(workers, ahead, None, threads, environment)


def setting_of(found):
    return Setting(found.get("num_workers"), found.get("prefetch_factor"), found.get("pin_memory"), found.get("threads"), found.get("environment", False))


@contextlib.contextmanager
def folder_with(text):
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(text)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def examine(fault, steps):
    command = [sys.executable, "train.py"]
    with folder_with(planted((HERE / "scripts" / f"{fault.script}.py").read_text(), fault)):
        began = time.monotonic()
        result = tune.tune(command, steps)
        tuned = time.monotonic() - began
        with tune.Trials(command, False) as trials:
            began = time.monotonic()
            tried = []
            for setting in settings(tune.this_machine().cores):
                measured = trials.run(setting, steps, None)
                if not measured.failure:
                    tried.append((measured.step_ms, setting))
            gridded = time.monotonic() - began
            best = min(tried, key=lambda pair: pair[0])[1]
            sides = {"as it is": Setting(), "tune": setting_of(result["settings"]), "grid": best}
            times = {name: [] for name in sides}
            for _, (name, setting) in itertools.product(range(ROUNDS), sides.items()):
                times[name].append(trials.run(setting, steps, None).step_ms)
    gains = {name: 1 - median(times[name]) / median(times["as it is"]) for name in ("tune", "grid")}
    return {"fault": fault.name, "tune": str(sides["tune"]), "grid": str(best), "gains": gains, "step_ms": times, "seconds": {"tune": tuned, "grid": gridded},
            "of_gain": gains["tune"] / gains["grid"] if gains["grid"] > 0 else None, "of_time": tuned / gridded}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", nargs="+", default=list(SLOW), choices=[fault.name for fault in FAULTS])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()
    rows = []
    for fault in FAULTS:
        if fault.name in options.faults:
            row = examine(fault, options.steps)
            rows.append(row)
            print(f"{row['fault']:<22} tune {row['gains']['tune']:.3f} ({row['tune']}) in {row['seconds']['tune']:.0f} s; grid {row['gains']['grid']:.3f} ({row['grid']}) in "
                  f"{row['seconds']['grid']:.0f} s: {row['of_gain'] or 0:.2f} of the gain in {row['of_time']:.2f} of the time", flush=True)
            if options.json:
                options.json.write_text(json.dumps({"load": os.getloadavg(), "rows": rows}, indent=1))
    return 0 if all((row["of_gain"] or 0) >= 0.8 and row["of_time"] <= 0.25 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
