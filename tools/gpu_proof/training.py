"""Runs of the program that a proof compares: their words, and what they leave in their folders.

The references are made with these words where the folder is made, and the device's runs with the same ones: see references.py, parts/parity.py.
"""
import json
from dataclasses import dataclass
from pathlib import Path

RECIPES = ["language_model", "cosmology", "neural_response", "autoencoder_3d", "image_pairs"]
STEPS = 20
RATE = 2.0**14  # of the one step of plain SGD: what it moves a weight by is the gradient times this, to fp32's last bits

# So that every part of a step is there from the first step on.
ALWAYS = {"autoencoder_3d": ["--recipe.adv_start_epoch=-1"]}
NO_STAGE_DROPOUT = ('[{"channels":8,"stride":2},{"channels":16,"pool_stride":2,"squeeze":4},'
                    '{"channels":16,"dilation":2,"kernel_size":[3,3,3],"padding":[2,2,2],"pool_stride":1,"squeeze":4}]')
# The preset's dropout turned off; a recipe that is not named has none.
NO_DROPOUT = {"language_model": ["--recipe.model_dropout=0"], "image_pairs": ["--recipe.lora_dropout=0"],
              "neural_response": [f"--recipe.convnet.stages={NO_STAGE_DROPOUT}"]}
# What the gradients of step 1 may be apart in fp32, where it is more than usual. cosmology: foregrounds 10^5 times the signal are taken away by
# two products, and fp32's rounding of the foregrounds stays (kernels/remove_components.h).
GRADIENT_ROUNDING = {"cosmology": 2e-2}
# What a trial would choose is fixed: two runs that are held against each other compute in the same ways, and with the same bits.
FIXED = ["--device.layout=contiguous", "--device.kernels=ours", "--train.deterministic=true"]
QUIET = ["--log.tensorboard=false", "--log.images=false", "--log.doctor=false"]
PLAIN_SGD = ["--optim.name=sgd", "--optim.momentum=0", "--optim.weight_decay=0", "--optim.clip_norm=0", "--optim.clip_value=0",
             "--optim.schedule=constant", "--optim.schedule_by=step", "--optim.warmup_steps=0", "--optim.warmup_frac=0",
             "--optim.lr_scaling=none", "--optim.ema_decay=0"]


def smoke(recipe, steps, *words):
    """`train` of the preset that makes its own data, for a number of steps, without validations but the last."""
    return ["train", recipe, "--preset", "smoke", f"--train.max_steps={steps}", "--train.validate_every=1000000", "--train.validate_batches=1",
            *ALWAYS.get(recipe, []), *QUIET, *words]


def loss_words(recipe, dropout=True, steps=STEPS):
    return smoke(recipe, steps, *FIXED, "--log.every=1", *([] if dropout else NO_DROPOUT.get(recipe, [])))


def gradient_words(recipe, moves=True):
    """One step whose snapshot is the initial weights less RATE times the gradient; moves=False: the initial weights."""
    return smoke(recipe, 1, *FIXED, *PLAIN_SGD, f"--optim.learning_rate={RATE if moves else 1e-30}", *NO_DROPOUT.get(recipe, []))


def distance_of(found, expected):
    """The largest difference of a step, by the size of that step's loss or of all, whichever is larger."""
    usual = sum(map(abs, expected)) / len(expected)
    return max(abs(a - b) / max(abs(b), usual) for a, b in zip(found, expected, strict=True))


def loss_distance(found, expected):
    """The largest of all objectives; both are {objective: losses}."""
    if set(found) != set(expected):
        raise ValueError(f"objectives {sorted(found)} instead of {sorted(expected)}")
    return max(distance_of(found[name], expected[name]) for name in expected)


@dataclass
class RunFolder:
    path: Path

    def log(self, kind):
        lines = (self.path / "log.jsonl").read_text(encoding="utf-8").splitlines()
        return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]

    def losses(self):
        """{objective: its loss of each step}; of a run with one objective "loss"."""
        steps = self.log("step")
        names = ["loss"] if "loss" in steps[0] else [key.removesuffix(".lr") for key in steps[0] if key.endswith(".lr")]
        return {name: [float(entry[name]) for entry in steps] for name in names}

    def summary(self):
        return json.loads((self.path / "summary.json").read_text(encoding="utf-8"))

    def plan(self, option):
        for row in json.loads((self.path / "plan.json").read_text(encoding="utf-8")):
            if row["option"] == option:
                return row["value"]
        return None

    def snapshot(self):
        """The folder of the newest saved state."""
        return max((self.path / "snapshots").glob("step-*"), key=lambda folder: folder.name)

    def weights(self):
        """Files of the newest saved weights."""
        return sorted(self.snapshot().glob("model*.safetensors"))
