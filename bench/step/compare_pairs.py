"""The training step of image_pairs against Python torch: same shape, same machine, one run, interleaved.

    tools/python-peer bench/step/compare_pairs.py build/release/millrace [--rounds 9] [--steps 10] [--compile] [--cpu avx2] [--json FILE]

Ours and Python take turns in fp32 and bf16. Python looks at each image once for both orders of its pair, or for each order ("unshared"), and
multiplies projections of one input apart or as one ("packed"); in bf16 its decoder's residuals are fp32, or bf16 ("narrow"). Each with glibc's own
malloc or one that keeps freed memory ("kept"); with --compile also as torch.compile makes it. Its steps are short: --steps 10 makes a turn of ten. Bars:
ours <= 0.5 of the fastest of them in bf16, <= 0.65 in fp32, and <= 0.6 of the least peak of tensors. Exits 1 when a bar is missed.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from sides import Sides, compared, main

TIME_BARS, MEMORY_BAR = {"fp32": 0.65, "bf16": 0.5}, 0.6
PEERS = {"shared": [], "unshared": ["--unshared"], "packed": ["--packed"]}
BF16_PEERS = {"packed_narrow": ["--packed", "--narrow"]}


def measure(options, dtype):
    sides = Sides(options, dtype, "pairs_step_peer.py", "image_pairs")
    ways = {**PEERS, **(BF16_PEERS if dtype == "bf16" else {})}
    # Frozen weights are kept in the step's format from the start.
    ours = {"ours": [f"--precision.dtype={'bf16' if dtype == 'bf16' else 'fp32'}"]}
    return compared(sides, ways, {name: words for name, words in ways.items() if name != "unshared"}, ours)


if __name__ == "__main__":
    sys.exit(main(__doc__, measure, TIME_BARS, MEMORY_BAR))
