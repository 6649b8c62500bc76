"""compute-sanitizer, where the machine has it: memory checked in the tests of the kernels of ours. It runs only where it is asked for."""
import re
import shutil
from pathlib import Path

BAD_STATUS = 86  # of a program in which the sanitizer found something
PLACES = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer", "/opt/cuda/bin/compute-sanitizer")
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error")
TEST, FILTER = "millrace_cuda_test", "CudaDropout.*"  # the others launch no kernel of ours
LIMIT = 120  # seconds; all tests of this program and two steps of a recipe were not done in 44


def checked(proof, what, sanitizer, tool, words, limit):
    with proof.trying(what):
        done = proof.tried([sanitizer, "--tool", tool, "--error-exitcode", BAD_STATUS, "--target-processes", "all", *words], limit,
                           {"LD_LIBRARY_PATH": proof.setup["library_path"], "GTEST_FILTER": FILTER})
        errors = sum(map(int, SUMMARY.findall(done.out + done.err)))
        if done.status is None:
            proof.row(what, verdict="left out", why=f"it takes longer than {limit} s under the sanitizer")
        else:
            proof.row(what, f"{errors} errors", "ok" if done.status == 0 and not errors else "failed", done.why() if done.status else "")


def run(proof):
    sanitizer = next((path for place in PLACES if (path := shutil.which(place))), None)
    test = next((test for test in map(Path, proof.setup["tests"]) if test.name == TEST), None)
    if not proof.on_gpu:
        proof.skipped("compute-sanitizer")
    elif not sanitizer:
        proof.row("compute-sanitizer", verdict="left out", why="this machine has no such program")
    elif not test:
        proof.row("compute-sanitizer", verdict="left out", why=f"{TEST} was not carried")
    else:
        checked(proof, f"memcheck of {TEST}, {FILTER}", sanitizer, "memcheck", [test], LIMIT)
