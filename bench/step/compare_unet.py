"""The training step of cosmology against Python torch: same shape, same machine, one run, interleaved.

    tools/python-peer bench/step/compare_unet.py build/release/millrace [--rounds 9] [--steps 3] [--compile] [--cpu avx2] [--json FILE]

Ours and Python (eager, with --compile also torch.compile) take turns in fp32 and bf16, each with contiguous and with channels-last volumes.
"kept" has glibc keep freed memory; "cat" pads by slices and cat, which compile fuses. The bar, 0.8, is ours in the layout that a run would
choose, the faster one, against contiguous eager, the way the original runs; the fastest way is named too. Exits 1 when it is missed.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from sides import Sides, compared, main

BAR = 0.8
CAT, LAST = ["--pad", "cat"], ["--channels-last"]
PEERS = {"eager": [], "eager_channels_last": LAST}
COMPILED = {"eager": [], "cat": CAT, "cat_channels_last": CAT + LAST}
LAYOUTS = {"ours": ["--device.layout=contiguous"], "ours_channels_last": ["--device.layout=channels_last"]}


def measure(options, dtype):
    sides = Sides(options, dtype, "unet_step_peer.py", "cosmology")
    return compared(sides, PEERS, COMPILED, LAYOUTS, against=None if sides.on_gpu else "eager")


if __name__ == "__main__":
    sys.exit(main(__doc__, measure, BAR, steps=3))
