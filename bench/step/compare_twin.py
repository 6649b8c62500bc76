"""The training step of neural_response against Python torch: same shape, same machine, one run, interleaved.

    tools/python-peer bench/step/compare_twin.py build/release/millrace [--rounds 9] [--steps 5] [--compile] [--cpu avx2] [--json FILE]
    tools/python-peer bench/step/compare_twin.py build/release/millrace --mixed [--rounds 5] [--rows 32] [--sessions 10]

Ours and Python take turns in fp32 and bf16. Python runs as published (a forward per session, blurs as convolutions), with its core joined over
the sessions, with its blurs as stencils, with both, channels last, each with glibc's own malloc or one that keeps freed memory ("kept"); with
--compile also as torch.compile makes it. Bars: ours <= 0.6 of the fastest of them in each type, and <= 0.7 of the least peak of tensors. --mixed
compares grouped and mixed batches instead: rows of many sessions, their core joined, a forward for each session, or a forward for each row,
on both sides; a row takes each of the three Python programs 0.1 GB, and memory that a virtual machine was never given before comes slowly.
Exits 1 when a bar is missed.
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
    programs = sides.pythons(PEERS, compiled=[name for name, words in PEERS.items() if LAST not in words])
    programs["ours"] = sides.ours()
    times, last = take_turns(programs, options.rounds)
    fastest = min((name for name in times if name != "ours"), key=lambda name: median(times[name]))
    ratios = {name: interval([a / b for a, b in zip(times["ours"], times[name])]) for name in times if name != "ours"}
    peaks["ours"] = last["ours"]["memory"]["step_peak_bytes"]
    least = min(value for name, value in peaks.items() if name != "ours")
    return {"dtype": dtype, "step_ms": {name: median(values) for name, values in times.items()}, "fastest": fastest,
            "ratio": ratios[fastest], "ratios": ratios, "peak_bytes": peaks, "memory_ratio": peaks["ours"] / least, "round_ms": times}


def shape_of_mixed(parser):
    parser.add_argument("--rows", type=int, default=32, help="of a batch of --mixed")
    parser.add_argument("--sessions", type=int, default=10, help="of a batch of --mixed")


def mixed(options, dtype):
    """Rows of many sessions: the core joined over them, a forward for each session, and a forward for each row."""
    sides = Sides(options, dtype, *NAMES)
    rows, sessions = options.rows, options.sessions
    shape = ["--batch", str(rows), "--sessions", str(sessions), "--units", "50"]
    programs = {"python_joined": sides.peer(*shape, STENCIL, JOINED, kept=True),
                "python_grouped": sides.peer(*shape, STENCIL, kept=True),
                "python_mixed": sides.peer(*shape, STENCIL, "--mixed", kept=True)}
    started(programs)
    # A session for each row is a forward for each row, with more readouts.
    for name, groups, words in (("ours_joined", sessions, []), ("ours_grouped", sessions, ["--off", "joined_core"]),
                                ("ours_mixed", rows, ["--off", "joined_core"])):
        programs[name] = sides.ours("--recipe.units=[" + ",".join(["50"] * groups) + "]", f"--data.batch_size={rows}", *words)
    times, _ = take_turns(programs, options.rounds)
    return {"dtype": dtype, "rows": rows, "sessions": sessions, "step_ms": {name: median(values) for name, values in times.items()},
            "round_ms": times, "against": "python_mixed", "speedup": {name: interval([a / b for a, b in zip(times["python_mixed"], times[name])]) for name in times}}


if __name__ == "__main__":
    sys.exit(main(__doc__, measure, TIME_BAR, MEMORY_BAR, more=("mixed", mixed), add_options=shape_of_mixed))
