"""Compares what `millrace tune` finds from a bad config with all runs of a full grid. The bars: 0.95 of the best speed, in a fifth of the time.

    python3 bench/tune/compare.py build/release/millrace [--recipes language_model,cosmology] [--seconds 2] [--json FILE]

The bad config reads in the loop's thread, keeps nothing, computes in fp32 on one thread, and logs every step. The grid is all
combinations of two to three values of each of those keys and of the batch size; each run is as long as a run of tune. What tune kept
and the best of the grid are then measured in turns, three times. Run it on a quiet machine. Exit status 1 when a bar is missed.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from loop_time import seconds_a_sample

BAD = {"data.workers": "0", "data.cache": "off", "device.threads": "1", "log.every": "1", "precision.dtype": "fp32"}
GRID = {
    "data.workers": ["0", "2", "auto"],
    "data.cache": ["off", "auto"],
    "device.threads": ["1", "auto"],
    "log.every": ["1", "10"],
    "precision.dtype": ["fp32", "bf16"],
    "data.batch_size": [1, 2, 4],  # times the recipe's own
}
BARS = {"of_best": 0.95, "of_time": 0.2}


def flags(settings):
    return [f"--{key}={value}" for key, value in settings.items()]


class Recipe:
    def __init__(self, program, name, preset, folder):
        self.program, self.words, self.folder = str(Path(program).resolve()), [name, "--preset", preset], folder
        said = json.loads(self.call(["config", "explain", *self.words, "--json"]))
        self.rows = int(said["values"]["data"]["batch_size"])

    def call(self, words):
        return subprocess.run([self.program, *words], cwd=self.folder, check=True, capture_output=True, text=True).stdout

    def run(self, settings, steps):
        """Seconds of the loop for a sample, without validations; None when the run fails."""
        rows = int(settings.get("data.batch_size", self.rows))
        words = flags(settings) + flags({"run": "grid", "train.max_steps": max(10, steps * self.rows // rows)})
        try:
            return seconds_a_sample(self.program, self.folder, [*self.words, *words])
        except subprocess.CalledProcessError:
            return None

    def tune(self, seconds):
        words = flags(BAD) + ["--allow=precision,batch_size", f"--seconds={seconds}", "--json"]
        began = time.monotonic()
        found = json.loads(self.call(["tune", *self.words, *words]))
        return found, time.monotonic() - began


def measure(recipe, seconds):
    found, tune_s = recipe.tune(seconds)
    kept = {**BAD, **found["kept"]}
    steps = max(10, round(seconds / (found["first"]["seconds"] * recipe.rows)))
    began, times = time.monotonic(), {}
    for values in itertools.product(*GRID.values()):
        settings = dict(zip(GRID, values))
        settings["data.batch_size"] = str(recipe.rows * settings["data.batch_size"])
        seen = recipe.run(settings, steps)
        if seen is not None:
            times[tuple(settings.items())] = seen
    grid_s = time.monotonic() - began
    best = dict(min(times, key=times.get))
    again = [(recipe.run(best, 3 * steps), recipe.run(kept, 3 * steps)) for _ in range(3)]
    return {
        "tune_s": tune_s, "grid_s": grid_s, "runs": len(times), "of_time": tune_s / grid_s,
        "before_ms": 1e3 * found["first"]["seconds"], "best_ms": 1e3 * median(b for b, _ in again),
        "tuned_ms": 1e3 * median(k for _, k in again), "of_best": median(b / k for b, k in again), "best": best, "kept": found["kept"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--recipes", default="language_model,cosmology,autoencoder_3d")
    parser.add_argument("--preset", default="smoke")
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results, good = {}, True
    for name in options.recipes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            seen = results[name] = measure(Recipe(options.program, name, options.preset, folder), options.seconds)
        passed = seen["of_best"] >= BARS["of_best"] and seen["of_time"] <= BARS["of_time"]
        good = good and passed
        print(f"{name:16} {seen['before_ms']:.3g} ms a sample before, tuned {seen['tuned_ms']:.3g}, best of {seen['runs']} runs "
              f"{seen['best_ms']:.3g}: {seen['of_best']:.2f} of the best (bar {BARS['of_best']}), in {seen['tune_s']:.0f} s of "
              f"{seen['grid_s']:.0f} s: {seen['of_time']:.2f} (bar {BARS['of_time']}){'' if passed else '  MISSED'}", flush=True)
        print("  tuned  " + " ".join(flags(seen["kept"])) + "\n  best   " + " ".join(flags(seen["best"])), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
