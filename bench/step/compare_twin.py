"""The training step of neural_response against Python torch: same shape, same machine, one run, interleaved.

    tools/python-peer bench/step/compare_twin.py build/release/millrace [--rounds 9] [--steps 1] [--compile] [--cpu avx2] [--json FILE]
    tools/python-peer bench/step/compare_twin.py build/release/millrace --mixed [--rounds 3]

Ours and Python take turns in fp32 and bf16. Python runs as published (a forward per session, blurs as convolutions), with its core joined over
the sessions, with its blurs as stencils, with both, channels last, each with glibc's own malloc or one that keeps freed memory ("kept"); with
--compile also as torch.compile makes it. Bars: ours <= 0.6 of the fastest of them in each type, and <= 0.7 of the least peak of tensors. --mixed
compares grouped and mixed batches instead: 64 rows of 20 sessions, grouped by session or one forward for each row. Exits 1 when a
bar is missed.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from compare import CPU, CPU_HELP, Program, interval, lower_instructions

TIME_BAR, MEMORY_BAR = 0.6, 0.7
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_TOP_PAD_": str(1 << 26)}
STENCIL, JOINED, LAST = "--stencil", "--joined", "--channels-last"
PEERS = {"published": [], "joined": [JOINED], "stencil": [STENCIL], "stencil_joined": [STENCIL, JOINED],
         "joined_last": [JOINED, LAST], "stencil_joined_last": [STENCIL, JOINED, LAST]}


def peer(options, dtype, *words, kept=False):
    environment = {**os.environ, **KEPT} if kept else None
    return Program([sys.executable, str(HERE / "twin_step_peer.py"), "--dtype", dtype, "--threads", str(options.threads), "--steps",
                    str(options.steps), *words], environment)


def ours(options, dtype, *words):
    return Program([options.program, "bench", "step", "neural_response", "--shape", "cpu-small", "--precision", dtype, "--threads",
                    str(options.threads), "--warmup", "1", "--steps", str(options.steps), "--rounds", "stdin", "--json", *words])


def started(programs):
    """The programs that give a first answer, and the answers: torch.compile makes code that does not compile for some."""
    answers = {}
    for name, program in list(programs.items()):
        try:
            answers[name] = program.read()
        except SystemExit as error:
            print(f"left out: {name}, {error}")
            del programs[name]
    return answers


def take_turns(programs, rounds):
    """Milliseconds of each program's rounds, and its last answer."""
    last = {}
    for round_ in range(rounds + 1):
        for name, program in programs.items():
            last[name] = program.round()
            if round_ == 0:
                program.times.clear()
    for program in programs.values():
        program.close()
    return {name: program.times for name, program in programs.items()}, last


def peaks_of(options, dtype):
    """Peak bytes of tensors of each way that Python can write the step; time is not looked at."""
    peaks = {}
    for name, words in PEERS.items():
        program = peer(options, dtype, *words, "--peak")
        peaks[name] = program.read()["tensor_peak_bytes"]
        program.close()
    return peaks


def measure(options, dtype):
    peaks = peaks_of(options, dtype)
    programs = {}
    for name, words in PEERS.items():
        programs[name] = peer(options, dtype, *words)
        programs[name + "_kept"] = peer(options, dtype, *words, kept=True)
        if options.compile and LAST not in words:
            programs["compile_" + name] = peer(options, dtype, "--mode", "compile", *words)
            programs["compile_" + name + "_kept"] = peer(options, dtype, "--mode", "compile", *words, kept=True)
    started(programs)
    programs["ours"] = ours(options, dtype)
    times, last = take_turns(programs, options.rounds)
    fastest = min((name for name in times if name != "ours"), key=lambda name: median(times[name]))
    ratios = {name: interval([a / b for a, b in zip(times["ours"], times[name])]) for name in times if name != "ours"}
    peaks["ours"] = last["ours"]["memory"]["step_peak_bytes"]
    least = min(value for name, value in peaks.items() if name != "ours")
    return {"dtype": dtype, "step_ms": {name: median(values) for name, values in times.items()}, "fastest": fastest,
            "ratio": ratios[fastest], "ratios": ratios, "peak_bytes": peaks, "memory_ratio": peaks["ours"] / least, "round_ms": times}


def mixed(options, dtype):
    """64 rows of 20 sessions: sessions one after the other and joined, and every row by itself."""
    shape = ["--batch", "64", "--sessions", "20", "--units", "50"]
    programs = {"python_joined": peer(options, dtype, *shape, STENCIL, JOINED, kept=True),
                "python_grouped": peer(options, dtype, *shape, STENCIL, kept=True),
                "python_mixed": peer(options, dtype, *shape, STENCIL, "--mixed", kept=True)}
    started(programs)
    for name, words in (("ours_joined", []), ("ours_grouped", ["--off", "joined_core"])):
        programs[name] = ours(options, dtype, "--recipe.units=[" + ",".join(["50"] * 20) + "]", "--data.batch_size=64", *words)
    times, _ = take_turns(programs, options.rounds)
    return {"dtype": dtype, "step_ms": {name: median(values) for name, values in times.items()}, "round_ms": times,
            "speedup": {name: interval([a / b for a, b in zip(times["python_mixed"], times[name])]) for name in times}}


def show(row):
    print(row["dtype"], "  ".join(f"{name} {ms:.0f} ms" for name, ms in row["step_ms"].items()))
    for name, (ratio, low, high) in row.get("ratios", row.get("speedup")).items():
        what = f"ours / {name}" if "ratios" in row else f"python_mixed / {name}"
        print(f"  {what}: {ratio:.3f} ({low:.3f}..{high:.3f})")
    if "ratios" in row:
        print(f"  fastest peer: {row['fastest']}, bar {TIME_BAR}")
        print("  peak MB", "  ".join(f"{name} {value / 1e6:.0f}" for name, value in row["peak_bytes"].items()))
        print(f"  memory, ours / least: {row['memory_ratio']:.3f}, bar {MEMORY_BAR}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the millrace program")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--compile", action="store_true", help="also torch.compile (minutes to start)")
    parser.add_argument("--mixed", action="store_true", help="grouped against mixed batches")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cpu", choices=CPU, help=CPU_HELP)
    options = parser.parse_args()
    lower_instructions(options.cpu)
    results = []
    for dtype in options.dtypes:
        results.append(mixed(options, dtype) if options.mixed else measure(options, dtype))
        show(results[-1])
    if options.json:
        options.json.write_text(json.dumps({"results": results, "cpu": options.cpu, "load_average": os.getloadavg()}, indent=1) + "\n")
    if options.mixed:
        return 0
    return 1 if any(row["ratio"][0] > TIME_BAR or row["memory_ratio"] > MEMORY_BAR for row in results) else 0


if __name__ == "__main__":
    sys.exit(main())
