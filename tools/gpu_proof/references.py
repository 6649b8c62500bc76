"""What the CPU says, made where the folder is made and carried to the GPU: losses of 20 steps, weights before and after one step of SGD.

`scatter`: how far the losses are from those that the same CPU computes with the least of its instructions, as roundings make them.
"""
import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import processes, training
from .errors import ProofError

LIMIT = 300  # seconds of one run
FILE = "losses.json"
KINDS = {"losses": lambda recipe, steps: training.loss_words(recipe, steps=steps),
         "losses_without_dropout": lambda recipe, steps: training.loss_words(recipe, dropout=False, steps=steps),
         "losses_again": lambda recipe, steps: training.loss_words(recipe, steps=steps),
         "initial": lambda recipe, _: training.gradient_words(recipe, moves=False), "stepped": lambda recipe, _: training.gradient_words(recipe)}


def make_one(program, recipe, scratch, environment, steps):
    """{kind: run folder} of a recipe."""
    runs = {}
    for kind, words in KINDS.items():
        if kind == "losses_without_dropout" and recipe not in training.NO_DROPOUT:
            continue
        run = scratch / recipe / kind
        words = [program, *words(recipe, steps), "--device.name=cpu", "--precision.dtype=fp32", "--run", run]
        other = {"MILLRACE_CPU": "portable"} if kind == "losses_again" else {}
        done = processes.run(words, LIMIT, {**environment, **other}, scratch)
        if done.status != 0:
            raise ProofError(f"the reference of {recipe} could not be made: {done.why()}", " ".join(map(str, words)), "mend that run first")
        runs[kind] = training.RunFolder(run)
    return runs


def make(program, recipes, target, scratch, environment, steps=training.STEPS):
    """Writes losses.json, of so many steps, and the weights into `target`; seconds it took."""
    began = time.monotonic()
    target.mkdir(parents=True)
    with ThreadPoolExecutor(2) as pool:
        made = dict(zip(recipes, pool.map(lambda recipe: make_one(program, recipe, scratch, environment, steps), recipes)))
    losses = {}
    for recipe, runs in made.items():
        found = {kind: run.losses() for kind, run in runs.items() if kind.startswith("losses")}
        scatter = training.loss_distance(found.pop("losses_again"), found["losses"])
        losses[recipe] = {**found, "scatter": scatter}
        if runs["stepped"].summary()["skipped_steps"]:
            raise ProofError(f"the gradient of {recipe} is not finite", runs["stepped"].path, "mend the recipe, or its entry in training.py")
        for kind in ("initial", "stepped"):
            (target / recipe / kind).mkdir(parents=True)
            for file in runs[kind].weights():
                shutil.copyfile(file, target / recipe / kind / file.name)
    (target / FILE).write_text(json.dumps(losses, indent=1) + "\n")
    return time.monotonic() - began


def read(folder):
    return json.loads((Path(folder) / "references" / FILE).read_text(encoding="utf-8"))


def weights(folder, recipe, kind):
    return sorted((Path(folder) / "references" / recipe / kind).glob("*.safetensors"))
