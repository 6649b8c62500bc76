#!/usr/bin/env python3
"""Runs the program on the stand-in device (README.md) and compares it with the CPU.

    tests/standin/recipes.py BUILD [--part NAME]... [--recipe NAME]... [--all]

BUILD is a build folder in which target `standin` is built. Prints a line for each run; exit status 1 where one is wrong. Without --all
a small number of seeds and of failures.
"""
import argparse
import json
import os
import shutil
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
STEPS = 6


class Bench:
    def __init__(self, build, scratch):
        self.here, self.there = build / "millrace", build / "standin" / "millrace"
        self.scratch = scratch
        self.wrong = 0
        self.seeds, self.failures = 3, 1

    def run(self, words, name, there=True, **variables):
        """(exit status, what it printed, the account) of one run of the program in a folder of its own."""
        folder = self.scratch / name
        folder.mkdir(parents=True, exist_ok=True)
        account = folder / "account.json"
        environment = {**os.environ, "STANDIN_ACCOUNT": str(account), **variables}
        if there:
            environment["LD_LIBRARY_PATH"] = str(self.there.parent)
        result = subprocess.run([self.there if there else self.here, *words], cwd=folder, env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace", timeout=600, check=False)
        (folder / "output.txt").write_text(result.stdout, encoding="utf-8")
        counts = json.loads(account.read_text(encoding="utf-8")) if account.exists() else None
        return result.returncode, result.stdout, counts

    def train(self, recipe, words, name, there=True, **variables):
        words = [*smoke(recipe, STEPS, *FIXED, "--log.every=1", "--device.threads=1", "--precision.dtype=fp32"), *words, GPU if there else "--device.name=cpu", "--run", "run"]
        status, output, counts = self.run(words, name, there, **variables)
        return status, output, counts, RunFolder(self.scratch / name / "run")

    def say(self, is_right, what, text, output=""):
        self.wrong += not is_right
        print(f"{'ok   ' if is_right else 'WRONG'} {what:44} {text}", flush=True)
        if not is_right and output:
            print("    " + "\n    ".join(output.splitlines()[-40:]), flush=True)


def losses(bench, recipes):
    for recipe in recipes:
        began = time.monotonic()
        what = f"losses {recipe}"
        status, output, _, folder = bench.train(recipe, [], f"{recipe}-there")
        if status != 0:
            bench.say(False, what, f"exit status {status}", output)
            continue
        status, output, _, reference = bench.train(recipe, [], f"{recipe}-here", there=False)
        if status != 0:
            bench.say(False, what, f"exit status {status} on the CPU", output)
            continue
        far = loss_distance(folder.losses(), reference.losses())
        bench.say(far <= LOSS_TOLERANCE[recipe], what, f"{far:.1e} of the CPU's over {STEPS} steps, {time.monotonic() - began:.1f} s")


def same_state(bench, recipe, what, name, words, reference):
    """A run with other words leaves the losses where they were."""
    status, output, _, folder = bench.train(recipe, words, name)
    if status != 0:
        return bench.say(False, what, f"exit status {status}", output)
    far = loss_distance(folder.losses(), reference.losses())
    return bench.say(far <= LOSS_TOLERANCE[recipe], what, f"{far:.1e} of the plain run's")


def ways(bench, recipes):
    """The same losses with less memory, and with what else is done to a step."""
    for recipe in recipes:
        status, output, _, plain = bench.train(recipe, [], f"{recipe}-plain")
        if status != 0:
            bench.say(False, f"{recipe}: plain run", f"exit status {status}", output)
            continue
        same_state(bench, recipe, f"{recipe}: recomputes", f"{recipe}-recompute", ["--memory.recompute=all"], plain)
        same_state(bench, recipe, f"{recipe}: offloads", f"{recipe}-offload", ["--memory.offload=64 KB"], plain)
        for what, words in {"accumulates": ["--optim.accumulate=2"], "EMA": ["--optim.ema_decay=0.9"],
                            "skips bad samples": ["--data.bad_samples=skip"], "bf16": ["--precision.dtype=bf16"],
                            "fp16": ["--precision.dtype=fp16"]}.items():
            status, output, _, folder = bench.train(recipe, words, f"{recipe}-{what.replace(' ', '-')}")
            bench.say(status == 0 and all(loss == loss for losses in folder.losses().values() for loss in losses),
                      f"{recipe}: {what}", f"exit status {status}", output)


def resume(bench, recipes):
    """What a run that was interrupted ends with, against one that was not: every bit of the state."""
    for recipe in recipes:
        states = []
        for name, parts in {"whole": [STEPS], "halves": [STEPS // 2, STEPS]}.items():
            for steps in parts:
                words = [f"--train.max_steps={steps}", f"--snapshot.every_steps={STEPS // 2}", "--optim.schedule=constant"]
                status, output, _, folder = bench.train(recipe, words, f"{recipe}-{name}")
                if status != 0:
                    bench.say(False, f"{recipe}: resumes", f"exit status {status}", output)
            states.append(folder.summary()["state_sha256"] if status == 0 else None)
        bench.say(states[0] is not None and states[0] == states[1], f"{recipe}: resumes", "the same state" if states[0] == states[1] else "another state")


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
                "bench step": ["bench", "step", recipe, "--steps", "1", "--warmup", "1", "--precision", "fp32", GPU]}
        if recipe == "language_model":
            todo["generate"] = ["generate", "--from", str(folder.path), "--max_length", "8", "--device", "cuda:0", "a"]
        for what, words in todo.items():
            status, output, _ = bench.run(words, f"{recipe}-{what.replace(' ', '-')}")
            bench.say(status == 0 and "host touched" not in output, f"{recipe}: {what}", f"exit status {status}", output)


# In a step between log lines, of a run in its steady state: how often the host waits, what is read back, copies of pageable memory,
# copies to the device: the batch, and where the host draws noise or latents these. The worst step of each recipe may have no more of any.
ACCOUNT = {**{recipe: (0, 0, 0, 1) for recipe in RECIPES}, "cosmology": (0, 0, 0, 2), "autoencoder_3d": (0, 0, 0, 2)}


def account(bench, recipes):
    for recipe in recipes:
        words = ["--train.max_steps=12", "--log.every=100", "--snapshot.every_epochs=0", "--snapshot.every_steps=1000"]
        status, output, counts, _ = bench.train(recipe, words, f"{recipe}-account")
        if status != 0 or counts is None:
            bench.say(False, f"{recipe}: account", f"exit status {status}", output)
            continue
        steady = counts["steps"][-6:-1]
        worst = tuple(max(sum(step[key] for key in keys) for step in steady) for keys in
                      [("event_waits", "stream_waits", "device_waits"), ("read_backs",), ("pageable_copies",), ("to_device",)])
        names = sorted({name for step in steady for name in step["by_name"] if not name.startswith(("launches", "allocations"))})
        bench.say(all(a <= b for a, b in zip(worst, ACCOUNT[recipe], strict=True)), f"{recipe}: account",
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
    """A device that fails at some operation, and at each one after it: one message, and the same command goes on from what was saved."""
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


PARTS = {"losses": losses, "ways": ways, "resume": resume, "commands": commands, "account": account, "late": late, "memory": memory, "lost": lost}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--part", action="append", choices=list(PARTS))
    parser.add_argument("--recipe", action="append", choices=RECIPES)
    parser.add_argument("--all", action="store_true", help="more seeds of late copies, more allocations that fail")
    parser.add_argument("--keep", action="store_true", help="leave the runs where they are, and say where")
    args = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="standin-"))
    bench = Bench(args.build.resolve(), scratch)
    if args.all:
        bench.seeds, bench.failures = 100, 40
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
