"""The training step of image_pairs against Python torch: same shape, same machine, one run, interleaved.

    tools/python-peer bench/step/compare_pairs.py build/release/millrace [--rounds 9] [--steps 10] [--compile] [--cpu avx2] [--json FILE]

Ours and Python take turns in fp32 and bf16. Python looks at each image once for both orders of its pair, or for each order ("unshared"), and
multiplies projections of one input apart or as one ("packed"); in bf16 its decoder's residuals are fp32, or bf16 ("narrow"). Each with glibc's own
malloc or one that keeps freed memory ("kept"); with --compile also as torch.compile makes it. Its steps are short: --steps 10 makes a turn of ten. Bars:
ours <= 0.5 of the fastest of them in bf16, <= 0.65 in fp32, and <= 0.6 of the least peak of tensors. Exits 1 when a bar is missed.
"""

import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from compare import interval
from sides import Sides, main, take_turns

TIME_BARS, MEMORY_BAR = {"fp32": 0.65, "bf16": 0.5}, 0.6
PEERS = {"shared": [], "unshared": ["--unshared"], "packed": ["--packed"]}
BF16_PEERS = {"packed_narrow": ["--packed", "--narrow"]}


def measure(options, dtype):
    sides = Sides(options, dtype, "pairs_step_peer.py", "image_pairs")
    ways = {**PEERS, **(BF16_PEERS if dtype == "bf16" else {})}
    peaks = sides.peaks(ways)
    programs = sides.pythons(ways, compiled=[name for name in ways if name != "unshared"])
    programs["ours"] = sides.ours(f"--precision.dtype={dtype}")  # frozen weights are kept in it from the start
    times, last = take_turns(programs, options.rounds)
    rivals = [name for name in times if name != "ours"]
    fastest = min(rivals, key=lambda name: median(times[name]))
    ratios = {name: interval([a / b for a, b in zip(times["ours"], times[name])]) for name in rivals}
    peaks["ours"] = last["ours"]["memory"]["step_peak_bytes"]
    return {"dtype": dtype, "step_ms": {name: median(values) for name, values in times.items()}, "fastest": fastest, "ratio": ratios[fastest],
            "ratios": ratios, "peak_bytes": peaks, "memory_ratio": peaks["ours"] / min(value for name, value in peaks.items() if name != "ours"),
            "round_ms": times}


if __name__ == "__main__":
    sys.exit(main(__doc__, measure, TIME_BARS, MEMORY_BAR))
