"""Recompute against torch.utils.checkpoint: peak memory and time of the same step, same machine, one run, interleaved.

    tools/python-peer bench/step/compare_recompute.py build/release/millrace [--rounds 9] [--steps 1] [--json FILE]

language_model recomputes every block, cosmology layer1 to layer6; ours and Python (eager, not re-entrant) take turns with and without
it. Bars: ours with recompute holds <= 1.05 times Python's peak of tensors and takes <= 1.0 times its time. Then a budget in a run of preset
small: 60 % of the plain peak. The predicted and the real peak must be within 5 % of each other and within the budget.
Exits 1 when a bar is missed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from turns import Program, add_options, interval, own_words, peer_words, said_of_machine, settle, take_turns, write

MEMORY_BAR, TIME_BAR, BUDGET_BAR = 1.05, 1.0, 0.05
PEERS = {"language_model": "gpt_step_peer.py", "cosmology": "unet_step_peer.py"}
BLOCKS = {"language_model": "all", "cosmology": "layer1,layer2,layer3,layer4,layer5,layer6"}


def ours(options, recipe, dtype, *words):
    return Program([options.program, *own_words(options, dtype, recipe), *words])


def peer(options, recipe, dtype, *words):
    program = Program([sys.executable, str(HERE / PEERS[recipe]), *peer_words(options, dtype), "--peak", *words])
    program.start()
    return program


def measure(options, recipe, dtype):
    programs = {"python": peer(options, recipe, dtype, "--recompute"), "python_plain": peer(options, recipe, dtype),
                "ours": ours(options, recipe, dtype, f"--memory.recompute={BLOCKS[recipe]}"),
                "ours_plain": ours(options, recipe, dtype, "--memory.recompute=none")}
    times = take_turns(programs, options.rounds)
    peaks = {name: program.last["memory"]["step_peak_bytes"] if name.startswith("ours") else program.first["tensor_peak_bytes"]
             for name, program in programs.items()}
    return {"recipe": recipe, "dtype": dtype, **said_of_machine(programs), "peak_bytes": peaks, "memory_ratio": peaks["ours"] / peaks["python"],
            "step_ms": {name: median(values) for name, values in times.items()},
            "time_ratio": interval([a / b for a, b in zip(times["ours"], times["python"])]), "round_ms": times}


def budget(options, recipe, dtype):
    with tempfile.TemporaryDirectory() as run:
        words = [options.program, "train", recipe, "--preset", "small", f"--precision.dtype={dtype}", f"--device.name={options.device}", "--memory.budget=60%", "--run", run,
                 "--train.epochs=0", "--train.max_steps=6", "--train.validate_every=1000", "--json"]
        memory = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["memory"]
    real, predicted = memory["step_peak_bytes"], memory["predicted_bytes"]
    return {"recipe": recipe, "dtype": dtype, "plain_bytes": memory["plain_bytes"], "budget_bytes": memory["budget_bytes"],
            "predicted_bytes": predicted, "real_bytes": real, "recompute": memory["recompute"], "fits": memory["fits"],
            "error": real / predicted - 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, rounds=9, steps=1)
    parser.add_argument("--recipes", nargs="+", default=list(PEERS), choices=list(PEERS))
    options = parser.parse_args()
    settle(parser, options)
    if "tf32" in options.dtypes:
        options.dtypes.remove("tf32")  # recompute repeats what the step does, in whatever format
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
    write(options, results, budgets=budgets)
    for name in missed:
        print(f"missed: {name}")
    return 1 if missed and options.has_bars else 0


if __name__ == "__main__":
    sys.exit(main())
