#!/usr/bin/env python3
"""Bytes that a training step moves through a GPU's memory, counted without a GPU: ours, Python eager, and what torch.compile's fusion leaves.

    tools/python-peer bench/bytes/compare.py build/release/standin/millrace [--recipes NAME...] [--shape gpu-small] [--details] [--json FILE]

Ours are the operations that a step launches on the stand-in device (tests/standin), which computes nothing here. README.md has the rule by which all
three are counted. Exits 1 where ours moves more than the least of the compiled ways.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
from operands import KINDS, Moved, Operand, by_name, moved, sums

WARMUP, STEPS = 2, 1
LAYOUTS = {"contiguous": ["--device.layout=contiguous"], "channels_last": ["--device.layout=channels_last"]}
# The peer of each recipe, its eager ways and its compiled ones, the fastest there are on a GPU (docs/gpu.md).
PEERS = {
    "language_model": ("gpt_step_peer", {"": []}, {"": []}),
    "cosmology": ("unet_step_peer", {"": [], "channels_last": ["--channels-last"]},
                  {"cat": ["--pad", "cat"], "cat_channels_last": ["--pad", "cat", "--channels-last"]}),
    "autoencoder_3d": ("gan_step_peer", {"frozen": ["--frozen"]},
                       {"frozen": ["--frozen"], "frozen_channels_last": ["--frozen", "--channels-last"]}),
    "neural_response": ("twin_step_peer", {"joined": ["--joined"]}, {"stencil_joined": ["--stencil", "--joined"]}),
    "image_pairs": ("pairs_step_peer", {"packed": ["--packed"]}, {"packed": ["--packed"], "packed_narrow": ["--packed", "--narrow"]}),
}


class Failed(Exception):
    """A program gave no answer."""


def run(words, environment=None):
    done = subprocess.run([str(word) for word in words], env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"exit status {done.returncode}: {' '.join(map(str, words))}\n{done.stderr[-2000:]}")
    return done.stdout


def operations_of(lines, steps):
    """The operations of the last whole step in the stand-in's list of a run of `steps` steps. A step of several objectives has an update for each."""
    parts = [[]]
    for line in lines:
        entry = json.loads(line)
        if "step" in entry:
            parts.append([])
        else:
            operands = [Operand(address, size, bool(read), bool(written)) for address, size, read, written in entry["operands"]]
            parts[-1].append(moved(entry["operation"], operands))
    updates = len(parts) - 1
    if updates % steps or not updates:
        raise Failed(f"{updates} updates in {steps} steps")
    each = updates // steps
    return [operation for part in parts[updates - each:updates] for operation in part]


def ours(program, recipe, shape, dtype, words):
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "operations"
        run([program, "bench", "step", recipe, "--shape", shape, "--precision", dtype, "--threads", "1", "--warmup", WARMUP, "--steps", STEPS, "--json",
             "--device.name=cuda", "--device.tf32=on", "--off", "step_graph", *words],
            {"LD_LIBRARY_PATH": str(program.parent), "STANDIN_KERNELS": "none", "STANDIN_MEMORY_MB": "400000", "STANDIN_OPERATIONS": str(listed)})
        # The first step is in none of the two numbers.
        return operations_of(listed.read_text(encoding="utf-8").splitlines(), 1 + WARMUP + STEPS)


def torch_side(script, way, shape, dtype, words):
    text = run([sys.executable, HERE / "torch_side.py", script, way, "--shape", shape, "--dtype", dtype, *words])
    return [Moved(*operation) for operation in json.loads(text.splitlines()[-1])]


def counted(recipe, options):
    """{side: {way: operations}}."""
    script, eager, compiled = PEERS[recipe]
    layouts = LAYOUTS if recipe in ("cosmology", "autoencoder_3d") else {"": []}
    if recipe == "image_pairs":  # frozen weights are kept in the step's format, as in Python
        layouts = {"": [f"--precision.dtype={options.dtype}"]}
    return {"ours": {name: ours(options.program.resolve(), recipe, options.shape, options.dtype, words) for name, words in layouts.items()},
            "eager": {name: torch_side(script, "eager", options.shape, options.dtype, words) for name, words in eager.items()},
            "compile": {name: torch_side(script, "compile", options.shape, options.dtype, words) for name, words in compiled.items()}}


def least(ways):
    """(way, its operations): the way that moves least."""
    return min(ways.items(), key=lambda way: sums(way[1])["all"])


def table(recipe, sides):
    """Lines: megabytes by kind, of the least way of each side."""
    chosen = {side: least(ways) for side, ways in sides.items()}
    found = {side: sums(operations) for side, (_, operations) in chosen.items()}
    lines = [f"| {recipe}, MB | " + " | ".join(f"{side} {way}".strip() for side, (way, _) in chosen.items()) + " | ours / compile |", "|---|" + "---:|" * (len(chosen) + 1)]
    for kind in (*KINDS, "all"):
        values = [found[side][kind] for side in chosen]
        if any(values):
            ratio = f"{found['ours'][kind] / found['compile'][kind]:.2f}" if found["compile"][kind] else "-"
            lines.append(f"| {kind} | " + " | ".join(f"{value / 1e6:,.1f}" for value in values) + f" | {ratio} |")
    return lines


def details(side, operations):
    lines = [f"{side}: the largest operations"]
    return lines + [f"  {size / 1e6:10,.1f} MB {calls:5} {name}" for name, calls, size in by_name(operations)[:25]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path, help="millrace in the folder of the stand-in")
    parser.add_argument("--recipes", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--shape", choices=["cpu-small", "gpu-small", "gpu-guide"], default="gpu-small")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--details", action="store_true", help="also the operations that move most")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if not (options.program.parent / "libmillrace_cuda.so").exists():
        parser.error(f"{options.program}: no stand-in device beside it: ninja -C build/release standin, then give build/release/standin/millrace")
    more, results = [], {}
    for recipe in options.recipes:
        try:
            sides = counted(recipe, options)
        except Failed as error:
            sys.exit(f"Error  a side of {recipe} could not be counted\n  where    {error}\n  next     run it by hand")
        print("\n".join(table(recipe, sides)), flush=True)
        if options.details:
            print("\n".join(line for side, ways in sides.items() for line in details(side, least(ways)[1])), flush=True)
        results[recipe] = {side: {way: {"bytes": sums(operations), "operations": by_name(operations)} for way, operations in ways.items()}
                           for side, ways in sides.items()}
        if sums(least(sides["ours"])[1])["all"] > sums(least(sides["compile"])[1])["all"]:
            more.append(recipe)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("ours moves more than compile in: " + (", ".join(more) or "no recipe"))
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())
