"""Several commands at once in one folder, some of them killed: nothing half, nothing lost, no failure that nobody can explain."""
import json
import re
import shutil
import signal
import time

from world import (COMMON, TINY, Violation, difference, expect, hash_of_tree, is_whole_pt, is_whole_safetensors, leftovers, read_json,
                   require, seeded, whole_snapshots)

# What a command may answer beside a certain other one: (pattern, whether it needs a training in the same run folder).
REFUSALS = [
    (r"another process is training in", True),
    (r"is not there yet", False),
    (r"the folder \S+ is not empty", False),  # make-data
]


class Command:
    def __init__(self, name, words, run=None, makes=None):
        self.name, self.words, self.run, self.makes = name, words, run, makes


def train(recipe, run, steps, *words):
    small = TINY if recipe == "language_model" else ["--device.layout=contiguous"]
    place = ["--run", run] if run else []
    return ["train", recipe, "--preset", "smoke", *COMMON, *small, f"--max_steps={steps}", "--snapshot.every_steps=1",
            "--train.validate_every=2", "--train.validate_batches=1", *place, *words]


def commands(world, random):
    """All that can be drawn; a share of how often, and the command."""
    steps = random.randint(2, 7)
    return [
        (3, Command("first", train("language_model", None, 2), makes="language_model")),
        (2, Command("first of cosmology", train("cosmology", None, 1), makes="cosmology")),
        (2, Command("dry run", train(random.choice(["language_model", "cosmology"]), None, 1, "--dry-run"))),
        (2, Command("make-data", ["make-data", random.choice(["language_model", "cosmology"]), "--preset", "smoke"])),
        (3, Command("go on", train("language_model", "runs/lm", steps), run="runs/lm")),
        (4, Command("fresh", train("language_model", "runs/lm", steps, "--fresh"), run="runs/lm")),
        (1, Command("fresh of cosmology", train("cosmology", "runs/co", 2, "--fresh", "--data", world.co), run="runs/co")),
        (3, Command("export", ["export", "--from", "runs/lm", "--to", f"out/w.{random.choice(['safetensors', 'pt'])}"])),
        (2, Command("pca fit", ["pca", "fit", "--preset", "smoke", "--data", world.co, "--num-samples", random.randint(2, 6),
                                "--output", "out/pca.safetensors"])),
        (2, Command("pca fit into the run", ["pca", "fit", "--preset", "smoke", "--data", world.co, "--num-samples", 4,
                                             "--run.dir=runs/co"])),
        (2, Command("runs", ["runs", "--json"])),
        (2, Command("inspect", ["inspect", random.choice(["runs/lm", "runs/co"]), "--json"])),
        (1, Command("generate", ["generate", "a", "--from", "runs/lm", "--max_length", 2])),
    ]


def drawn(world, random):
    table = commands(world, random)
    shares = [share for share, _ in table]
    group = random.choices([command for _, command in table], shares, k=random.choice([2, 2, 2, 3, 4]))
    if random.random() < 0.25:  # the very same thing, several times
        group = [group[0]] * len(group)
    return group


def run_group(world, place, group, random, report):
    """Starts them within moments of each other, kills one now and then, and judges how each ended."""
    live = []
    for command in group:
        live.append(world.start(*command.words, cwd=place))
        time.sleep(random.choice([0, 0, random.uniform(0, 0.8)]))
    victim, sent = None, None
    if random.random() < 0.35:
        victim = random.randrange(len(group))
        time.sleep(random.uniform(0, 1.2))
        sent = random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        live[victim].send(sent)
    results = [each.wait() for each in live]
    for i, (command, result) in enumerate(zip(group, results)):
        if result.code == 0 or (i == victim and result.code in (-sent, 128 + sent)):
            check_answer(command, result)
            continue
        rivals = [other for k, other in enumerate(group) if k != i and other.run is not None and other.run == command.run]
        known = [pattern for pattern, needs_rival in REFUSALS
                 if re.search(pattern, result.text) and (rivals or not needs_rival)]
        require(known, f"unexplained failure beside {[other.name for other in group]}: {result}")
        report.note(f"{command.name}: {known[0]}")


def check_answer(command, result):
    if command.name in ("runs", "inspect") and result.code == 0:
        try:
            json.loads(result.text[result.text.index("[" if command.name == "runs" else "{"):])
        except ValueError:
            raise Violation(f"no JSON: {result}") from None


def check_folder(world, place, steady):
    """What lies under a final name is whole, and what was there once still is."""
    for recipe, data in (("language_model", world.lm), ("cosmology", world.co)):
        folder = place / "runs" / "data" / f"{recipe}-smoke"
        if folder.exists():
            require(not (gap := difference(world.data_hashes[data.name], hash_of_tree(folder))), f"sample data of {recipe}: {gap}")
    for file in (place / "out").glob("*"):
        if file.suffix == ".safetensors":
            require(is_whole_safetensors(file), f"half a file: {file.name}")
        elif file.suffix == ".pt":
            require(is_whole_pt(file), f"half a file: {file.name}")
        if file.suffix in (".safetensors", ".pt"):
            steady.add(file)
    for file in steady:
        require(file.exists(), f"lost: {file.name}")
    for run in ("lm", "co"):
        folder = place / "runs" / run
        require(whole_snapshots(folder), f"runs/{run} has no whole snapshot any more")
        for name in ("run.json", "config.json", "plan.json", "summary.json"):
            file = folder / name
            require(not file.exists() or read_json(file) is not None, f"half a file: {file}")
        for file in folder.glob("pca_components*.safetensors"):
            require(is_whole_safetensors(file), f"half a file: {file}")


def one_round(world, place, seed, number, steady, report):
    random = seeded(seed, "together", number)
    shutil.rmtree(place / "runs" / "language_model", ignore_errors=True)
    shutil.rmtree(place / "runs" / "cosmology", ignore_errors=True)
    group = drawn(world, random)
    for command in group:
        if command.makes and random.random() < 0.7:  # a first run indeed
            shutil.rmtree(place / "runs" / "data" / f"{command.makes}-smoke", ignore_errors=True)
    run_group(world, place, group, random, report)
    check_folder(world, place, steady)


def put_in_order(world, place):
    """One undisturbed command of each kind clears what the killed ones left."""
    for words in (train("language_model", "runs/lm", 8), train("cosmology", "runs/co", 3, "--data", world.co),
                  train("language_model", None, 1), train("cosmology", None, 1)):
        expect(world.call(*words, cwd=place), 0)
    for folder in ("runs/lm", "runs/co", "runs/data"):
        require(not leftovers(place / folder), f"leftovers in {folder}: {leftovers(place / folder)}")
    require(not list(place.glob("runs/*/.old-run*")), "an old run that was replaced is still there")


def prepare(world):
    place = world.new_folder("together")
    (place / "out").mkdir()
    expect(world.call(*train("language_model", "runs/lm", 3), cwd=place), 0)
    expect(world.call(*train("cosmology", "runs/co", 2, "--data", world.co), cwd=place), 0)
    return place


def rounds(world, seed, numbers, report):
    place, steady = prepare(world), set()
    for number in numbers:
        report.round("together", seed, number, lambda n=number: one_round(world, place, seed, n, steady, report))
    report.round("together", seed, "end", lambda: put_in_order(world, place))
