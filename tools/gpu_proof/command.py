"""Proves and measures Millrace on a GPU in nine minutes, and says what it found as one table.

  gpu-proof                       on a machine with a GPU, from the carried folder, with the Python that has torch 2.11
  gpu-proof --carry [FOLDER]      where Millrace is built: make the folder that travels (build/gpu-proof), from dist/*.whl and the build
  gpu-proof --rehearse            every part in small on the CPU, from that folder, with nothing but Python and torch around it
  gpu-proof --page RESULT.json    put results of GPUs into docs/gpu.md
  gpu-proof --parts compiling,steps   in all of the time the comparison with Python torch, whose peers compile first

Parts run one after the other, each in its own process with its own limit; none stops the others. Results go to --out, $OUT or
./gpu-proof-results: result.json, table.md, files.tar. Exit status 0: all is as it should be; 1: something is not; 2: it could not begin.
"""
import argparse
import os
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from . import carry, machine, page, programs, rehearsal, report
from .errors import ProofError
from .parts import ALL, chosen
from .runner import WHOLE_SECONDS, Runner, is_good
from .training import RECIPES, STEPS

ROOT = Path(__file__).resolve().parents[2]  # of the repository, or of the carried folder
QUICK_RECIPES = ["language_model", "image_pairs"]
QUICK_STEPS = 8  # of the losses that are compared
POLITE = {"OMP_WAIT_POLICY": "passive"}  # of a rehearsal, which times nothing: threads that spin take the cores from each other
REHEARSAL_STRETCH = 10  # of the limits: a rehearsal is about what runs, not how fast, and the machine may be slow or busy


def words_of(text):
    return [word for word in text.split(",") if word]


def parse(arguments):
    parser = argparse.ArgumentParser(prog="gpu-proof", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carry", nargs="?", const="", metavar="FOLDER", help="make the folder that travels")
    parser.add_argument("--rehearse", action="store_true", help="every part in small on the CPU; with --carry from the folder just made")
    parser.add_argument("--page", nargs="*", type=Path, metavar="RESULT.json", help="write docs/gpu.md anew, with these results")
    parser.add_argument("--quick", action="store_true", help="of --rehearse: two recipes, in 90 s")
    parser.add_argument("--folder", type=Path, help="the carried folder (default: the one this script lies in, else build/gpu-proof)")
    parser.add_argument("--out", type=Path, help="where the results go")
    parser.add_argument("--python", help="the Python that has torch (default: this one; in a clone tools/python-peer)")
    parser.add_argument("--wheel", type=Path, help="of --carry: the wheel (default: the newest in dist/)")
    parser.add_argument("--program", type=Path, help="of --carry: this program of a build instead of a wheel; it runs on this machine alone")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="of --carry: the build with the tests (build/release)")
    parser.add_argument("--seconds", type=int, default=WHOLE_SECONDS, metavar="N", help=f"of all parts together ({WHOLE_SECONDS}); what is left out says so")
    parser.add_argument("--parts", type=words_of, default=[], metavar="NAME,...", help=f"only these: {', '.join(part.name for part in ALL)}")
    parser.add_argument("--recipes", type=words_of, default=[], metavar="NAME,...", help="only these")
    parser.add_argument("--inside", help=argparse.SUPPRESS)  # the process of a rehearsal; what it isolates
    options = parser.parse_args(arguments)
    check_names(options.parts, [part.name for part in ALL], "--parts")
    check_names(options.recipes, RECIPES, "--recipes")
    return options


def check_names(given, known, flag):
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ProofError(f"there is no {unknown[0]!r}", flag, f"names: {', '.join(known)}")


def python_of(options):
    if options.python:
        return options.python
    peer = ROOT / "tools/python-peer"
    return str(peer) if peer.exists() else sys.executable


def folder_of(options):
    if options.folder:
        return options.folder
    return ROOT if (ROOT / programs.MANIFEST).exists() else ROOT / "build/gpu-proof"


def out_of(options):
    return options.out or Path(os.environ.get("OUT") or "gpu-proof-results")


def say(text):
    print(text, flush=True)


def setup_of(options, folder, scratch, facts, made):
    recipes = options.recipes or (QUICK_RECIPES if options.quick else RECIPES)
    return {"device": "cpu" if options.inside else "cuda", "small": bool(options.inside), "quick": options.quick, "thorough": bool(options.parts),
            "recipes": recipes, "folder": str(folder), "scratch": str(scratch), "keep": str(scratch / "keep"), "python": sys.executable,
            "program": str(made.millrace), "program_folder": str(made.folder), "tests": [str(test) for test in made.tests], "torch": facts,
            "environment": {"XDG_CACHE_HOME": str(scratch / "cache"),
                            "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(scratch / "inductor"), **(POLITE if options.inside else {})},
            "library_path": made.library_path, "stretch": REHEARSAL_STRETCH if options.inside else 1}


def archive(scratch, keep, target):
    """What the parts kept, and what they printed."""
    with tarfile.open(target, "w") as tar:
        for path in sorted([*scratch.glob("*.log"), *(keep.rglob("*.gz") if keep.exists() else [])]):
            tar.add(path, arcname=str(path.relative_to(scratch)))


def prove(options):
    folder, out = folder_of(options), out_of(options)
    if options.inside:
        rehearsal.raise_loopback()
    manifest = programs.manifest_of(folder)
    facts = programs.torch_facts(sys.executable)
    if not options.inside and not facts["card"]:
        raise ProofError("the torch of this Python sees no GPU", sys.executable, "on the CPU, in small: gpu-proof --rehearse")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-proof-") as place:
        scratch = Path(place)
        made = programs.prepare(folder, scratch, sys.executable, facts["site"])
        setup = setup_of(options, folder, scratch, facts, made)
        header = machine.header(setup["device"], facts, manifest, options.inside or "")
        say(machine.title(header))
        results = Runner(setup, header, out, say, options.seconds).run(chosen(options.parts))
        text = report.table(header, results, time.monotonic() - began)
        (out / "table.md").write_text(text)
        archive(scratch, Path(setup["keep"]), out / "files.tar")
    print(text, end="", flush=True)
    return 0 if is_good(results) else 1


def main(arguments):
    try:
        options = parse(arguments)
        if options.page is not None:
            return page.write(ROOT / "docs/gpu.md", options.page, say)
        if options.carry is not None:
            folder = Path(options.carry) if options.carry else ROOT / "build/gpu-proof"
            recipes = options.recipes or (QUICK_RECIPES if options.quick else RECIPES)
            carry.make(carry.Wish(ROOT, folder, options.build, options.wheel, options.program, python_of(options), recipes,
                                  QUICK_STEPS if options.quick else STEPS), say)
            options.folder = folder
        if options.rehearse:
            programs.manifest_of(folder_of(options))
            words = (["--quick"] if options.quick else []) + [f"--{name}={','.join(value)}" for name, value in
                                                             (("parts", options.parts), ("recipes", options.recipes)) if value]
            return rehearsal.rehearse(folder_of(options), python_of(options), out_of(options), words)
        return 0 if options.carry is not None else prove(options)
    except ProofError as error:
        print(error, file=sys.stderr)
        return 2
