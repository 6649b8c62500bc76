#!/usr/bin/env python3
"""Writes docs/gpu-kernels.md: what nvcc makes of each kernel in src/millrace/device/cuda, beside the bytes that it moves.

usage: tools/gpu_kernels.py [--check]      --check: says whether the page names each kernel of the sources, without nvcc

Needs nvcc and the torch wheel of ./dev build. Registers and shared memory are the largest among a kernel's types.
"""
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CUDA = ROOT / "src/millrace/device/cuda"
PAGE = ROOT / "docs/gpu-kernels.md"
ARCHITECTURES = (80, 90, 100)
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(")

# What a kernel reads and writes for each element of x, and what no kernel could do without. x, y: one tensor of x's or y's size.
MOVES = {
    "elementwise": ("dropout: x, residual, result; GELU: x, result; backward: x, gradient, result", "the same"),
    "pointwise": ("x, result; backward: x, gradient, result", "the same"),
    "write": ("at most 2 KB", "the same"),
    "norm_forward": ("residual, branch, sum, y", "the same"),
    "norm_backward": ("sum, gradients of sum and y, gradients of residual and branch", "the same"),
    "forward": ("logits", "the same"),
    "backward": ("logits, their gradient", "the same"),
    "column_sums": ("x", "the same"),
    "lerp": ("average, value, average", "the same"),
    "pad": ("x, padded x", "the same"),
    "unpad": ("padded x, x", "the same"),
    "sum_planes": ("x; backward: x, gradient", "0, if a group fits into a multiprocessor's memory"),
    "sum_pixels": ("x; backward: x, gradient", "0, if a group fits into a multiprocessor's memory"),
    "soft_pool": ("x, result; backward: x, gradient, result", "the same"),
    "settle": ("two numbers for each channel and share", "the same"),
    "apply": ("x, result; backward: x, gradient, a second branch's gradient, result", "the same"),
    "planes": ("x twice, result; backward: x and gradient twice, result; the second time from the cache", "each once"),
    "pixels": ("x twice, result; backward: x and gradient twice, result; the second time from the cache", "each once"),
    "rms_rows": ("x, branch, sum, y; the sum again, from the cache; backward: sum, gradients of sum and y twice, gradients", "each once"),
    "swiglu": ("both halves, result; backward: both, gradient, gradients of both", "the same"),
    "turn": ("x, result", "the same"),
}


def kernels_of(source):
    return KERNEL.findall(source.read_text(encoding="utf-8"))


def compiler():
    found = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    sites = sorted(ROOT.glob(".deps/venv/lib/python3*/site-packages"))
    if not Path(found).exists() or not sites:
        sys.exit("Error  there is no nvcc or no torch\n  where    PATH, .deps\n  next     run ./dev build where CUDA 13 is installed")
    return [found, "-std=c++20", "-O3", "--expt-relaxed-constexpr", f"-I{ROOT / 'src'}", "-isystem", str(sites[0] / "torch/include")]


def run(words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"Error  nvcc failed: {done.stderr[:500]}\n  where    {' '.join(words)}\n  next     mend the source")
    return done


def resources(nvcc, source, architecture):
    """{kernel: (registers, bytes of shared memory, bytes spilled)}, the largest among its types."""
    with tempfile.TemporaryDirectory() as folder:
        text = run([*nvcc, f"-gencode=arch=compute_{architecture},code=sm_{architecture}", "-Xptxas=-v", "-c", str(source), "-o", f"{folder}/kernels.o"]).stderr
    found = {}
    for block in re.split(r"Compiling entry function", text)[1:]:
        name = next((kernel for kernel in kernels_of(source) if re.search(rf"\d{kernel}(I|E|P)", block.split("'")[1])), None)
        numbers = [int((re.search(pattern, block) or [0, 0])[1]) for pattern in (r"Used (\d+) registers", r"(\d+) bytes smem", r"(\d+) bytes spill stores")]
        found[name] = tuple(max(pair) for pair in zip(found.get(name, (0, 0, 0)), numbers))
    return found


def widths(nvcc, source):
    """{kernel: most bytes that one load or store of the device's memory moves}."""
    with tempfile.TemporaryDirectory() as folder:
        run([*nvcc, "-arch=compute_90", "-ptx", str(source), "-o", f"{folder}/kernels.ptx"])
        text = Path(folder, "kernels.ptx").read_text(encoding="utf-8")
    found = {}
    for block in re.split(r"\.entry ", text)[1:]:
        name = next((kernel for kernel in kernels_of(source) if re.search(rf"\d{kernel}(I|E|P)", block.split("(")[0])), None)
        moved = [int(count or 1) * int(bits) // 8 for count, bits in re.findall(r"(?:ld|st)\.global(?:\.nc)?(?:\.L\w+)?(?:\.v(\d))?\.[bfus](\d+)", block)]
        found[name] = max([found.get(name, 0), *moved])
    return found


def page():
    nvcc = compiler()
    lines = ["# The kernels of the GPU plugin", "",
             "`tools/gpu_kernels.py` writes this page with nvcc; a test holds it against the sources. Registers and shared memory are the largest among a",
             "kernel's types; no kernel spills a register, which ends the build. What each moves is for an element of x; \"least\" is what no kernel could do without.", "",
             "| kernel | registers, sm_80 / sm_90 / sm_100 | shared memory | widest access | moves | least |", "|---|---|---|---|---|---|"]
    for source in sorted(CUDA.glob("*.cu")):
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda architecture: resources(nvcc, source, architecture), ARCHITECTURES))
        widest = widths(nvcc, source)
        for kernel in kernels_of(source):
            registers = " / ".join(str(each[kernel][0]) for each in found)
            shared = max(each[kernel][1] for each in found)
            moves, least = MOVES[kernel]
            lines.append(f"| `{kernel}` ({source.name}) | {registers} | {f'{shared:,} B' if shared else '0'} | {widest[kernel]} B | {moves} | {least} |")
    return "\n".join(lines) + "\n"


def missing():
    text = PAGE.read_text(encoding="utf-8")
    return [f"{source.name}: {kernel}" for source in sorted(CUDA.glob("*.cu")) for kernel in kernels_of(source)
            if f"| `{kernel}` ({source.name}) |" not in text or kernel not in MOVES]


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        lost = missing()
        sys.exit(None if not lost else "docs/gpu-kernels.md lacks " + ", ".join(lost) + ": run tools/gpu_kernels.py")
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
