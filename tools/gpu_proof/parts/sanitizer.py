"""compute-sanitizer, where the machine has it: memory checked in the tests under the label gpu and in steps of a recipe."""
import re
import shutil
from pathlib import Path

from .. import training

BAD_STATUS = 86  # of a program in which the sanitizer found something
PLACES = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer", "/opt/cuda/bin/compute-sanitizer")
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error")


def checked(proof, what, sanitizer, tool, words, limit):
    with proof.trying(what):
        done = proof.tried([sanitizer, "--tool", tool, "--error-exitcode", BAD_STATUS, "--target-processes", "all", *words], limit,
                           {"LD_LIBRARY_PATH": proof.setup["library_path"]})
        errors = sum(map(int, SUMMARY.findall(done.out + done.err)))
        if done.status is None:
            proof.row(what, verdict="left out", why=f"it takes longer than {limit} s under the sanitizer")
        else:
            proof.row(what, f"{errors} errors", "ok" if done.status == 0 and not errors else "failed", done.why() if done.status else "")


def run(proof):
    sanitizer = next((path for place in PLACES if (path := shutil.which(place))), None)
    if not proof.on_gpu:
        proof.skipped("compute-sanitizer")
        return
    if not sanitizer:
        proof.row("compute-sanitizer", verdict="left out", why="this machine has no such program")
        return
    for test in map(Path, proof.setup["tests"]):
        checked(proof, f"memcheck of {test.name}", sanitizer, "memcheck", [test], 25)
    run_folder = proof.scratch / "sanitizer"
    step = [proof.program, *training.smoke("language_model", 2, f"--device.name={proof.device}", "--run", run_folder)]
    checked(proof, "memcheck of two steps of language_model", sanitizer, "memcheck", step, 45)
