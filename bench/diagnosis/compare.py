"""Measures what the doctor costs a run: whole runs of the smallest recipe with the doctor and without, in turns. The bar is 0.5 % of a step.

    python3 bench/diagnosis/compare.py build/release/millrace [--recipe language_model] [--preset smoke] [--steps 600] [--rounds 15] [--json FILE]

A run's figure is the loop's time per sample, without start, trials, validations and the time that other programs took. The order changes from
round to round; each round gives a ratio, and the result is the ratios' median with its 95 % interval.
Run it on a quiet machine. Exit status 1 when the median is beyond the bar.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

BENCH = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BENCH), str(BENCH / "step")]
from turns import interval
from loop_time import seconds_a_sample

BAR = 0.005


def run(options, folder, doctor):
    """Milliseconds of the loop per sample."""
    words = [options.recipe, "--preset", options.preset, "--run=run", f"--train.max_steps={options.steps}", f"--log.doctor={doctor}"]
    return 1e3 * seconds_a_sample(str(Path(options.program).resolve()), folder, words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--recipe", default="language_model")
    parser.add_argument("--preset", default="smoke")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    times = {"true": [], "false": []}
    with tempfile.TemporaryDirectory() as folder:
        run(options, folder, "true")  # makes the data
        for round_ in range(options.rounds):
            for doctor in sorted(times, reverse=round_ % 2 == 0):
                times[doctor].append(run(options, folder, doctor))
    ratio, low, high = interval([on / off for on, off in zip(times["true"], times["false"])])
    print(f"{options.recipe} {options.preset}: {median(times['true']):.4g} ms a sample with the doctor, {median(times['false']):.4g} without: "
          f"{100 * (ratio - 1):+.2f} % ({100 * (low - 1):+.2f} to {100 * (high - 1):+.2f}), bar {100 * BAR:.1f} %")
    if options.json:
        options.json.write_text(json.dumps({"ms": times, "ratio": [ratio, low, high]}, indent=1) + "\n")
    return 0 if ratio <= 1 + BAR else 1


if __name__ == "__main__":
    sys.exit(main())
