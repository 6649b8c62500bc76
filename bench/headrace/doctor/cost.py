"""What watching a step costs, measured within a run of a script of scripts/: of each two steps one is watched.

    tools/python-peer bench/headrace/doctor/cost.py [--scripts gan ...] [--runs 3] [--json FILE]

Two runs of a script differ by several percent on any machine that is not alone, which hides the cost. Two steps that follow each other hardly
do. So the borders are installed and removed between steps, where gradients are set to zero; which step of a pair is watched is drawn. Printed
are the median of the ratios of the pairs with its 90 % interval, and the CPU time of the two threads that look at the script and at
the machine, as a share of the run. Installing and removing disturbs both kinds of steps; what the two threads disturb is in both, so the
median has no part of it. Bars: 0.5 % where a step takes 5 ms or more, 1 % below.
"""
import argparse
import json
import os
import random
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[2] / "python"
WARM = 12  # steps at the beginning, with the two that the census looks at
_now = time.perf_counter_ns


class Turns:
    """Called between steps. `times`: (whether it was watched, ns) of each step."""

    def __init__(self, watcher, torch):
        self.watcher, self.torch, self.owner = watcher, torch, None
        self.random, self.times, self.watched, self.next, self.began = random.Random(1), [], True, [], 0

    def __call__(self, owner):
        now = _now()
        self.owner = self.owner or owner
        if owner is not self.owner:  # one of several optimizers ends the step
            return
        self.times.append((self.watched, now - self.began))
        self.next = self.next or self.random.choice(([True, False], [False, True]))
        watched, self.next = self.next[0], self.next[1:]
        if len(self.times) > WARM and watched != self.watched:
            self.watched = watched
            if watched:
                self.watcher.borders.torch(self.torch)
            else:
                self.watcher.borders.remove()
        self.began = _now()

    def pairs(self):
        """Ratios of watched to not watched steps."""
        kept = self.times[WARM + 1:]
        return [a[1] / b[1] if a[0] else b[1] / a[1] for a, b in zip(kept[::2], kept[1::2]) if a[0] != b[0]]


def cpu_of(thread):
    """CPU seconds of a thread of this process."""
    return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[0]) / 1e9


def child(script, folder):
    sys.path.insert(0, str(PACKAGE))
    import threading

    from headrace._script import looks
    from headrace._script.watcher import watch
    threads = []
    run = looks.Looks._run
    looks.Looks._run = lambda self: (threads.append(threading.get_native_id()), run(self))
    watcher = watch(Path(folder))
    import torch
    turns = Turns(watcher, torch)
    for kind in (torch.optim.Optimizer, torch.nn.Module):
        def zero_grad(self, *arguments, original=kind.zero_grad, **named):
            turns(self)
            return original(self, *arguments, **named)
        kind.zero_grad = zero_grad
    began = time.perf_counter()
    runpy.run_path(script, run_name="__main__")
    wall = time.perf_counter() - began
    threads += [int(task.name) for task in Path("/proc/self/task").iterdir() if (task / "comm").read_text().strip() == "mr-sampler"]
    Path(folder, "cost.json").write_text(json.dumps({"pairs": turns.pairs(), "step_ms": median(ns for _, ns in turns.times[WARM:]) / 1e6,
                                                     "threads": sum(map(cpu_of, threads)) / wall}))


def interval(values):
    """The 90 % interval of the median, by order statistics."""
    ordered, count = sorted(values), len(values)
    half = int(1.645 * count ** 0.5 / 2) + 1
    return ordered[max(0, count // 2 - half)], ordered[min(count - 1, count // 2 + half)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", nargs="+")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(*options.child)
    rows = []
    for path in sorted((HERE / "scripts").glob("*.py")):
        if options.scripts and path.stem not in options.scripts:
            continue
        runs = []
        for _ in range(options.runs):
            with tempfile.TemporaryDirectory(prefix="doctor-cost-") as folder:
                done = subprocess.run([sys.executable, str(HERE / "cost.py"), "--child", str(path), folder], cwd=folder, capture_output=True, text=True,
                                      env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
                if done.returncode:
                    raise SystemExit(f"{path.name} ended with {done.returncode}: {done.stderr[-2000:]}")
                runs.append(json.loads(Path(folder, "cost.json").read_text()))
        pairs = [ratio - 1 for run in runs for ratio in run["pairs"]]
        low, high = interval(pairs)
        rows.append({"script": path.stem, "step_ms": median(run["step_ms"] for run in runs), "pairs": len(pairs), "cost": median(pairs), "low": low, "high": high,
                     "threads": median(run["threads"] for run in runs)})
        row = rows[-1]
        print(f"{row['script']:<18} {row['step_ms']:6.1f} ms a step  {row['pairs']:4d} pairs  borders {100 * row['cost']:+.2f} % ({100 * low:+.2f} to {100 * high:+.2f})  "
              f"threads {100 * row['threads']:.2f} %", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
