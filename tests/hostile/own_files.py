"""Files of the user's own in a run folder, under names that are ours or look like it: nobody but the user changes them."""
import os
import re
import shutil
import signal
import time

from world import COMMON, TINY, Violation, expect, read_json, seeded, whole_snapshots

FILES = 50
SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]


def name_of_ours(random):
    """What a run writes."""
    return random.choice(["config.json", "log.jsonl", "lock", "run.json", "plan.json", "summary.json", "history.csv",
                          "history.csv.old"])


def name_like_ours(random):
    """What a run may come to write, or might take for a leftover of its own."""
    step = random.choice([1, 2, 3, 4, 5, 6, 8, 99, 12345678])
    process = random.choice([1, 2, 7, os.getpid(), random.randint(2, 4000000)])
    letters = "".join(random.choices("abcdefghijk", k=3))
    return random.choice([
        f"events.out.tfevents.{random.randint(1, 2000000000)}.{letters}.{process}", f"{letters}.tmp.{process}.0",
        f"config.json.tmp.{process}.{random.randint(0, 9)}", f"pca_components_nfg{random.randint(5, 20)}.safetensors",
        f"pca_components_{letters}", f"history.csv.{letters}", f"log.jsonl.{letters}", f"step-{step:08d}", f"w.pt.{letters}", letters,
        f"weights.safetensors.tmp.{process}.0", f"weights.safetensors.part.{letters}", f".new-{letters}", f".tmp-{letters}",
        f"pictures/{letters}.png", "pictures/maps.png", f"pictures/maps.png.tmp.{process}.0", f"pictures/{letters}/{letters}.png",
        f".old-run/{letters}.jpg", f".old-run/snapshots/{letters}", f".old-run-2/{letters}", f"branches/{letters}.txt",
        f"branches/step-{step:08d}/{letters}", f"snapshots/{letters}.txt", f"snapshots/step-{step:08d}/photo-{letters}.jpg",
        f"snapshots/step-{step:08d}/model-{letters}.safetensors", f"snapshots/step-{step:08d}.2/{letters}",
        f"snapshots/step-{step}/{letters}", f"snapshots/.tmp-step-{step:08d}-{process}/photo-{letters}.jpg",
        f"snapshots/.tmp-gone-step-{step:08d}-{process}/photo-{letters}.jpg",
        f"snapshots/.old-step-{step:08d}-{process}/photo-{letters}.jpg", f"snapshots/.tmp-{letters}/{letters}",
        f"snapshots/step-{step:08d}-{letters}", f"cache/{letters}", f".git/{letters}",
    ])


class Guard:
    """Files that must stay as they are: path, bytes, kind and time."""

    def __init__(self, folder):
        self.folder = folder
        self.files = {}

    def place(self, name, random):
        """False where something has the name, or a file is in the way of its folder."""
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        except OSError:
            return False
        text = random.choice([b"", b"{}", b"mine\n", random.randbytes(random.randint(1, 300))])
        os.write(handle, text)
        os.close(handle)
        past = random.randint(10**18, 16 * 10**17)
        os.utime(path, ns=(past, past))
        self.files[name] = (text, past)
        return True

    def changed(self):
        """Each is told once: the round goes on and shows more."""
        wrong = []
        for name, (text, past) in list(self.files.items()):
            path = self.folder / name
            try:
                status = os.lstat(path)
                if path.is_symlink() or path.read_bytes() != text:
                    wrong.append((name, "has other bytes"))
                elif status.st_mtime_ns != past:
                    wrong.append((name, "was touched"))
            except OSError:
                wrong.append((name, "is gone"))
        for name, _ in wrong:
            del self.files[name]
        return wrong


def is_free(folder, name):
    """Neither there nor named by the run as its own."""
    record = read_json(folder / "run.json")
    ours = set(record.get("files", [])) if isinstance(record, dict) else set()
    return not os.path.lexists(folder / name) and name not in ours


def place_some(guard, count, random, ours):
    wanted = min(len(guard.files) + count, FILES)
    for _ in range(20 * count):
        if len(guard.files) >= wanted:
            return
        name = name_of_ours(random) if ours and random.random() < 0.3 else name_like_ours(random)
        if is_free(guard.folder, name):
            guard.place(name, random)


class Run:
    """A run of one recipe in a folder, and what can be done with it."""

    def __init__(self, world, random, folder):
        self.world, self.random, self.folder = world, random, folder
        self.recipe = random.choices(("language_model", "cosmology", "neural_response", "autoencoder_3d", "image_pairs"), (8, 2, 1, 1, 1))[0]
        self.steps = 3

    def train(self, *words):
        data, small = {"language_model": (self.world.lm, TINY), "cosmology": (self.world.co, ["--device.layout=contiguous"]),
                       "neural_response": (self.world.nr, ["--device.layout=contiguous", "--data.batch_size=4"]),
                       "autoencoder_3d": (self.world.ae, ["--device.layout=contiguous"]),
                       "image_pairs": (self.world.ip, ["--data.batch_size=4", "--recipe.val_samples=8"])}[self.recipe]
        return ["train", self.recipe, "--preset", "smoke", "--data", data, *COMMON, *small, f"--max_steps={self.steps}",
                "--snapshot.every_steps=1", "--snapshot.keep_last=2", "--train.validate_every=2", "--train.validate_batches=1",
                "--run", self.folder, *words]

    def go_on(self):
        self.steps += self.random.randint(0, 3)
        return self.train()

    def fresh(self):
        self.steps = self.random.randint(2, 5)
        return self.train("--fresh")

    def older(self):
        steps = sorted(whole_snapshots(self.folder))
        if not steps:
            return self.go_on()
        self.steps += 2
        return self.train(f"--train.resume={self.folder}/snapshots/step-{self.random.choice(steps):08d}")

    def export(self):
        return ["export", "--from", self.folder, "--to", self.folder / self.random.choice(["weights.safetensors", "weights.pt"])]

    def fit(self):
        return ["pca", "fit", "--preset", "smoke", "--data", self.world.co, "--num-samples", 3, "--run.dir", self.folder]

    def draw(self):
        kinds = [self.go_on, self.go_on, self.fresh, self.fresh, self.older, self.older, self.export]
        return self.random.choice(kinds + ([self.fit] if self.recipe == "cosmology" else []))()


def act(world, run, guard, random, told, words=None):
    """One command, now and then killed, with files put there while it works. What of the user's it changed."""
    words = words or run.draw()
    live = world.start(*words)
    disturbed = random.random() < 0.45
    if disturbed:
        if guard.files:
            time.sleep(random.uniform(0, 0.7))
            place_some(guard, 3, random, False)
        time.sleep(random.uniform(0, 0.9))
        live.send(random.choice(SIGNALS))
    result = live.wait()
    told.append(" ".join(str(word) for word in words[:2] + words[words.index(run.folder) + 1:]) + f" -> {result.code}")
    return result, [(name, what, str(result)) for name, what in guard.changed()]


def one_round(world, seed, number, report):
    random = seeded(seed, "own_files", number)
    folder = world.new_folder(f"own-{number}") / "run"
    folder.mkdir()
    guard, run, told, wrong = Guard(folder), Run(world, random, folder), [], []
    if number % 3 != 0:
        act(world, run, guard, random, told, run.go_on() if random.random() < 0.7 else None)
    # Names of ours too in half of the folders that are no run yet: there the start is refused.
    takes_ours = not (folder / "run.json").exists() and random.random() < 0.5
    place_some(guard, FILES if takes_ours else FILES // 2, random, takes_ours)
    for _ in range(random.randint(3, 6)):
        result, changed = act(world, run, guard, random, told)
        wrong += changed
        if result.code in (1, 2):
            report.note("refused: " + re.sub(r"/\S*/", "", next(line for line in result.text.splitlines() if "Error" in line))[:110])
        place_some(guard, 6, random, False)
    record = read_json(folder / "run.json")
    if isinstance(record, dict) and "files" in record:  # whatever lies there, the run goes on
        expect(world.call(*run.train()), 0)
        wrong += [(name, what, "the last start") for name, what in guard.changed()]
    for name, what, _ in wrong:
        report.note(f"changed: {name.split('/')[0]} {what}")
    shutil.rmtree(folder.parent)
    if wrong:
        lines = [f"{name} {what}" for name, what, _ in wrong]
        raise Violation(f"{'; '.join(told)}\n    {'; '.join(lines)}\n    first after {wrong[0][2]}")


def rounds(world, seed, numbers, report):
    for number in numbers:
        report.round("own_files", seed, number, lambda n=number: one_round(world, seed, n, report))
