#!/usr/bin/env python3
"""Runs the program on the stand-in device (README.md) and compares it with the CPU.

    tests/standin/recipes.py BUILD [--part NAME]... [--recipe NAME]... [--all]

BUILD is a build folder in which target `standin` is built. Prints a line for each run; exit status 1 where one is wrong. Without --all
a small number of seeds and of failures.
"""
import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True  # the tree that holds this stays as it is
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from gpu_proof.training import FIXED, RECIPES, RunFolder, loss_distance, smoke

GPU = "--device.name=cuda:0"
# How far the losses of a run may be from the CPU's. Its kernels are ATen's plain ones, the CPU's are ours: no bit-for-bit comparison.
# cosmology takes away components that hold nearly all of its input, so what is left carries the rounding of all of it: two ways of the
# CPU are as far apart. Dropout and noise are on: both devices draw the same.
LOSS_TOLERANCE = {"language_model": 1e-6, "cosmology": 5e-3, "neural_response": 1e-6, "autoencoder_3d": 1e-5, "image_pairs": 1e-6}
# How long two ways of the CPU stay together: the two networks of a GAN make of one rounding another run.
STAY_TOGETHER = {"autoencoder_3d": 12}
NARROW_TOLERANCE = 2e-2  # bf16 and fp16: both devices round, in other places
STEPS = 6
# The parts for every change have fewer samples a step where the preset's take longest: what is compared does not depend on their number.
FEWER = {"cosmology": ["--data.batch_size=2"]}
# A frozen base takes another way through its projections; with adapters in the tower its steps can be recorded too.
FROZEN = {"image_pairs": ["--recipe.freeze_base=true", "--recipe.lora_vision=true"]}


class Bench:
    def __init__(self, build, scratch):
        self.here, self.there = build / "millrace", build / "standin" / "millrace"
        self.scratch = scratch
        self.wrong = 0
        self.seeds, self.failures, self.steps, self.dtypes = 3, 1, STEPS, ["fp32"]
        self.stops, self.kills = [STEPS // 2], 1
        self.is_long = False

    def run(self, words, name, there=True, seconds=600, **variables):
        """(exit status, what it printed, the account) of one run of the program in a folder of its own."""
        folder = self.scratch / name
        folder.mkdir(parents=True, exist_ok=True)
        account = folder / "account.json"
        environment = {**os.environ, **({} if words[0] == "launch" else {"STANDIN_ACCOUNT": str(account)}), **variables}
        if there:
            environment["LD_LIBRARY_PATH"] = str(self.there.parent)
        result = subprocess.run([self.there if there else self.here, *words], cwd=folder, env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds, check=False)
        (folder / "output.txt").write_text(result.stdout, encoding="utf-8")
        counts = json.loads(account.read_text(encoding="utf-8")) if account.exists() else None
        return result.returncode, result.stdout, counts

    def train(self, recipe, words, name, there=True, seconds=600, **variables):
        words = [*smoke(recipe, STEPS, *FIXED, "--log.every=1", "--device.threads=1", "--precision.dtype=fp32"),
                 *([] if self.is_long else FEWER.get(recipe, [])), *words, GPU if there else "--device.name=cpu", "--run", "run"]
        status, output, counts = self.run(words, name, there, seconds, **variables)
        return status, output, counts, RunFolder(self.scratch / name / "run")

    def say(self, is_right, what, text, output=""):
        self.wrong += not is_right
        print(f"{'ok   ' if is_right else 'WRONG'} {what:44} {text}", flush=True)
        if not is_right and output:
            print("    " + "\n    ".join(output.splitlines()[-40:]), flush=True)


def same_losses(bench, recipe, what, name, words, tolerance):
    """The losses of a run there with these words, beside those of the same run on the CPU."""
    status, output, _, folder = bench.train(recipe, words, f"{name}-there")
    if status == 0:
        status, output, _, reference = bench.train(recipe, words, f"{name}-here", there=False)
    if status != 0:
        return bench.say(False, what, f"exit status {status}", output)
    far = loss_distance(folder.losses(), reference.losses())
    return bench.say(far <= tolerance, what, f"{far:.1e} of the CPU's")


def losses(bench, recipes):
    for recipe in recipes:
        steps = min(bench.steps, STAY_TOGETHER.get(recipe, bench.steps))
        # Rounding grows from step to step, as it does between two ways of the CPU.
        same_losses(bench, recipe, f"{recipe}: losses of {steps} steps", recipe, [f"--train.max_steps={steps}"],
                    LOSS_TOLERANCE[recipe] * (1 if steps <= STEPS else 10))
        if recipe in FROZEN:
            same_losses(bench, recipe, f"{recipe}: frozen base", f"{recipe}-frozen", FROZEN[recipe], LOSS_TOLERANCE[recipe])


def ways(bench, recipes):
    """The same losses with less memory, and with what else is done to a step."""
    for recipe in recipes:
        status, output, _, plain = bench.train(recipe, [], f"{recipe}-plain")
        if status != 0:
            bench.say(False, f"{recipe}: plain run", f"exit status {status}", output)
            continue
        for what, word in {"recomputes": "--memory.recompute=all", "offloads": "--memory.offload=64 KB"}.items():
            status, output, _, folder = bench.train(recipe, [word], f"{recipe}-{what}")
            same = status == 0 and folder.summary()["state_sha256"] == plain.summary()["state_sha256"]
            bench.say(same, f"{recipe}: {what}", "the plain run's state" if same else f"exit status {status}, another state", output)
        # As many batches as the other runs.
        steps = [f"--train.max_steps={STEPS // 2}"] if recipe in STAY_TOGETHER else []
        for what, words in {"accumulates": ["--optim.accumulate=2", *steps], "EMA": ["--optim.ema_decay=0.9"],
                            "skips bad samples": ["--data.bad_samples=skip"]}.items():
            same_losses(bench, recipe, f"{recipe}: {what}", f"{recipe}-{what.replace(' ', '-')}", words, LOSS_TOLERANCE[recipe])
        for dtype in ("bf16", "fp16"):
            same_losses(bench, recipe, f"{recipe}: {dtype}", f"{recipe}-{dtype}", [f"--precision.dtype={dtype}"], NARROW_TOLERANCE)


GRAPH_STEPS = 12
# Batches of the preset differ in more shapes than are recorded; those of one session have one shape.
MANY_SHAPES = {"neural_response": ["--recipe.max_datasets=1"]}
GRAPH_WAYS = {"plain": [], "accumulation": ["--optim.accumulate=2"], "recompute": ["--memory.recompute=all"], "EMA": ["--optim.ema_decay=0.9"]}


def graphs(bench, recipes):
    """A step that is recorded and replayed, and one that is launched as it comes: the same state."""
    for number, recipe in enumerate(recipes):
        cells = [(dtype, way) for dtype in ("fp32", "bf16", "fp16") for way in GRAPH_WAYS]
        # Each costs seconds: without --all each recipe has another one.
        for dtype, way in cells if bench.is_long else [cells[5 * number % len(cells)]]:
            recorded_and_not(bench, recipe, dtype, way, MANY_SHAPES.get(recipe, []), "ms a step as graphs")
        if recipe in FROZEN:
            recorded_and_not(bench, recipe, "bf16", "plain", FROZEN[recipe], "ms a step as graphs")
        if recipe in MANY_SHAPES and bench.is_long:
            recorded_and_not(bench, recipe, "fp32", "plain", [], "more than 3 shapes")


def recorded_and_not(bench, recipe, dtype, way, more, told):
    """`told`: what the plan's row has to say. Which way is faster is a matter of the machine: both were timed."""
    states, row, output = set(), {}, ""
    for words in ([], ["--off", "step_graph"]):
        status, output, _, folder = bench.train(
            recipe, [f"--train.max_steps={GRAPH_STEPS}", f"--precision.dtype={dtype}", *GRAPH_WAYS[way], *more, *words],
            f"{recipe}-graphs-{dtype}-{way}-{len(more)}-{len(words)}")
        states.add(folder.summary()["state_sha256"] if status == 0 else f"exit status {status}")
        if status == 0 and not words:
            row = next((row for row in folder.summary()["choices"] if row["option"] == "device.step_graph"), {})
    is_right = len(states) == 1 and told in row.get("reason", "")
    bench.say(is_right, f"{recipe}: graphs, {dtype}, {way}", f"{row.get('value', 'no row')}: {row.get('reason', '')}", f"{states}\n{output}")


def two_ranks(bench, recipes):
    """Two ranks on devices 0 and 1 beside two ranks on the CPU: the same losses."""
    for recipe in recipes:
        found = {}
        for there in (True, False):
            name = f"{recipe}-ranks-{'there' if there else 'here'}"
            words = smoke(recipe, STEPS, *FIXED, "--log.every=1", "--device.threads=1", "--precision.dtype=fp32", "--data.batch_size=4",
                          f"--device.name={'cuda' if there else 'cpu'}", "--run", "run")
            status, output, _ = bench.run(["launch", "--nproc", "2", *words], name, there)
            if status != 0:
                bench.say(False, f"{recipe}: two ranks", f"exit status {status}", output)
                break
            found[there] = RunFolder(bench.scratch / name / "run").losses()
        if len(found) == 2:
            far = loss_distance(found[True], found[False])
            bench.say(far <= LOSS_TOLERANCE[recipe], f"{recipe}: two ranks", f"{far:.1e} of two on the CPU")


def resume(bench, recipes):
    """What a run that was interrupted, or killed, ends with, against one that was not: every bit of the state."""
    for recipe in recipes:
        ends, began = {}, time.monotonic()
        for stop in [STEPS, *bench.stops]:
            for steps in sorted({stop, STEPS}):
                words = [f"--train.max_steps={steps}", f"--snapshot.every_steps={STEPS // 2}", "--optim.schedule=constant"]
                status, output, _, folder = bench.train(recipe, words, f"{recipe}-stops-{stop}")
                if status != 0:
                    bench.say(False, f"{recipe}: resumes", f"exit status {status}", output)
            ends[stop] = folder.summary()["state_sha256"] if status == 0 else None
            if stop == STEPS:
                took = time.monotonic() - began
        same = ends[STEPS] is not None and len(set(ends.values())) == 1
        bench.say(same, f"{recipe}: resumes", f"the same state, stopped after {', '.join(map(str, bench.stops))}" if same else f"other states: {ends}")
        killed(bench, recipe, ends[STEPS], took)


def killed(bench, recipe, sound, took):
    """Killed at random moments of a run that takes so many seconds, in copies as well, and started again with the same words."""
    draw = random.Random(len(recipe))
    words = [f"--train.max_steps={STEPS}", f"--snapshot.every_steps={STEPS // 2}", "--optim.schedule=constant"]
    for number in range(bench.kills):
        name, kills = f"{recipe}-killed-{number}", 0
        while kills < 3:
            try:
                bench.train(recipe, words, name, seconds=took * draw.uniform(0.2, 0.9))
                break
            except subprocess.TimeoutExpired:  # subprocess.run has killed it
                kills += 1
        status, output, _, folder = bench.train(recipe, words, name)
        same = kills > 0 and status == 0 and folder.summary()["state_sha256"] == sound
        bench.say(same, f"{recipe}: killed {kills} times", "the same state" if same else f"exit status {status}, another state", output)


# Inputs of `predict` as the smoke preset's model takes them: {name: (type of .safetensors, shape)}.
INPUTS = {"language_model": {"tokens": ("I64", (3, 16))}, "cosmology": {"x": ("C64", (3, 8, 32, 64))},
          "neural_response": {"stim": ("U8", (3, 1, 12, 21, 21)), "behavior": ("F32", (3, 42))},
          "autoencoder_3d": {"x": ("F32", (3, 1, 16, 16, 16))},
          "image_pairs": {"first": ("U8", (3, 32, 32, 3)), "second": ("U8", (3, 32, 32, 3))}}
PREDICTED = 1e-4  # of the CPU's; cosmology takes away what is 10^5 times its output


def write_input(recipe, path):
    """A .safetensors file of random numbers."""
    draw = random.Random(7)
    header, data = {}, b""
    for name, (dtype, shape) in INPUTS[recipe].items():
        count = 1
        for size in shape:
            count *= size
        code, numbers = {"I64": ("q", lambda: draw.randrange(4, 19)), "U8": ("B", lambda: draw.randrange(256)),
                         "F32": ("f", draw.random), "C64": ("f", draw.random)}[dtype]
        count *= 2 if dtype == "C64" else 1
        packed = struct.pack(f"<{count}{code}", *(numbers() for _ in range(count)))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_floats(path):
    """{name: all numbers} of a .safetensors file of fp32 or complex numbers."""
    data = path.read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    return {name: struct.unpack_from(f"<{(entry['data_offsets'][1] - entry['data_offsets'][0]) // 4}f", data, 8 + size + entry["data_offsets"][0])
            for name, entry in json.loads(data[8:8 + size]).items() if name != "__metadata__"}


def predict(bench, recipe, run):
    """What a trained model gives for the same input there and on the CPU."""
    source = bench.scratch / f"{recipe}-input.safetensors"
    write_input(recipe, source)
    given = {}
    for device in ("cuda:0", "cpu"):
        name = f"{recipe}-predict-{device[:3]}"
        status, output, _ = bench.run(["predict", "--from", str(run), "--input", str(source), "--output", "out.safetensors", "--device.name", device,
                                       "--batch-size", "2"], name, there=device != "cpu")
        if status != 0:
            return bench.say(False, f"{recipe}: predict", f"exit status {status}", output)
        given[device] = read_floats(bench.scratch / name / "out.safetensors")
    far = max(max(abs(a - b) for a, b in zip(given["cuda:0"][name], numbers, strict=True)) / (max(map(abs, numbers)) or 1)
              for name, numbers in given["cpu"].items())
    return bench.say(far <= PREDICTED * (100 if recipe == "cosmology" else 1), f"{recipe}: predict", f"{far:.1e} of the CPU's")


def commands(bench, recipes):
    """What is done with a model once it is trained, and what is asked before."""
    for recipe in recipes:
        status, output, _, folder = bench.train(recipe, [], f"{recipe}-trained")
        if status != 0:
            bench.say(False, f"{recipe}: train", f"exit status {status}", output)
            continue
        todo = {"eval": ["eval", recipe, "--from", str(folder.path), GPU],
                "rehearse": ["train", recipe, "--preset", "smoke", "--rehearse", GPU],
                "max-batch": ["max-batch", recipe, "--preset", "smoke", "--most", "4", GPU],
                "bench step": ["bench", "step", recipe, "--steps", "1", "--warmup", "1", "--precision", "fp32", GPU],
                "bench ablate": ["bench", "ablate", recipe, "--preset", "smoke", "--steps", "2", "--rounds", "1", "--precision.dtype=fp32", GPU]}
        if recipe == "language_model":
            todo["generate"] = ["generate", "--from", str(folder.path), "--max_length", "8", "--device", "cuda:0", "a"]
        for what, words in todo.items():
            status, output, _ = bench.run(words, f"{recipe}-{what.replace(' ', '-')}")
            bench.say(status == 0 and "host touched" not in output, f"{recipe}: {what}", f"exit status {status}", output)
        predict(bench, recipe, folder.path)


# In a step between log lines, of a run in its steady state: how often the host waits, what is read back, copies of pageable memory,
# copies to the device: the batch, and where the host draws noise or latents these. The worst step of each recipe may have no more of any.
ACCOUNT = {**{recipe: (0, 0, 0, 1) for recipe in RECIPES}, "cosmology": (0, 0, 0, 2), "autoencoder_3d": (0, 0, 0, 2)}


def account(bench, recipes):
    for recipe in recipes:
        for dtype in bench.dtypes:
            words = ["--train.max_steps=24", "--log.every=100", "--snapshot.every_epochs=0", "--snapshot.every_steps=1000", f"--precision.dtype={dtype}"]
            what = f"{recipe}: account, {dtype}"
            status, output, counts, _ = bench.train(recipe, words, f"{recipe}-account-{dtype}")
            if status != 0 or counts is None:
                bench.say(False, what, f"exit status {status}", output)
                continue
            steady = counts["steps"][-6:-1]
            worst = tuple(max(sum(step[key] for key in keys) for step in steady) for keys in
                          [("event_waits", "stream_waits", "device_waits"), ("read_backs",), ("pageable_copies",), ("to_device",)])
            names = sorted({name for step in steady for name in step["by_name"] if not name.startswith(("launches", "allocations"))})
            bench.say(all(a <= b for a, b in zip(worst, ACCOUNT[recipe], strict=True)), what,
                      "waits {}, read-backs {}, pageable copies {}, copies to the device {}".format(*worst)
                      + f", launches {max(step['launches'] for step in steady)}", "\n".join(names))


def late(bench, recipes):
    """Copies that land late, by seeds: the same bits as where none does."""
    for recipe in recipes:
        found = {}
        for seed in range(bench.seeds + 1):
            status, output, _, folder = bench.train(recipe, [], f"{recipe}-late-{seed}", STANDIN_LATE=str(seed))
            found[seed] = folder.summary()["state_sha256"] if status == 0 else output
        bench.say(len(set(found.values())) == 1, f"{recipe}: late copies", f"{bench.seeds} seeds", "\n".join(map(str, found.values())))


def memory(bench, recipes):
    """Out of memory of each kind at some allocation of a step: the run goes on, or ends with one message."""
    for recipe in recipes:
        status, output, counts, _ = bench.train(recipe, [], f"{recipe}-whole")
        if status != 0:
            bench.say(False, f"{recipe}: memory", f"exit status {status}", output)
            continue
        total = counts["total"]["allocations"]
        for number, kind in enumerate(["memory", "cublas", "cudnn", "internal", "driver"] * bench.failures):
            at = total * (3 + 7 * number) // (10 + 7 * 5 * bench.failures)
            status, output, _, _ = bench.train(recipe, [], f"{recipe}-fails-{number}", STANDIN_OUT_OF_MEMORY=f"{at},{kind}")
            in_order = status == 0 or (status == 1 and output.count("\n      where") + output.count("\n  where") == 1)
            bench.say(in_order, f"{recipe}: {kind} at allocation {at}", f"exit status {status}", output)


def lost(bench, recipes):
    """A device that fails at some operation, and at each one after it: one message, and the same command resumes from what was saved."""
    for recipe in recipes:
        words = ["--snapshot.every_steps=2", "--train.validate_every=0"]
        status, output, counts, whole = bench.train(recipe, words, f"{recipe}-sound")
        if status != 0:
            bench.say(False, f"{recipe}: lost", f"exit status {status}", output)
            continue
        sound, total = whole.summary()["state_sha256"], counts["total"]["launches"]
        for number in range(bench.failures):
            at, name = total * (6 * bench.failures + 3 * number) // (10 * bench.failures), f"{recipe}-lost-{number}"
            status, output, _, _ = bench.train(recipe, words, name, STANDIN_LOST=str(at))
            told = output.count("DeviceError  the GPU no longer answers this program")
            in_order = status == 1 and told == 1 and not any(word in output for word in ("terminate called", "could not be saved"))
            bench.say(in_order, f"{recipe}: lost at operation {at}", f"exit status {status}, told {told} times", output)
            status, output, _, folder = bench.train(recipe, words, name)
            same = status == 0 and folder.summary()["state_sha256"] == sound
            bench.say(same, f"{recipe}: goes on", "the same state" if same else f"exit status {status}, another state", output)


PARTS = {"losses": losses, "ways": ways, "graphs": graphs, "ranks": two_ranks, "resume": resume, "commands": commands, "account": account, "late": late, "memory": memory, "lost": lost}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--part", action="append", choices=list(PARTS))
    parser.add_argument("--recipe", action="append", choices=RECIPES)
    parser.add_argument("--all", action="store_true", help="more seeds of late copies, allocations that fail, steps, and all precisions")
    parser.add_argument("--keep", action="store_true", help="leave the runs where they are, and say where")
    args = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="standin-"))
    bench = Bench(args.build.resolve(), scratch)
    if args.all:
        bench.is_long = True
        bench.seeds, bench.failures, bench.steps, bench.dtypes = 100, 40, 50, ["fp32", "bf16", "fp16"]
        bench.stops, bench.kills = list(range(1, STEPS)), 4
    try:
        for part in args.part or list(PARTS):
            PARTS[part](bench, args.recipe or RECIPES)
    finally:
        if args.keep:
            print(f"runs: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    print(f"{bench.wrong} wrong")
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
