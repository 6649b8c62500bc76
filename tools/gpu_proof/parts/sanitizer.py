"""compute-sanitizer, where the machine has it: the kernels of ours in their tests. It runs only where it is asked for."""
import re
import shutil
from pathlib import Path

BAD_STATUS = 86  # of a program in which the sanitizer found something
PLACES = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer", "/opt/cuda/bin/compute-sanitizer")
SUMMARY = re.compile(r"(?:ERROR SUMMARY: |hazards? displayed \()(\d+) error")
TEST, FILTER = "millrace_cuda_test", "CudaDropout.*:CudaKernels.*-*Recording*"  # a recording needs the allocator that is turned off
KERNELS = "kns=millrace"  # part of the names of ours: to look at LibTorch's as well takes longer than there is
TOOLS = {"memcheck": 80, "racecheck": 45}  # seconds; all tests of this program and two steps of a recipe, with LibTorch's kernels, were not done in 44
# The allocator takes memory in large pieces: what a kernel reads or writes behind a tensor would still be in one.
EACH_TENSOR_ALONE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def checked(proof, what, sanitizer, tool, words, limit):
    with proof.trying(what):
        done = proof.tried([sanitizer, "--tool", tool, "--kernel-name", KERNELS, "--error-exitcode", BAD_STATUS, "--target-processes", "all", *words], limit,
                           {"LD_LIBRARY_PATH": proof.setup["library_path"], "GTEST_FILTER": FILTER, **EACH_TENSOR_ALONE})
        found = SUMMARY.findall(done.out + done.err)
        errors = sum(map(int, found))
        if done.status is None:
            proof.row(what, verdict="left out", why=f"it takes longer than {limit} s under the sanitizer")
        else:
            why = done.why() if done.status else "" if found else "the sanitizer gave no summary"
            proof.row(what, f"{errors} errors", "failed" if why or errors else "ok", why)


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
        for tool, limit in TOOLS.items():
            checked(proof, f"{tool} of {TEST}, {FILTER}", sanitizer, tool, [test], limit)
