"""Recompute against torch.utils.checkpoint: peak memory and time of the same step, same machine, one run, interleaved.

    tools/python-peer bench/step/compare_recompute.py build/release/millrace [--rounds 9] [--steps 1] [--json FILE]

language_model recomputes every block, cosmology layer1 to layer6; ours and Python (eager, not re-entrant) take turns with and without
it. Bars: ours with recompute holds <= 1.05 times Python's peak of tensors and takes <= 1.0 times its time. Then a budget in a run of preset
small: 60 % of the plain peak, the peak predicted and the peak there was, which must be within 5 % of each other and within the budget.
Exits 1 when a bar is missed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from compare import Program, interval, turn

MEMORY_BAR, TIME_BAR, BUDGET_BAR = 1.05, 1.0, 0.05
PEERS = {"language_model": "gpt_step_peer.py", "cosmology": "unet_step_peer.py"}
BLOCKS = {"language_model": "all", "cosmology": "layer1,layer2,layer3,layer4,layer5,layer6"}


def ours(options, recipe, dtype, *words):
    return [options.program, "bench", "step", recipe, "--shape", "cpu-small", "--precision", dtype, "--threads", str(options.threads),
            "--warmup", "1", "--steps", str(options.steps), "--json", *words]


def peer(options, recipe, dtype, *words):
    return Program([sys.executable, str(HERE / PEERS[recipe]), "--dtype", dtype, "--threads", str(options.threads), "--steps",
                    str(options.steps), "--peak", *words])


def measure(options, recipe, dtype):
    programs = {"python": peer(options, recipe, dtype, "--recompute"), "python_plain": peer(options, recipe, dtype)}
    peaks = {name: program.read()["tensor_peak_bytes"] for name, program in programs.items()}
    programs["ours"] = Program(ours(options, recipe, dtype, f"--memory.recompute={BLOCKS[recipe]}", "--rounds", "stdin"))
    programs["ours_plain"] = Program(ours(options, recipe, dtype, "--memory.recompute=none", "--rounds", "stdin"))
    for round_ in range(options.rounds + 1):
        for name, program in programs.items():
            answer = turn(program)
            if round_ == 0:
                program.times.clear()
            if name.startswith("ours"):
                peaks[name] = answer["memory"]["step_peak_bytes"]
    for program in programs.values():
        program.close()
    times = {name: program.times for name, program in programs.items()}
    return {"recipe": recipe, "dtype": dtype, "peak_bytes": peaks, "memory_ratio": peaks["ours"] / peaks["python"],
            "step_ms": {name: median(values) for name, values in times.items()},
            "time_ratio": interval([a / b for a, b in zip(times["ours"], times["python"])]), "round_ms": times}


def budget(options, recipe, dtype):
    with tempfile.TemporaryDirectory() as run:
        words = [options.program, "train", recipe, "--preset", "small", f"--precision.dtype={dtype}", "--memory.budget=60%", "--run", run,
                 "--train.epochs=0", "--train.max_steps=6", "--train.validate_every=1000", "--json"]
        memory = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["memory"]
    real, predicted = memory["step_peak_bytes"], memory["predicted_bytes"]
    return {"recipe": recipe, "dtype": dtype, "plain_bytes": memory["plain_bytes"], "budget_bytes": memory["budget_bytes"],
            "predicted_bytes": predicted, "real_bytes": real, "recompute": memory["recompute"], "fits": memory["fits"],
            "error": real / predicted - 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the millrace program")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--recipes", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results, budgets, missed = [], [], []
    for recipe in options.recipes:
        for dtype in options.dtypes:
            row = measure(options, recipe, dtype)
            results.append(row)
            mb = {name: f"{peak / 1e6:.0f} MB" for name, peak in row["peak_bytes"].items()}
            ms = {name: f"{time:.0f} ms" for name, time in row["step_ms"].items()}
            ratio, low, high = row["time_ratio"]
            print(f"{recipe} {dtype}: recomputed, ours {mb['ours']} {ms['ours']}, Python {mb['python']} {ms['python']}; plain, ours "
                  f"{mb['ours_plain']} {ms['ours_plain']}, Python {mb['python_plain']} {ms['python_plain']}")
            print(f"  ours / Python, recomputed: memory {row['memory_ratio']:.3f} (bar {MEMORY_BAR}), time {ratio:.3f} "
                  f"({low:.3f}..{high:.3f}, bar {TIME_BAR})", flush=True)
            if row["memory_ratio"] > MEMORY_BAR or ratio > TIME_BAR:
                missed.append(f"{recipe} {dtype}")
            row = budget(options, recipe, dtype)
            budgets.append(row)
            print(f"  60 % budget {row['budget_bytes'] / 1e6:.0f} MB of {row['plain_bytes'] / 1e6:.0f}: predicted "
                  f"{row['predicted_bytes'] / 1e6:.1f} MB, real {row['real_bytes'] / 1e6:.1f} MB ({100 * row['error']:+.1f} %), "
                  f"recomputes {', '.join(row['recompute'])}", flush=True)
            if abs(row["error"]) > BUDGET_BAR or row["real_bytes"] > row["budget_bytes"]:
                missed.append(f"{recipe} {dtype} budget")
    if options.json:
        options.json.write_text(json.dumps({"results": results, "budgets": budgets, "load_average": os.getloadavg()}, indent=1) + "\n")
    for name in missed:
        print(f"missed: {name}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
