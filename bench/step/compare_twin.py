"""The training step of neural_response against Python torch: same shape, same machine, one run, interleaved.

    tools/python-peer bench/step/compare_twin.py build/release/millrace [--rounds 9] [--steps 5] [--compile] [--cpu avx2] [--json FILE]
    tools/python-peer bench/step/compare_twin.py build/release/millrace --mixed [--rounds 5] [--rows 32] [--sessions 10]

Ours and Python take turns in fp32 and bf16. Python runs as published (a forward per session, blurs as convolutions), with its core joined over
the sessions, with its blurs as stencils, with both, channels last, each with glibc's own malloc or one that keeps freed memory ("kept"); with
--compile also as torch.compile makes it. Bars: ours <= 0.6 of the fastest of them in each type, and <= 0.7 of the least peak of tensors. --mixed
compares grouped and mixed batches instead: rows of many sessions, their core joined, a forward for each session, or a forward for each row,
on both sides; each row takes 0.1 GB in each of the three Python programs, and a virtual machine is slow to get memory for the first time.
Exits 1 when a bar is missed.
"""

import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from sides import Sides, compared, main
from turns import interval, started, take_turns

TIME_BAR, MEMORY_BAR = 0.6, 0.7
NAMES = "twin_step_peer.py", "neural_response"
STENCIL, JOINED, LAST = "--stencil", "--joined", "--channels-last"
PEERS = {"published": [], "joined": [JOINED], "stencil": [STENCIL], "stencil_joined": [STENCIL, JOINED],
         "joined_last": [JOINED, LAST], "stencil_joined_last": [STENCIL, JOINED, LAST]}


def measure(options, dtype):
    compiled = {name: words for name, words in PEERS.items() if LAST not in words}
    return compared(Sides(options, dtype, *NAMES), PEERS, compiled, {"ours": []})


def shape_of_mixed(parser):
    parser.add_argument("--rows", type=int, default=32, help="of a batch of --mixed")
    parser.add_argument("--sessions", type=int, default=10, help="of a batch of --mixed")


def mixed(options, dtype):
    """Rows of many sessions: the core joined over them, a forward for each session, and a forward for each row."""
    sides = Sides(options, dtype, *NAMES)
    rows, sessions = options.rows, options.sessions
    shape = ["--size", f"rows={rows}", "units=" + ",".join(["50"] * sessions)]
    programs = {"python_joined": sides.peer(*shape, STENCIL, JOINED, kept=True),
                "python_grouped": sides.peer(*shape, STENCIL, kept=True),
                "python_mixed": sides.peer(*shape, STENCIL, "--mixed", kept=True)}
    started(programs)
    # A session for each row is a forward for each row, with more readouts.
    for name, groups, words in (("ours_joined", sessions, []), ("ours_grouped", sessions, ["--off", "joined_core"]),
                                ("ours_mixed", rows, ["--off", "joined_core"])):
        programs[name] = sides.ours("--recipe.units=[" + ",".join(["50"] * groups) + "]", f"--data.batch_size={rows}", *words)
    times = take_turns(programs, options.rounds, same=False)
    return {"dtype": dtype, "rows": rows, "sessions": sessions, "step_ms": {name: median(values) for name, values in times.items()},
            "round_ms": times, "against": "python_mixed", "speedup": {name: interval([a / b for a, b in zip(times["python_mixed"], times[name])]) for name in times}}


if __name__ == "__main__":
    sys.exit(main(__doc__, measure, TIME_BAR, MEMORY_BAR, more=("mixed", mixed), add_more=shape_of_mixed))
