"""Measures the host's work for a training step on a GPU, on a machine without a GPU: ours on a stand-in whose kernels do nothing, against
Python's eager.

    tools/python-peer bench/host/compare.py BUILD_FOLDER [--rounds 9] [--steps 5] [--recipes language_model cosmology] [--json FILE]

Ours is the program on tests/standin with STANDIN_KERNELS=none (target `standin`): each operation goes through LibTorch's dispatcher and autograd,
gets its memory and computes nothing. Python's eager is timed in two ways: on the device `meta`, where LibTorch computes shapes alone (some of its
rules are written in Python and take longer than a launch would: the bar is on this ratio, which flatters us), and on the CPU with tensors so small
that kernels take little time; two recipes can't be made as small. Launches are counted in a separate step: operations that are
not views; one of ours on a list of tensors counts once, as on a GPU. All on one core, in turns.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "step"))
from turns import Program, ratios_to, said_of_times, take_turns

BAR = 0.4
OPTIMIZERS = {"autoencoder_3d": 2}  # the other recipes have one
PEERS = {"language_model": "gpt", "cosmology": "unet", "neural_response": "twin", "autoencoder_3d": "gan", "image_pairs": "pairs"}
TINY = {"language_model": "width=12 context=4 batch=1 vocabulary=16", "cosmology": "filters=2 ra=16 frequencies=16 baselines=16",
        "image_pairs": "pairs=1 side=16 vision=12 vision_hidden=16 width=16 hidden=16"}


def own_words(build, recipe, steps):
    return [str(build / "standin" / "millrace"), "bench", "step", recipe, "--shape", "cpu-small", "--precision", "fp32", "--threads", "1", "--warmup", "2",
            "--steps", str(steps), "--rounds", "stdin", "--json", "--device.name=cuda:0"]


def own_environment(build, **more):
    return {**os.environ, "LD_LIBRARY_PATH": str(build / "standin"), "STANDIN_KERNELS": "none", **more}


def own_launches(build, recipe):
    """Launches of one step, as the stand-in counts them."""
    with tempfile.TemporaryDirectory() as folder:
        account = Path(folder) / "account.json"
        subprocess.run(own_words(build, recipe, 2), env=own_environment(build, STANDIN_ACCOUNT=str(account)), input="go\n", text=True, check=True,
                       stdout=subprocess.DEVNULL)
        marks = json.loads(account.read_text(encoding="utf-8"))["steps"]
    # A new entry begins after each optimiser's update, so a step has as many entries as the recipe has optimisers.
    return sum(mark["launches"] for mark in marks[-OPTIMIZERS.get(recipe, 1):])


def peer(recipe, device, options):
    more = ["--size", *TINY[recipe].split()] if device == "cpu" else ["--launches"]
    words = [sys.executable, str(HERE.parent / "step" / f"{PEERS[recipe]}_step_peer.py"), "--device", device, "--dtype", "fp32", "--threads", "1",
             "--steps", str(options.steps), *more]
    program = Program(words)
    program.start()
    return program


def measure(recipe, options):
    programs = {"ours": Program(own_words(options.build, recipe, options.steps), own_environment(options.build)),
                "meta": peer(recipe, "meta", options), **({"tiny": peer(recipe, "cpu", options)} if recipe in TINY else {})}
    launches = {"ours": own_launches(options.build, recipe), "eager": programs["meta"].first["launches"]}
    times = take_turns(programs, options.rounds, same=False)
    ratios = ratios_to(times, "ours", [name for name in times if name != "ours"])
    said = "".join(f"  {name} {median(times[name]):.1f} ms, ours {ratio:.3f} [{low:.3f}, {high:.3f}] of it" for name, (ratio, low, high) in ratios.items())
    print(f"{recipe:16} launches {launches['ours']:5}, eager {launches['eager']:5}   ours {median(times['ours']):6.2f} ms {said}", flush=True)
    return ratios["meta"][0] <= BAR, {**said_of_times(times), "launches": launches}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--recipes", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()
    options.build = options.build.resolve()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print("one step on one core, fp32; eager on the device meta, and with tiny tensors on the CPU")
    met, results = True, {}
    for recipe in options.recipes:
        good, results[recipe] = measure(recipe, options)
        met = met and good
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(f"bar {BAR}: {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
