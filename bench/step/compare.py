"""The training step of language_model against Python torch: same shape, same machine, one run, interleaved.

    tools/python-peer bench/step/compare.py build/release/millrace [--rounds 9] [--steps 3] [--dropout 0.1 0] [--cpu avx2] [--json FILE]

For fp32 and bf16 and each dropout, the programs stay alive (ours; Python eager and torch.compile with a cold cache, each with glibc's
malloc as it is and "kept", keeping what is freed; with --jax PYTHON_WITH_JAX also JAX) and take turns: a round is a few steps of
each, a figure the median of the rounds' ratios with its 95 % interval. The bar is against the fastest of the others. Exits 1 when a
bar is missed. The first step counts from process start, less one step, in fresh processes without others beside them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
BARS = {("fp32", True): 0.75, ("bf16", True): 0.60, ("fp32", False): 1.0, ("bf16", False): 0.80}
FIRST_STEP_BAR_S = 0.6
# --cpu: what MILLRACE_CPU sets for the libraries (src/millrace/base/instructions.h), so that both sides run the same instructions.
CPU = {"portable": ("default", "SSE41", "SSE4_2"), "avx2": ("avx2", "AVX2", "AVX2"), "avx512": ("avx512", "AVX512_CORE", "AVX512"),
       "avx512_bf16": ("avx512", "AVX512_CORE_BF16", "AVX512"), "amx": ("avx512", "AVX512_CORE_AMX", "AVX512")}
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_TOP_PAD_": str(1 << 26)}
CPU_HELP = "the instruction set of both sides (default: the best of each library); MILLRACE_CPU"


def lower_instructions(word):
    """For this process's children."""
    if word:
        names = ("MILLRACE_CPU", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
        os.environ.update(zip(names, (word, *CPU[word])))


class Program:
    """A child that runs a round of steps for each line it gets and answers with one line of JSON."""

    def __init__(self, command, environment=None):
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.times = []

    def read(self):
        line = self.child.stdout.readline()
        if not line:
            sys.exit(f"Error  {self.child.args[0]} ended without an answer\n  next     run it by hand: {' '.join(self.child.args)}")
        return json.loads(line)

    def round(self):
        try:
            self.child.stdin.write("go\n")
            self.child.stdin.flush()
        except BrokenPipeError:  # read() says so
            pass
        answer = self.read()
        self.times.append(median(answer["ms"]))
        return answer

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def turn(program):
    """A round once the program before has come to rest: libgomp's threads spin for some 20 ms after their last loop."""
    time.sleep(0.05)
    return program.round()


def ours(options, dtype, dropout):
    overrides = [] if dropout > 0 else [f"--recipe.{name}=0" for name in options.dropout_keys]
    return Program([options.program, "bench", "step", "language_model", "--shape", "cpu-small", "--precision", dtype, "--threads",
                    str(options.threads), "--warmup", "1", "--steps", str(options.steps), "--rounds", "stdin", "--json", *overrides])


def peer(options, mode, dtype, dropout, cache, kept=False):
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache, **(KEPT if kept else {}))
    return Program([sys.executable, str(HERE / "gpt_step_peer.py"), "--mode", mode, "--dtype", dtype, "--dropout", str(dropout),
                    "--threads", str(options.threads), "--steps", str(options.steps)], environment)


def jax_peer(options, dtype, dropout):
    return Program([options.jax, str(HERE / "gpt_step_jax.py"), "--dtype", dtype, "--dropout", str(dropout), "--threads",
                    str(options.threads), "--steps", str(options.steps)])


def rivals(options, dtype, dropout, cache):
    """The other programs, each after its first step, and the seconds to that step of those that compile."""
    programs, first = {}, {}
    for mode in ["eager", "compile"] if options.compile else ["eager"]:
        for kept in (False, True):
            name = mode + (", kept" if kept else "")
            programs[name] = peer(options, mode, dtype, dropout, cache, kept)
            first[name] = programs[name].read()["first_step_s_since_process_start"]
    if options.jax:
        programs["jax"] = jax_peer(options, dtype, dropout)
        first["jax"] = programs["jax"].read()["first_step_s_since_process_start"]
    return programs, {name: first[name] for name in ("compile", "jax") if name in first}


def interval(ratios):
    """Median and the order statistics that enclose it with 95 %."""
    ordered = sorted(ratios)
    n = len(ordered)
    reach = int(0.98 * n**0.5)
    return median(ordered), ordered[max(0, n // 2 - reach)], ordered[min(n - 1, n // 2 + reach)]


def first_steps(options, dtype, dropout, cache):
    """Seconds from process start to the end of the first step: the median of fresh processes that have the machine to themselves."""
    seconds = {"ours": [], "eager": []}
    for _ in range(options.starts):
        program = ours(options, dtype, dropout)
        seconds["ours"].append(program.round()["first_step_s_since_process_start"])
        program.close()
        program = peer(options, "eager", dtype, dropout, cache)
        seconds["eager"].append(program.read()["first_step_s_since_process_start"])
        program.close()
    return {name: median(values) for name, values in seconds.items()}


def measure(options, dtype, dropout):
    with tempfile.TemporaryDirectory() as cache:
        first = first_steps(options, dtype, dropout, cache)
        programs, compiling = rivals(options, dtype, dropout, cache)
        first.update(compiling)
        programs["ours"] = ours(options, dtype, dropout)
        for program in programs.values():
            program.round()
            program.times.clear()
        for _ in range(options.rounds):
            for program in programs.values():
                turn(program)
        for program in programs.values():
            program.close()
    times = {name: program.times for name, program in programs.items()}
    rival = min((name for name in times if name != "ours"), key=lambda name: median(times[name]))
    ratio, low, high = interval([a / b for a, b in zip(times["ours"], times[rival])])
    step = {name: median(values) for name, values in times.items()}
    start = {name: first[name] - step[name] / 1e3 for name in first}
    return {"dtype": dtype, "dropout": dropout, "step_ms": step, "rival": rival, "ratio": ratio, "interval": [low, high],
            "bar": BARS[dtype, dropout > 0], "first_step_less_one_s": start, "round_ms": times}


def print_table(results):
    for r in results:
        low, high = r["interval"]
        print(f"{r['dtype']} dropout {r['dropout']:g}: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in r["step_ms"].items()))
        print(f"  ours / {r['rival']}: {r['ratio']:.3f} ({low:.3f}..{high:.3f}), bar {r['bar']:.2f}; first step less one: "
              + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in r["first_step_less_one_s"].items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the millrace program")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--starts", type=int, default=5, help="fresh processes whose first step is timed (torch.compile: one)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.1, 0.0])
    parser.add_argument("--dropout-keys", nargs="+", default=["model_dropout"])
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--jax", metavar="PYTHON", help="a Python with bench/step/requirements-jax.txt: JAX takes turns too")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cpu", choices=CPU, help=CPU_HELP)
    options = parser.parse_args()
    lower_instructions(options.cpu)
    results = []
    for dtype in options.dtypes:
        for dropout in options.dropout:
            results.append(measure(options, dtype, dropout))
            print_table(results[-1:])
            sys.stdout.flush()
    print()
    print_table(results)
    print(f"threads {options.threads}, rounds {options.rounds} of {options.steps} steps, load average {os.getloadavg()[0]:.1f}")
    if options.json:
        options.json.write_text(json.dumps({"results": results, "cpu": options.cpu, "load_average": os.getloadavg()}, indent=1) + "\n")
    missed = [r for r in results if r["ratio"] > r["bar"] or r["first_step_less_one_s"]["ours"] > FIRST_STEP_BAR_S]
    for r in missed:
        print(f"missed: {r['dtype']} dropout {r['dropout']:g}: ratio {r['ratio']:.3f} (bar {r['bar']}), first step "
              f"{r['first_step_less_one_s']['ours']:.2f} s + one step (bar {FIRST_STEP_BAR_S})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
