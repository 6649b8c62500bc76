"""torch.compile of the peers beside other parts, so that the comparisons find its work in Inductor's cache; how long each takes from a cold one.

Without CUDA graphs: with them the same kernels come from the same cache.
"""
import json
from concurrent.futures import ThreadPoolExecutor

from .. import benches
from ..proof import Failure

AT_ONCE, THREADS = 4, 4  # of the 16 cores that such a machine has
NO_COMPILER = ("compiler", "Compiler", "triton", "Triton", "g++")


def one(proof, recipe, shape):
    bench = benches.BENCHES[recipe]
    what = f"{recipe} {shape}"
    with proof.trying(what):
        words = [proof.python, proof.folder / "bench/step" / bench.peer, "--mode", "compile", "--dtype", "bf16", "--steps", 1, *bench.words]
        words += ["--device", proof.device, "--shape", shape]
        done = proof.tried(words, environment={"TORCHINDUCTOR_COMPILE_THREADS": str(THREADS)}, text_in="quit\n")
        if done.status == 0:
            first = json.loads(done.out.splitlines()[0])["first_step_s_since_process_start"]
            proof.row(what, f"first step after {first:.1f} s")
        elif any(word in done.err for word in NO_COMPILER):
            proof.row(what, verdict="left out", why=f"torch.compile has no compiler here: {done.why()}")
        else:
            raise Failure(done.why())


def run(proof):
    if proof.quick:
        proof.row("torch.compile", verdict="left out", why="the short rehearsal does without")
        return
    shape = "gpu-small" if proof.on_gpu else "cpu-small"
    wanted = [(recipe, shape) for recipe in proof.recipes]
    if proof.on_gpu and "language_model" in proof.recipes:
        wanted.insert(0, ("language_model", "gpu-guide"))
    proof.row("cores", f"{AT_ONCE} peers at once, {THREADS} compiling threads each")
    with ThreadPoolExecutor(AT_ONCE if proof.on_gpu else 1) as pool:
        list(pool.map(lambda words: one(proof, *words), wanted if not proof.small else wanted[:1]))
