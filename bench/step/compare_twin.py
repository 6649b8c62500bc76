"""The training step of neural_response against Python torch: same shape, same machine, one run, interleaved.

    tools/python-peer bench/step/compare_twin.py build/release/millrace [--rounds 9] [--steps 1] [--compile] [--cpu avx2] [--json FILE]
    tools/python-peer bench/step/compare_twin.py build/release/millrace --mixed [--rounds 3]

Ours and Python take turns in fp32 and bf16. Python runs as published (a forward per session, blurs as convolutions), with its core joined over
the sessions, with its blurs as stencils, with both, channels last, each with glibc's own malloc or one that keeps freed memory ("kept"); with
--compile also as torch.compile makes it. Bars: ours <= 0.6 of the fastest of them in each type, and <= 0.7 of the least peak of tensors. --mixed
compares grouped and mixed batches instead: 64 rows of 20 sessions, grouped by session or one forward for each row. Exits 1 when a
bar is missed.
"""

import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from compare import interval
from sides import Sides, main, started, take_turns

TIME_BAR, MEMORY_BAR = 0.6, 0.7
NAMES = "twin_step_peer.py", "neural_response"
STENCIL, JOINED, LAST = "--stencil", "--joined", "--channels-last"
PEERS = {"published": [], "joined": [JOINED], "stencil": [STENCIL], "stencil_joined": [STENCIL, JOINED],
         "joined_last": [JOINED, LAST], "stencil_joined_last": [STENCIL, JOINED, LAST]}


def measure(options, dtype):
    sides = Sides(options, dtype, *NAMES)
    peaks = sides.peaks(PEERS)
    programs = {}
    for name, words in PEERS.items():
        programs[name] = sides.peer(*words)
        programs[name + "_kept"] = sides.peer(*words, kept=True)
        if options.compile and LAST not in words:
            programs["compile_" + name] = sides.peer("--mode", "compile", *words)
            programs["compile_" + name + "_kept"] = sides.peer("--mode", "compile", *words, kept=True)
    started(programs)
    programs["ours"] = sides.ours()
    times, last = take_turns(programs, options.rounds)
    fastest = min((name for name in times if name != "ours"), key=lambda name: median(times[name]))
    ratios = {name: interval([a / b for a, b in zip(times["ours"], times[name])]) for name in times if name != "ours"}
    peaks["ours"] = last["ours"]["memory"]["step_peak_bytes"]
    least = min(value for name, value in peaks.items() if name != "ours")
    return {"dtype": dtype, "step_ms": {name: median(values) for name, values in times.items()}, "fastest": fastest,
            "ratio": ratios[fastest], "ratios": ratios, "peak_bytes": peaks, "memory_ratio": peaks["ours"] / least, "round_ms": times}


def mixed(options, dtype):
    """64 rows of 20 sessions: sessions one after the other and joined, and every row by itself."""
    sides = Sides(options, dtype, *NAMES)
    shape = ["--batch", "64", "--sessions", "20", "--units", "50"]
    programs = {"python_joined": sides.peer(*shape, STENCIL, JOINED, kept=True),
                "python_grouped": sides.peer(*shape, STENCIL, kept=True),
                "python_mixed": sides.peer(*shape, STENCIL, "--mixed", kept=True)}
    started(programs)
    for name, words in (("ours_joined", []), ("ours_grouped", ["--off", "joined_core"])):
        programs[name] = sides.ours("--recipe.units=[" + ",".join(["50"] * 20) + "]", "--data.batch_size=64", *words)
    times, _ = take_turns(programs, options.rounds)
    return {"dtype": dtype, "step_ms": {name: median(values) for name, values in times.items()}, "round_ms": times,
            "against": "python_mixed", "speedup": {name: interval([a / b for a, b in zip(times["python_mixed"], times[name])]) for name in times}}


if __name__ == "__main__":
    sys.exit(main(__doc__, measure, TIME_BAR, MEMORY_BAR, more=("mixed", mixed)))
