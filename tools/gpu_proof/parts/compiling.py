"""torch.compile of the peers, so that the comparisons find its work in Inductor's cache; how long each takes from a cold one.

All peers at once, with CUDA graphs after without: Inductor keeps the two apart, but their kernels are the same and are compiled once.
"""
import json
from concurrent.futures import ThreadPoolExecutor

from .. import benches
from ..proof import Failure

# Of the 16 cores that such a machine has a peer traces and lowers on one, and compiles kernels on the others. Beside other parts: fewer.
AT_ONCE = {True: 11, False: 5}
LEAST_SECONDS = 15  # no peer begins with less left
NO_COMPILER = ("compiler", "Compiler", "triton", "Triton", "g++")
NO_MEMORY = ("out of memory", "OutOfMemory")


def first_step(proof, peer, cell, mode, words):
    """Seconds from the start of a peer to the end of its first step."""
    command = [proof.python, proof.folder / "bench/step" / peer, "--mode", mode, "--dtype", "bf16", "--steps", 1, *words]
    command += ["--device", proof.device, "--shape", cell.shape]
    done = proof.tried(command, environment=benches.ENVIRONMENT, text_in="quit\n")
    if done.status != 0:
        raise Failure(done.why())
    return json.loads(done.out.splitlines()[0])["first_step_s_since_process_start"]


def verdict_on(failure):
    if any(word in failure for word in NO_COMPILER + NO_MEMORY) or "was stopped after" in failure:
        return "left out"
    return "failed"


def one(proof, cell, way):
    """Whether it found the GPU's memory full, which it may not when it has the GPU to itself."""
    modes = benches.MODES if proof.on_gpu else benches.MODES[:1]
    what, found = " ".join(filter(None, (cell.recipe, cell.shape, way))), []
    with proof.trying(what):
        try:
            for mode in modes if proof.left() > LEAST_SECONDS else ():
                seconds = first_step(proof, benches.BENCHES[cell.recipe].peer, cell, mode, benches.compiled_ways(cell)[way])
                found.append(f"{seconds:.1f} s" + (" with CUDA graphs" if mode == "graphs" else ""))
        except Failure as failure:
            why = str(failure)
            if any(word in why for word in NO_MEMORY) and not proof.small:
                return True
            proof.row(what, f"first step after {', '.join(found)}" if found else "", verdict_on(why), why)
            return False
        proof.row(what, f"first step after {', '.join(found)}" if found else "", "measured" if found else "left out", "" if found else "no time was left")
    return False


def wanted(proof):
    """(cell, way), those of gpu-guide, which take longest, first."""
    if not proof.on_gpu:
        return [(benches.Cell(recipe, "cpu-small", ["fp32"], 1), next(iter(benches.BENCHES[recipe].compiled))) for recipe in proof.recipes[:1]]
    compiled = [cell for cell in benches.cells(proof.recipes, True, False, proof.thorough) if cell.ways]
    return [(cell, way) for cell in sorted(compiled, key=lambda cell: cell.shape) for way in benches.compiled_ways(cell)]


def run(proof):
    if proof.quick:
        proof.row("torch.compile", verdict="left out", why="the short rehearsal does without")
        return
    jobs = wanted(proof)
    at_once = min(AT_ONCE[proof.thorough], len(jobs)) if proof.on_gpu else 1
    proof.row("cores", f"{at_once} peers at once, {benches.COMPILE_THREADS} compiling threads each")
    with ThreadPoolExecutor(at_once) as pool:
        full = list(pool.map(lambda job: one(proof, *job), jobs))
    for job in [job for job, is_full in zip(jobs, full) if is_full]:
        if one(proof, *job):
            proof.row(f"{job[0].recipe} {job[0].shape}", verdict="left out", why="its first step does not fit the GPU's memory")
