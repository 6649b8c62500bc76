"""Attention and 3-D convolutions on two torches in turns, without Millrace: what a newer torch offers.

    tools/python-peer bench/torches/operations.py --other-torch .deps/torch-2.15 [--rounds 9] [--threads 2] [--json FILE]

Forward and backward of each operation, in fp32 and bf16. Each torch runs in a process of its own; in a round each process times each operation
once, after a call that does not count. A figure is the median of the rounds; the ratio is that of the other torch to the one at hand, round by round,
with its 95 % interval. It also says whether attention with dropout has a fused kernel on the CPU.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "step"))
from turns import interval


def attention(torch, dtype, dropout):
    parts = [torch.randn(8, 4, 256, 32, dtype=dtype, requires_grad=True) for _ in range(3)]
    return lambda: torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True, dropout_p=dropout)


def convolution(torch, dtype, inputs, layout):
    x, weight = [torch.randn(shape, dtype=dtype).contiguous(memory_format=layout).requires_grad_() for shape in ((1, inputs, 64, 64, 48), (16, inputs, 3, 3, 3))]
    return lambda: torch.nn.functional.conv3d(x, weight, padding=1)


def operations(torch):
    all_of = {}
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        for dropout in (0.0, 0.1):
            all_of[f"attention, dropout {dropout:g}, {name}"] = attention(torch, dtype, dropout)
        for inputs in (1, 16):
            for layout in (torch.contiguous_format, torch.channels_last_3d):
                all_of[f"conv3d {inputs} to 16 channels, {str(layout).removeprefix('torch.')}, {name}"] = convolution(torch, dtype, inputs, layout)
    return all_of


def has_fused_dropout(torch):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    try:
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            attention(torch, torch.float32, 0.1)()
    except RuntimeError:
        return False
    return True


def child(threads):
    """Answers each line of standard input with the milliseconds of each operation."""
    import torch
    warnings.simplefilter("ignore")  # has_fused_dropout() says what torch warns of
    torch.set_num_threads(threads)
    all_of = operations(torch)
    print(json.dumps({"torch": torch.__version__, "fused_dropout": has_fused_dropout(torch)}), flush=True)
    for _ in sys.stdin:
        times = {}
        for name, forward in all_of.items():
            for _ in range(2):
                begin = time.perf_counter()
                forward().sum().backward()
                times[name] = 1e3 * (time.perf_counter() - begin)
        print(json.dumps(times), flush=True)


def start(threads, site=None):
    environment = {**os.environ, **({"MILLRACE_TORCH": str(site)} if site else {})}
    return subprocess.Popen([str(ROOT / "tools" / "python-peer"), __file__, "--child", "--threads", str(threads)], env=environment, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other-torch", type=Path, metavar="SITE", help="the site-packages folder of the other torch")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.threads)
    if not options.other_torch or not (options.other_torch / "torch").is_dir():
        parser.error("--other-torch needs a folder with torch, such as .deps/torch-2.15")
    children = [start(options.threads), start(options.threads, options.other_torch.resolve())]
    said = [json.loads(each.stdout.readline()) for each in children]
    rounds = []
    for _ in range(options.rounds + 1):  # the first finds the memory not yet given to the process
        rounds.append([])
        for each in children:
            each.stdin.write("\n")
            each.stdin.flush()
            rounds[-1].append(json.loads(each.stdout.readline()))
    for each in children:
        each.stdin.close()
        each.wait()
    results = []
    for name in rounds[1][0]:
        here, there = [times[0][name] for times in rounds[1:]], [times[1][name] for times in rounds[1:]]
        ratio = interval([b / a for a, b in zip(here, there)])
        results.append({"operation": name, "ms": [median(here), median(there)], "ratio": ratio})
        print(f"{name}: {median(here):.1f} and {median(there):.1f} ms, {ratio[0]:.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}]")
    for each in said:
        print(f"torch {each['torch']}: attention with dropout has {'a' if each['fused_dropout'] else 'no'} fused kernel on the CPU")
    if options.json:
        Path(options.json).write_text(json.dumps({"torches": said, "results": results}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
