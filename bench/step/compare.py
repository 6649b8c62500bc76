"""The training step of language_model against Python torch: same shape, same machine, one run, interleaved.

    tools/python-peer bench/step/compare.py build/release/millrace [--rounds 9] [--steps 3] [--dropout 0.1 0] [--cpu avx2] [--json FILE]

For each number format and dropout, the programs stay alive (ours; Python eager and torch.compile with a cold cache, each with glibc's
malloc as it is and "kept", keeping what is freed; with --jax PYTHON_WITH_JAX also JAX) and take turns: a round is a few steps of
each, a figure the median of the rounds' ratios with its 95 % interval. The bar is against the fastest of the others. Exits 1 when a
bar is missed. On a GPU (--device cuda) the others are eager, torch.compile and torch.compile with CUDA graphs, and there is no bar. The first step counts from process start, less one step, in fresh processes without others beside them.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from turns import (KEPT, Program, add_options, add_other_torch, is_wanted, own_words, peer_words, python_program, ratios_to, said_of_machine,
                   said_of_times, settle, settle_other_torch, started, take_turns, torches, write)

BARS = {("fp32", True): 0.75, ("bf16", True): 0.60, ("fp32", False): 1.0, ("bf16", False): 0.80}
FIRST_STEP_BAR_S = 0.6
RECIPE = "language_model"


def ours(options, dtype, dropout, program=None):
    overrides = [] if dropout > 0 else [f"--recipe.{name}=0" for name in options.dropout_keys]
    return Program([program or options.program, *own_words(options, dtype, RECIPE), *overrides])


def peer(options, mode, dtype, dropout, cache, kept=False, peak=False, site=None):
    environment = dict(os.environ, **(KEPT if kept else {}))
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", cache)
    return python_program([str(HERE / "gpt_step_peer.py"), *peer_words(options, dtype), "--mode", mode, "--dropout", str(dropout),
                           *(["--peak"] if peak else [])], environment, site)


def jax_peer(options, dtype, dropout):
    return Program([options.jax, str(HERE / "gpt_step_jax.py"), "--dtype", dtype, "--dropout", str(dropout), "--threads",
                    str(options.threads), "--steps", str(options.steps)])


def rivals(options, dtype, dropout, cache):
    """The other programs, each after its first step, and those that gave no answer."""
    on_gpu = options.device == "cuda"
    programs, left_out = {}, {}
    modes = ["eager", *(["compile"] if options.compile else []), *(["graphs"] if options.compile and on_gpu else [])]
    for torch, site in torches(options):
        for mode in [mode for mode in modes if is_wanted(options, mode)]:
            for kept in (False,) if on_gpu else (False, True):
                programs[mode + (", kept" if kept else "") + torch] = peer(options, mode, dtype, dropout, cache, kept, peak=on_gpu, site=site)
                if options.one_by_one:
                    left_out.update(started(programs, options.start_within))
    if options.jax:
        programs["jax"] = jax_peer(options, dtype, dropout)
    left_out.update(started(programs, options.start_within))
    return programs, left_out


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
    return {name: median(values) for name, values in seconds.items() if values}


def peak_of_eager(options, dtype, dropout, cache):
    program = peer(options, "eager", dtype, dropout, cache, peak=True)
    peak = program.read()["tensor_peak_bytes"]
    program.close()
    return peak


def measure(options, dtype, dropout):
    with tempfile.TemporaryDirectory() as cache:
        first = first_steps(options, dtype, dropout, cache)
        peaks = {} if options.device == "cuda" else {"eager": peak_of_eager(options, dtype, dropout, cache)}
        programs, left_out = rivals(options, dtype, dropout, cache)
        if not programs:
            sys.exit("Error  Python gave no answer\n  next     run gpt_step_peer.py by hand, see the lines above")
        first.update({name: programs[name].first["first_step_s_since_process_start"] for name in ("compile", "graphs", "jax") if name in programs})
        others = list(programs)
        programs["ours"] = ours(options, dtype, dropout)
        if options.other_program:
            programs[f"ours {options.other_series}"] = ours(options, dtype, dropout, options.other_program)
        times = take_turns(programs, options.rounds, within=options.within)
    peaks.update({name: program.first["tensor_peak_bytes"] for name, program in programs.items() if "tensor_peak_bytes" in program.first})
    peaks["ours"] = programs["ours"].last["memory"]["step_peak_bytes"]
    rival = min(others, key=lambda name: median(times[name]))
    ratios = ratios_to(times, "ours", others)
    ratio, low, high = ratios[rival]
    said = said_of_times(times)
    start = {name: seconds - said["step_ms"].get(name, 0) / 1e3 for name, seconds in first.items()}
    bar = BARS.get((dtype, dropout > 0)) if options.has_bars else None
    return {"recipe": RECIPE, "dtype": dtype, "dropout": dropout, **said_of_machine(programs), **said, "rival": rival, "ratio": ratio,
            "interval": [low, high], "ratios": ratios, "bar": bar, "peak_bytes": peaks, "first_step_less_one_s": start, "left_out": left_out}


def print_table(results):
    for r in results:
        low, high = r["interval"]
        print(f"{r['dtype']} dropout {r['dropout']:g}: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in r["step_ms"].items()))
        print(f"  ours / {r['rival']}: {r['ratio']:.3f} ({low:.3f}..{high:.3f})" + (f", bar {r['bar']:.2f}" if r["bar"] else "") + "; first step less one: "
              + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in r["first_step_less_one_s"].items()))
        print("  peak MB of tensors: " + ", ".join(f"{name} {value / 1e6:.0f}" for name, value in r["peak_bytes"].items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, rounds=9, steps=3)
    add_other_torch(parser)
    parser.add_argument("--starts", type=int, help="fresh processes whose first step is timed (torch.compile: one); default 5, on a GPU 1")
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.1, 0.0])
    parser.add_argument("--dropout-keys", nargs="+", default=["model_dropout"])
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--jax", metavar="PYTHON", help="a Python with bench/step/requirements-jax.txt: JAX takes turns too, on a CPU at cpu-small")
    options = parser.parse_args()
    settle(parser, options)
    settle_other_torch(parser, options)
    if options.starts is None:
        options.starts = 1 if options.device == "cuda" else 5
    if options.jax and not options.has_bars:
        parser.error("--jax is of a CPU and of cpu-small")
    results = []
    for dtype in options.dtypes:
        for dropout in options.dropout:
            results.append(measure(options, dtype, dropout))
            print_table(results[-1:])
            sys.stdout.flush()
            write(options, results)  # kept even if a later comparison fails
    print()
    print_table(results)
    print(f"threads {options.threads}, rounds {options.rounds} of {options.steps} steps, load average {os.getloadavg()[0]:.1f}")
    missed = [r for r in results if r["bar"] and (r["ratio"] > r["bar"] or r["first_step_less_one_s"].get("ours", 0) > FIRST_STEP_BAR_S)]
    for r in missed:
        print(f"missed: {r['dtype']} dropout {r['dropout']:g}: ratio {r['ratio']:.3f} (bar {r['bar']}), first step "
              f"{r['first_step_less_one_s'].get('ours', 0):.2f} s + one step (bar {FIRST_STEP_BAR_S})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
