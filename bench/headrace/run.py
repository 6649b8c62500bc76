"""What `headrace run` changes for training scripts in Python: the peers of bench/step as published, with it and without, in turns.

    tools/python-peer bench/headrace/run.py [--recipes neural_response ...] [--rounds 15] [--steps 5] [--dtype fp32] [--json FILE]

Both sides are the same script with the same words, eager, contiguous, on as many threads as torch takes by itself here. A figure is the
median of the rounds' ratios, with its 95 % interval; CPU seconds, the kernel's share of them and page faults are of the timed rounds. Bars:
at most 1.02 of the time for each, at most 0.90 for three of five, at most 0.50 for neural_response. Exits 1 when a bar is missed.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/step"))
from turns import Program, interval, require_equal_work, turn

PEERS = {"neural_response": "twin_step_peer.py", "cosmology": "unet_step_peer.py", "autoencoder_3d": "gan_step_peer.py",
         "language_model": "gpt_step_peer.py", "image_pairs": "pairs_step_peer.py"}
EVERY_BAR, LOW_BAR, LOW_COUNT, BARS = 1.02, 0.90, 3, {"neural_response": 0.50}
TICK = os.sysconf("SC_CLK_TCK")


def taken(pid):
    """CPU seconds in the program and in the kernel, and page faults, of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return {"user_s": int(fields[11]) / TICK, "kernel_s": int(fields[12]) / TICK, "faults": int(fields[7]) + int(fields[9])}


def peak_bytes(pid):
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def started(options, recipe):
    """{"plain": ..., "headrace": ...}: the peer as it is, and below `headrace run`."""
    script = [sys.executable, str(ROOT / "bench/step" / PEERS[recipe]), "--dtype", options.dtype, "--steps", str(options.steps),
              "--threads", str(options.threads)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}
    # --quiet becomes the script, so that both sides are one process whose account can be read.
    programs = {"plain": Program(script, environment), "headrace": Program([sys.executable, "-m", "headrace", "run", "--quiet", "--", *script], environment)}
    for program in programs.values():
        program.start()
    require_equal_work(programs)
    return programs


def measure(options, recipe):
    programs = started(options, recipe)
    sums = {name: {} for name in programs}
    for round_ in range(options.rounds + 1):  # the first finds caches cold and does not count
        order = list(programs.items())
        for name, program in order if round_ % 2 else reversed(order):
            before = taken(program.child.pid)
            turn(program)
            after = taken(program.child.pid)
            if round_ == 0:
                program.times.clear()
            else:
                for key, value in after.items():
                    sums[name][key] = sums[name].get(key, 0) + value - before[key]
    times = {name: program.times for name, program in programs.items()}
    peaks = {name: peak_bytes(program.child.pid) for name, program in programs.items()}
    first = programs["plain"].first
    for program in programs.values():
        program.close()
    steps = options.rounds * options.steps
    return {"recipe": recipe, "dtype": options.dtype, "torch": first["torch"], "device_name": first["device_name"],
            "step_ms": {name: median(values) for name, values in times.items()}, "round_ms": times,
            "ratio": interval([ours / plain for ours, plain in zip(times["headrace"], times["plain"])]),
            "per_step": {name: {key: value / steps for key, value in total.items()} for name, total in sums.items()}, "peak_bytes": peaks}


def show(row):
    ratio, low, high = row["ratio"]
    print(f"{row['recipe']:<16} {row['dtype']}  {row['step_ms']['plain']:7.1f} -> {row['step_ms']['headrace']:7.1f} ms   {ratio:.3f} ({low:.3f}..{high:.3f})", flush=True)
    for name, used in row["per_step"].items():
        print(f"    {name:<9} a step: CPU {1e3 * (used['user_s'] + used['kernel_s']):7.1f} ms, of it in the kernel {1e3 * used['kernel_s']:6.1f} ms; "
              f"{used['faults']:8.0f} page faults; peak {row['peak_bytes'][name] / 1e6:.0f} MB", flush=True)


def misses(rows):
    """What of the bars is missed, in words."""
    missed = [f"{row['recipe']} takes {row['ratio'][0]:.3f} of the time, bar {BARS.get(row['recipe'], EVERY_BAR)}"
              for row in rows if row["ratio"][0] > BARS.get(row["recipe"], EVERY_BAR)]
    low = sum(row["ratio"][0] <= LOW_BAR for row in rows)
    if len(rows) == len(PEERS) and low < LOW_COUNT:
        missed.append(f"{low} of {len(rows)} take at most {LOW_BAR} of the time, bar {LOW_COUNT}")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=5, help="of a turn")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()
    rows = []
    for recipe in options.recipes:
        rows.append(measure(options, recipe))
        show(rows[-1])
        if options.json:
            options.json.write_text(json.dumps({"machine": rows[0]["device_name"], "load": os.getloadavg(), "rows": rows}, indent=1))
    for missed in misses(rows):
        print(f"missed: {missed}")
    return 1 if misses(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
