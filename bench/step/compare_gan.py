"""The training step of autoencoder_3d against Python torch: same shape, same machine, one run, interleaved.

    tools/python-peer bench/step/compare_gan.py build/release/millrace [--rounds 9] [--steps 5] [--compile] [--cpu avx2] [--json FILE]

Ours and Python take turns in fp32 and bf16. Python runs contiguous and channels last, each with glibc's own malloc or one that keeps freed memory
("kept"), and with the discriminator's weights frozen in the generator's pass ("frozen"); with --compile also as torch.compile makes it. Bars:
ours, in the layout that a run would choose, <= 0.8 of the fastest of them in each type, and <= 0.7 of the least peak of tensors. Exits 1 when a
bar is missed.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from sides import Sides, compared, main

TIME_BAR, MEMORY_BAR = 0.8, 0.7
PEERS = {"contiguous": [], "frozen": ["--frozen"], "channels_last": ["--channels-last"], "frozen_channels_last": ["--frozen", "--channels-last"]}
LAYOUTS = {"ours": ["--device.layout=contiguous"], "ours_channels_last": ["--device.layout=channels_last"]}


def measure(options, dtype):
    sides = Sides(options, dtype, "gan_step_peer.py", "autoencoder_3d")
    return compared(sides, PEERS, {name: words for name, words in PEERS.items() if "frozen" in name}, LAYOUTS)


if __name__ == "__main__":
    sys.exit(main(__doc__, measure, TIME_BAR, MEMORY_BAR))
