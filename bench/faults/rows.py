"""Tries the rows of docs/known-faults.md on the torch at hand, without Millrace: random shapes of each row, past any guard.

    tools/python-peer bench/faults/rows.py [--shapes 150] [--threads 1 2 4] [--isa AVX2 AVX512_CORE best]
    MILLRACE_TORCH=.deps/torch-2.15 tools/python-peer bench/faults/rows.py

Each row, instruction set and number of threads runs in a process of its own, with fresh memory full of large numbers (MALLOC_PERTURB_) and
with glibc looking at its heap at each free (MALLOC_CHECK_, where libc_malloc_debug.so is there). A line says how many shapes were off by more than
5 % from the same numbers in double, the largest error, and what the process died of. A row whose CPUs this machine does not belong to is
named as not tried.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

SETS = ["AVX2", "AVX512_CORE", "AVX512_CORE_BF16", "best"]
MALLOC_DEBUG = Path("/lib/x86_64-linux-gnu/libc_malloc_debug.so.0")


def extent(shape, i):
    return (shape["input"][i + 2] + 2 * shape["padding"][i] - shape["weight"][i + 2]) // shape["stride"][i] + 1


def volume_or_plane(draw):
    return draw.choice([2, 3, 3])


def shape_of(draw, axes, kernels, strides, sizes, channels=(1, 32), padded=True):
    """A convolution: for each axis in space a kernel, a stride and a size."""
    kernel, stride = [draw.choice(kernels) for _ in range(axes)], [draw.choice(strides) for _ in range(axes)]
    padding = [draw.randint(0, size // 2) if padded else 0 for size in kernel]
    size = [max(draw.randint(*sizes), k - 2 * p) for k, p in zip(kernel, padding)]
    ins, outs = draw.randint(*channels), draw.randint(1, 32)
    return {"input": [draw.randint(1, 4), ins, *size], "weight": [outs, ins, *kernel], "stride": stride, "padding": padding,
            "last": draw.random() < 0.5}


def strided_point(draw):
    shape = shape_of(draw, volume_or_plane(draw), [1], [2, 3], (2, 32), (1, 15), padded=False)
    return {**shape, "last": True, "format": draw.choice(["float32", "bfloat16"])}


def ends_in_one(draw):
    while True:
        shape = shape_of(draw, volume_or_plane(draw), [1, 2, 3, 4], [1, 2, 3, 4], (1, 18))
        if shape["stride"][-1] > 1 and extent(shape, len(shape["stride"]) - 1) == 1:
            return shape


def steps_over(draw):
    while True:
        shape = shape_of(draw, volume_or_plane(draw), [1, 2, 3], [1, 2, 3, 4], (4, 24))
        outer = range(len(shape["stride"]) - 1)
        if any(shape["stride"][i] > shape["weight"][i + 2] for i in outer) and max(shape["weight"][2:]) > 1:
            return shape


def kernel_longer(draw):
    while True:
        shape = shape_of(draw, 3, [1, 3, 4, 5], [1, 1, 2], (1, 9))
        if any(k > size for k, size in zip(shape["weight"][2:], shape["input"][2:])):
            return shape


def cut_volume(draw):
    ins = draw.choice([8, 17, 32])
    return {"input": [1, ins, draw.randint(1, 4), draw.choice([128, 256, 512]), draw.choice([65, 128])], "weight": [20, ins, 3, 3, 3],
            "stride": [1, 1, 1], "padding": [1, 1, 1], "last": draw.random() < 0.5}


def small_volume(draw):
    size = draw.randint(12, 24)
    return {"input": [1, 16, size, size, size], "weight": [16, 16, 3, 3, 3], "stride": [1] * 3, "padding": [1] * 3, "last": False,
            "format": "float32"}


# name: (first set of instructions, pass, how a shape is drawn)
ROWS = {"oneDNN-6035": ("avx2", "weight", strided_point), "oneDNN-amx-volumes": ("amx_bf16", "weight", cut_volume),
        "pytorch-169688": ("avx512f", "forward", ends_in_one), "oneDNN-bf16-last": ("avx512f", "weight", ends_in_one),
        "oneDNN-5494": ("amx_bf16", "forward", steps_over), "oneDNN-bf16-short": ("avx512f", "weight", kernel_longer),
        "pytorch-one-volume": ("avx2", "time", small_volume)}


def error_of(torch, shape, passed):
    kind = getattr(torch, shape.get("format", "bfloat16"))
    axes = len(shape["stride"])
    layout = [None, None, torch.channels_last, torch.channels_last_3d][axes] if shape["last"] else torch.contiguous_format

    def own(tensor, to):
        return tensor.to(to).contiguous(memory_format=layout) if to == kind else tensor.to(to)

    x, k = torch.randn(shape["input"]).bfloat16(), torch.randn(shape["weight"]).bfloat16()
    rest = [shape["stride"], shape["padding"], [1] * axes, False, [0] * axes, 1]

    def forward(to):
        return torch.ops.aten.convolution(own(x, to), own(k, to), None, *rest)

    exact = forward(torch.double)
    if passed == "forward":
        found = forward(kind)
    else:
        g = torch.randn(exact.shape).bfloat16()
        found, exact = (torch.ops.aten.convolution_backward(own(g, to), own(x, to), own(k, to), [0], *rest, [False, True, False])[1]
                        for to in (kind, torch.double))
    error = float((found.double() - exact).norm() / exact.norm().clamp(min=1e-30))
    return error if error == error else float("inf")


def slowness_of(torch, shape):
    """How many times longer torch's own choice takes than oneDNN, in CPU time."""
    x, k = torch.randn(shape["input"]), torch.randn(shape["weight"])
    ways = [lambda: torch.nn.functional.conv3d(x, k, padding=1), lambda: torch.mkldnn_convolution(x, k, None, [1] * 3, [1] * 3, [1] * 3, 1)]
    times = [[], []]
    for _ in range(7):
        for way, seconds in zip(ways, times):
            way()
            began = time.process_time()
            way()
            seconds.append(time.process_time() - began)
    return min(times[0]) / min(times[1])


def child(row, shapes, threads):
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    draw = random.Random(row)
    _, passed, drawn = ROWS[row]
    for n in range(max(3, shapes // 20) if passed == "time" else shapes):
        shape = drawn(draw)
        value = slowness_of(torch, shape) if passed == "time" else error_of(torch, shape, passed)
        print(json.dumps([value, shape]), flush=True)
    print(json.dumps("end"), flush=True)


def tried(row, shapes, threads, isa):
    """One process; says in words what came of it."""
    environment = {**os.environ, "MALLOC_PERTURB_": "128", "OMP_WAIT_POLICY": "passive"}  # on a busy machine threads that spin take minutes
    if isa != "best":
        environment.update(ONEDNN_MAX_CPU_ISA=isa, ATEN_CPU_CAPABILITY="avx2" if isa == "AVX2" else "avx512")
    if MALLOC_DEBUG.exists() and ROWS[row][1] != "time":
        environment.update(LD_PRELOAD=str(MALLOC_DEBUG), MALLOC_CHECK_="3")
    done = subprocess.run([sys.executable, __file__, "--child", row, str(shapes), str(threads)], env=environment, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    values = [line for line in lines if line != "end"]
    if ROWS[row][1] == "time":
        return "torch / oneDNN, CPU time: " + ", ".join(f"{value:.1f}" for value, _ in values)
    wrong = [line for line in values if line[0] > (1e-4 if line[1].get("format") == "float32" else 0.05)]
    worst = max(wrong, default=None, key=lambda line: line[0])
    said = f"{len(wrong)} of {len(values)} wrong"
    if worst:
        said += f", by up to {worst[0]:.2g}: {worst[1]['input']} x {worst[1]['weight']} stride {worst[1]['stride']} padding {worst[1]['padding']}"
    if done.returncode != 0:
        said += f"; died ({done.returncode}): {(done.stderr.strip().splitlines() or ['no words'])[-1][:100]}"
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=150)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--isa", nargs="+", choices=SETS, default=["AVX2", "AVX512_CORE", "best"])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    options = parser.parse_args()
    import torch
    flags = Path("/proc/cpuinfo").read_text().split()
    print(f"torch {torch.__version__}, {torch.__config__.show().split('MKL-DNN')[1].split('(')[0].strip()}")
    for row in options.rows:
        if ROWS[row][0] not in flags:
            print(f"{row}: not tried, this CPU has no {ROWS[row][0]}")
            continue
        for isa in options.isa:
            if isa == "AVX2" and ROWS[row][0] != "avx2":
                continue
            for threads in options.threads:
                print(f"{row}, {isa}, {threads} threads: {tried(row, options.shapes, threads, isa)}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
