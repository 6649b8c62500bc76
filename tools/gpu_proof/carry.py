"""Makes the folder that travels to the GPU: wheel, tests, references, scripts, peers."""
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import processes, programs, references, training
from .errors import ProofError
from .parts import python

MOST_BYTES = 55_000_000
PROGRAMS = ["millrace", "millrace-torch", "millrace-hdf5", "millrace-convolutions", "libmillrace_cuda.so"]
PEER_FOLDER = re.compile(r'"tests" / "(\w+)"')  # where the scripts of bench/step look for the networks of their peers
PEER_FILES = ("twin.py", "unet.py")
LOADED = re.compile(r"^\s*(\S+) => (/\S+) \(", re.MULTILINE)  # what ldd says of a library that it finds
# Of the C and C++ libraries: every machine has its own, and they belong together.
EVERYWHERE = re.compile(r"(lib(c|m|rt|dl|util|pthread|resolv|stdc\+\+|gcc_s|gomp)|ld-linux.*)\.so")


@dataclass
class Wish:
    root: Path
    folder: Path
    build: Path
    wheel: Path | None
    program: Path | None
    python: str
    recipes: list
    steps: int = training.STEPS  # of the losses


def wheel_of(wish):
    if wish.wheel:
        if not wish.wheel.exists():
            raise ProofError("there is no such wheel", wish.wheel, "make one: ./dev wheel")
        return wish.wheel
    found = sorted((wish.root / "dist").glob(programs.WHEEL_NAME), key=lambda path: path.stat().st_mtime)
    if not found:
        raise ProofError("there is no wheel to carry", wish.root / "dist" / programs.WHEEL_NAME,
                         "make one: ./dev wheel; for a rehearsal on this machine alone: --program build/release/millrace")
    return found[-1]


def strip(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    done = processes.run(["strip", "-o", target, source], 120)
    if done.status != 0:
        raise ProofError(f"{source.name} could not be stripped: {done.why()}", source, "install binutils, or build it again")
    target.chmod(0o755)


def copy_scripts(root, target):
    """The tool itself, the benches of a step and their peers, and headrace, where the repository has them."""
    names = [root / "tools/gpu-proof", *(root / "tools/gpu_proof").rglob("*.py"), *(root / "bench/step").glob("*.py"),
             *(root / "python/headrace").glob("*.py"), root / "bench/python_loader/device.py"]
    for script in list(names):
        if script.parent.name == "step":
            for folder in PEER_FOLDER.findall(script.read_text(encoding="utf-8")):
                names += [path for name in PEER_FILES if (path := root / "tests" / folder / name).exists()]
    for source in sorted(set(names)):
        goal = target / source.relative_to(root)
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, goal)


def copy_libraries(file, target):
    """What a test or library is linked with and other distributions lack or have in another version, but what is torch's."""
    done = processes.run(["ldd", file], 60)
    for name, place in LOADED.findall(done.out):
        if not EVERYWHERE.match(name) and not any(part in place for part in ("/torch/lib/", "/nvidia/")):
            strip(Path(place).resolve(), target / name)


def copy_tests(wish, target, say):
    """The programs of the build that ctest has under the label gpu, with their libraries."""
    sys.path.insert(0, str(wish.root / "tools"))
    from run_tests import registered_tests
    try:
        tests = [Path(test.command[0]) for test in registered_tests(wish.build) if "gpu" in test.labels and test.command]
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise ProofError(f"the tests of the build are not known: {error}", wish.build, "build first: ./dev build --all") from error
    built = [test for test in tests if test.exists()]
    for test in built:
        strip(test, target / test.name)
        copy_libraries(test, target / programs.TEST_LIBRARIES)
    if len(built) < len(tests):
        say(f"left out: {', '.join(test.name for test in tests if test not in built)}, not built in {wish.build}")
    plugin = wish.build / "libmillrace_cuda.so"
    if built and plugin.exists():  # a test looks for it beside itself
        strip(plugin, target / plugin.name)


def copy_headrace(wish, target, say):
    """The library of the Python package, with its own."""
    library = wish.build / Path(python.LIBRARY).name
    if library.exists():
        strip(library, target / python.LIBRARY)
        copy_libraries(library, (target / python.LIBRARY).parent)
    else:
        say(f"left out: {library.name}, not built in {wish.build}")


def commit_of(root):
    done = processes.run(["git", "-C", root, "describe", "--always", "--dirty=+changes", "--exclude=*"], 20)
    return done.out.strip() if done.status == 0 else "unknown"


def sizes(folder):
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def refuse_too_large(folder, most=MOST_BYTES):
    """Bytes of the folder; ProofError with the largest files where they are too many."""
    files = sizes(folder)
    whole = sum(files.values())
    if whole > most:
        largest = sorted(files, key=files.get, reverse=True)[:5]
        named = ", ".join(f"{path.relative_to(folder)} {files[path] / 1e6:.1f} MB" for path in largest)
        raise ProofError(f"the folder is {whole / 1e6:.1f} MB, and {most / 1e6:.0f} MB are the most that travel", named, "make the largest smaller")
    return whole


def fill(wish, folder, scratch, say):
    wheel = None if wish.program else wheel_of(wish)
    copy_scripts(wish.root, folder)
    if wish.program:
        for name in PROGRAMS:
            if (wish.program.parent / name).exists():
                strip(wish.program.parent / name, folder / "program" / name)
    else:
        (folder / "wheel").mkdir()
        shutil.copyfile(wheel, folder / "wheel" / wheel.name)
    copy_tests(wish, folder / "gpu_tests", say)
    copy_headrace(wish, folder, say)
    facts = programs.torch_facts(wish.python)
    made = programs.prepare(folder, scratch, wish.python, facts["site"])
    environment = {**os.environ, "XDG_CACHE_HOME": str(scratch / "cache")}
    said = processes.run([made.millrace, "--version"], 60, environment)
    if said.status != 0:
        raise ProofError(f"the program to carry does not start: {said.why()}", made.millrace, "mend it, then carry it")
    seconds = references.make(made.millrace, wish.recipes, folder / "references", scratch, environment, wish.steps)
    say(f"references of {len(wish.recipes)} recipes: {seconds:.0f} s")
    return said.out.split()[1] if len(said.out.split()) > 1 else said.out.strip()


def make(wish, say):
    """Makes wish.folder, whole or not at all."""
    if wish.folder.exists() and any(wish.folder.iterdir()) and not (wish.folder / programs.MANIFEST).exists():
        raise ProofError("that folder holds something else", wish.folder, "name another folder, or empty it")
    if wish.program and not wish.program.exists():
        raise ProofError("there is no such program", wish.program, "build it: ./dev build")
    wish.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-proof-carry-") as scratch, \
            tempfile.TemporaryDirectory(prefix=".gpu-proof-", dir=wish.folder.parent) as new:
        folder = Path(new) / "folder"
        folder.mkdir()
        version = fill(wish, folder, Path(scratch), say)
        manifest = {"millrace": version, "commit": commit_of(wish.root), "made": datetime.date.today().isoformat(), "recipes": wish.recipes,
                    "program": "this build's, for this machine alone" if wish.program else "wheel"}
        (folder / programs.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        whole = refuse_too_large(folder)
        if wish.folder.exists():
            shutil.rmtree(wish.folder)
        folder.rename(wish.folder)
    parts = {path.name: sum(sizes(path).values()) if path.is_dir() else path.stat().st_size for path in sorted(wish.folder.iterdir())}
    say(f"carried {wish.folder}: {whole / 1e6:.1f} MB of {MOST_BYTES / 1e6:.0f} MB ("
        + ", ".join(f"{name} {size / 1e6:.1f}" for name, size in parts.items()) + ")")
