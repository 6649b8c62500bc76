"""Three steps of each recipe as Kineto records them: kernels, copies, waits, and the part of the time in which the device did nothing."""
from concurrent.futures import ThreadPoolExecutor

from .. import trace, training

STEPS = 3
# Of a step that becomes a graph: four launched piece by piece, one recorded, two launched twice to compare both ways, three timed.
SKIP = 10
LIMIT = 20
EACH = 7  # seconds that those to come are left, where one takes long


def one(proof, recipe, to_come=0):
    with proof.trying(recipe):
        run = proof.scratch / "profile" / recipe
        limit = LIMIT if proof.small else max(min(LIMIT, proof.left() - EACH * to_come), EACH)
        done = proof.run([proof.program, *training.smoke(recipe, SKIP + STEPS + 1, f"--profile.steps={STEPS}", f"--profile.skip={SKIP}", f"--device.name={proof.device}", "--run", run)], limit)
        file = max((run / "profile").glob("*.trace.json"))
        proof.keep(file, f"traces/{recipe}.pt.trace.json")
        found = {**trace.read(file), "trace_bytes": file.stat().st_size, "seconds": round(done.seconds, 1)}
        if proof.on_gpu and found["idle"] is None:
            proof.row(recipe, verdict="failed", why="the trace holds no work of the device")
        elif proof.on_gpu:
            proof.row(recipe, f"a step of {found['step_ms']:.2f} ms: {found['kernels']:.0f} kernels, {found['copies']:.0f} copies and fills, {found['waits']:.0f} waits "
                              f"of {found['wait_ms']:.2f} ms; the device idle {100 * found['idle']:.0f} % of the time", **found)
        else:
            proof.row(recipe, f"a step of {found['step_ms']:.1f} ms: {found['operations']:.0f} operations", **found)
            proof.skipped(f"{recipe}: kernels, copies, waits, idle share")


def run(proof):
    if not proof.on_gpu:  # the idle share is not looked at there
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda recipe: one(proof, recipe), proof.recipes))
        return
    for number, recipe in enumerate(proof.recipes):  # alone: the idle share is of one program
        one(proof, recipe, len(proof.recipes) - 1 - number)
