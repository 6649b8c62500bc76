"""What the parts of the harness share: the program in a world of its own, its data, and checks of what it leaves on the disk."""
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import zipfile
from pathlib import Path

HANGS_AFTER_S = 600  # far above what the slowest machine needs: tells a hang, measures nothing
# What a start would try is said: trials take longer than these runs, and are the matter of first_signal.py.
COMMON = ["--device.threads=1", "--precision.dtype=fp32", "--device.kernels=ours"]
TINY = ["--recipe.model_embd=16", "--recipe.model_layer=1", "--recipe.model_head=2"]
LASTING = ("steps", "epochs", "samples", "metrics", "loss", "exit_reason", "state_sha256", "skipped_steps", "spike_steps", "recipe",
           "preset", "parameters")
CRASHES = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}


class Violation(Exception):
    """What the program must not do."""


class Result:
    def __init__(self, words, code, text):
        self.words, self.code, self.text = words, code, text

    def __str__(self):
        tail = "\n".join("      " + line for line in self.text.strip().splitlines()[-12:])
        return f"exit {self.code} of: millrace {' '.join(map(str, self.words))}\n{tail}"


class Live:
    """A program that runs; its output goes to a file, so that it can be watched."""

    def __init__(self, world, words, cwd, under):
        self.words = [str(word) for word in words]
        self.log = tempfile.NamedTemporaryFile(dir=world.logs, delete=False)
        self.process = subprocess.Popen([*under, str(world.program), *self.words], cwd=cwd, env=world.env, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)

    def text(self):
        return Path(self.log.name).read_text(encoding="utf-8", errors="replace")

    def runs(self):
        return self.process.poll() is None

    def send(self, number):
        if self.runs():
            self.process.send_signal(number)

    def watch(self, condition):
        """Until it holds or the program has ended; whether it held."""
        while self.runs():
            if condition():
                return True
            time.sleep(0.0005)
        return condition()

    def wait(self):
        try:
            code = self.process.wait(HANGS_AFTER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Violation(f"hangs: {Result(self.words, None, self.text())}") from None
        result = Result(self.words, code, self.text())
        self.log.close()
        os.unlink(self.log.name)
        if code in CRASHES or "InternalError" in result.text or "mistake in Millrace" in result.text:
            raise Violation(f"crash: {result}")
        return result


class World:
    """A folder of its own for everything that is written, sample data that is made once, references that are computed once."""

    def __init__(self, program, folder):
        self.program = Path(program).resolve()
        self.folder = Path(folder)
        self.logs = self.folder / "logs"
        self.logs.mkdir(parents=True)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("MILLRACE_", "OMP_", "MKL_"))}
        self.env["XDG_CACHE_HOME"] = str(self.folder / "cache")
        self.references = {}
        self.lm = self.folder / "data-lm"
        self.co = self.folder / "data-co"
        self.nr = self.folder / "data-nr"
        self.ae = self.folder / "data-ae"
        self.ip = self.folder / "data-ip"
        for recipe, data in (("language_model", self.lm), ("cosmology", self.co), ("neural_response", self.nr), ("autoencoder_3d", self.ae),
                             ("image_pairs", self.ip)):
            expect(self.call("make-data", recipe, "--preset", "smoke", "--out", data), 0)
        self.data_hashes = {data.name: hash_of_tree(data) for data in (self.lm, self.co, self.nr, self.ae, self.ip)}

    def start(self, *words, cwd=None, under=()):
        return Live(self, words, cwd or self.folder, under)

    def call(self, *words, cwd=None, under=()):
        return self.start(*words, cwd=cwd, under=under).wait()

    def new_folder(self, name):
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def train_lm(self, *words):
        return ["train", "language_model", "--preset", "smoke", "--data", self.lm, *COMMON, *TINY, *words]

    def train_co(self, *words):
        return ["train", "cosmology", "--preset", "smoke", "--data", self.co, *COMMON, "--device.layout=contiguous", *words]

    def reference(self, name, words):
        """Summary and duration of an undisturbed run."""
        if name not in self.references:
            run = self.new_folder("reference-" + name) / "run"
            begin = time.monotonic()
            live = self.start(*words, "--run", run)
            saved = [None]

            def is_saved():
                saved[0] = time.monotonic()
                return live.text().count("validation  step") > 0 and "done at" in live.text()

            live.watch(is_saved)
            expect(live.wait(), 0)
            seconds = time.monotonic() - begin
            summary = json.loads((run / "summary.json").read_text())
            history = (run / "history.csv").read_text() if (run / "history.csv").exists() else None
            last = run / "snapshots" / f"step-{summary['steps']:08d}"
            tail = (run / "summary.json").stat().st_mtime - (last / "manifest.json").stat().st_mtime
            self.references[name] = {"summary": summary, "seconds": seconds, "tail": max(tail, 0.01), "history": history}
        return self.references[name]


def expect(result, *codes):
    if result.code not in codes:
        raise Violation(f"expected exit {' or '.join(map(str, codes))}: {result}")
    return result


def require(condition, text):
    if not condition:
        raise Violation(text)


def hash_of_tree(folder):
    """Names and bytes of all files below."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = "link to " + os.readlink(path)
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
    return found


def difference(before, after):
    """What changed from one hash_of_tree to the next."""
    names = sorted(before.keys() | after.keys())
    words = [(name, "gone" if name not in after else "new" if name not in before else "changed") for name in names
             if before.get(name) != after.get(name)]
    return ", ".join(f"{name} is {word}" for name, word in words)


def lasting(summary):
    return {key: summary.get(key) for key in LASTING}


def leftovers(run):
    """What a process that ended in order, or one that put things in order, may not leave."""
    names = []
    for path in Path(run).rglob("*"):
        name = path.name
        if name.startswith((".tmp-", ".old-", ".new-")) or ".tmp." in name or name.endswith((".part", "-part")):
            names.append(str(path.relative_to(run)))
    return names


def read_json(path):
    try:
        return json.loads(Path(path).read_text())
    except (OSError, ValueError):
        return None


def is_whole_snapshot(folder):
    manifest = read_json(folder / "manifest.json")
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        return False
    return all((folder / name).is_file() and (folder / name).stat().st_size == record["bytes"]
               for name, record in manifest["files"].items())


def whole_snapshots(run):
    """Steps of what looks like a whole snapshot; in a run that --fresh is just replacing those of the old one too."""
    steps = set()
    for snapshots in (Path(run) / "snapshots", *Path(run).glob(".old-run*/snapshots")):
        for folder in snapshots.glob("*step-*"):
            if not folder.name.startswith(".tmp-") and is_whole_snapshot(folder):
                steps.add(int(re.search(r"step-(\d+)", folder.name).group(1)))
    return steps


def is_whole_safetensors(file):
    data = Path(file).read_bytes()
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:8 + size])
    except ValueError:
        return False
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return 8 + size + max(ends, default=0) == len(data)


def is_whole_pt(file):
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.testzip() is None and bool(archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def seeded(seed, part, number):
    return random.Random(f"{seed}/{part}/{number}")
