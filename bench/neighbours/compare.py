"""Measures several trainings at once on the same cores: the share of its speed alone that each keeps, for Millrace and for Python torch.

    tools/python-peer bench/neighbours/compare.py build/release/millrace [--seconds 5] [--rounds 3] [--json FILE]

The language model in three sizes, fp32, dropout .1, as many threads each as there are cores. One, two or four programs of each
side train at the same time for some seconds; a figure is the median, over programs and rounds, of a program's steps a second relative to
one program alone in that round. Programs that don't disturb each other have 1/n each. The bars: 0.45 for two, 0.20 for four. A third
row is Python with OMP_WAIT_POLICY=passive, which a careful user would set. Run it on a quiet machine. Exits 1 when a bar is missed.
"""

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "step"))
from turns import Program  # noqa: E402

KEYS = "width", "layers", "heads", "context", "batch"
SIZES = {"tiny": (64, 2, 2, 64, 32), "small": (128, 4, 4, 128, 16), "bench": (384, 6, 6, 256, 8)}
BARS = {2: 0.45, 4: 0.20}


def ours(options, size):
    width, layers, heads, context, batch = SIZES[size]
    return Program([options.program, "bench", "step", "language_model", "--shape", "cpu-small", "--precision", "fp32", "--threads",
                    str(options.threads), "--warmup", "2", "--steps", "1", "--rounds", "stdin", "--json",
                    f"--recipe.model_embd={width}", f"--recipe.model_layer={layers}", f"--recipe.model_head={heads}",
                    f"--recipe.model_positions={context}", f"--recipe.seq_len={context + 1}", f"--data.batch_size={batch}"])


def peer(options, size, **environment):
    program = Program([sys.executable, str(HERE.parent / "step" / "gpt_step_peer.py"), "--threads", str(options.threads), "--steps", "1",
                       "--size", *(f"{key}={value}" for key, value in zip(KEYS, SIZES[size]))], dict(os.environ, **environment))
    program.read()
    return program


def rates(programs, seconds):
    """Steps a second of each program, all at the same time."""
    start, counts = threading.Barrier(len(programs)), [0.0] * len(programs)

    def run(i):
        programs[i].round()
        start.wait()
        begin = time.monotonic()
        steps = 0
        while time.monotonic() < begin + seconds:
            programs[i].round()
            steps += 1
        counts[i] = steps / (time.monotonic() - begin)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(programs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts


def measure(options, size, name, start):
    programs = [start() for _ in range(max(options.at_once))]
    kept = {n: [] for n in options.at_once}
    alone = []
    for _ in range(options.rounds):
        rate = rates(programs[:1], options.seconds)[0]
        alone.append(rate)
        for n in options.at_once:
            kept[n] += [one / rate for one in rates(programs[:n], options.seconds)]
    for program in programs:
        program.close()
    return {"size": size, "program": name, "alone_steps_per_s": median(alone), "kept": {n: median(kept[n]) for n in kept}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the millrace program")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--at-once", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = []
    print(f"{'size':8}{'program':18}{'alone, steps/s':>15}" + "".join(f"{f'{n} at once':>12}" for n in options.at_once))
    for size in options.sizes:
        sides = {"millrace": lambda: ours(options, size)}
        if not options.no_peer:
            sides["python"] = lambda: peer(options, size)
            sides["python, passive"] = lambda: peer(options, size, OMP_WAIT_POLICY="passive")
        for name, start in sides.items():
            results.append(measure(options, size, name, start))
            print(f"{size:8}{name:18}{results[-1]['alone_steps_per_s']:15.1f}" +
                  "".join(f"{results[-1]['kept'][n]:12.2f}" for n in options.at_once), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"results": results, "load_average": os.getloadavg()}, indent=1) + "\n")
    missed = [(r["size"], n) for r in results if r["program"] == "millrace" for n in options.at_once if r["kept"][n] < BARS.get(n, 0)]
    for size, n in missed:
        print(f"missed: {size}, {n} at once: below {BARS[n]}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
