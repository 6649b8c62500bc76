"""A run's life on the device: it trains, is killed and goes on to the same state, recomputes, offloads, outgrows the memory, is verified."""
import contextlib
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from .. import figures, training
from ..proof import Failure

LIMIT = 50  # seconds of one run
TRIES = 5  # to kill a run between its first save and its end
EQUAL = 1e-5  # of the last loss, where a GPU's sums may differ in their order


def train(proof, recipe, name, steps, *words, precision="fp32", part="life"):
    run = proof.scratch / part / name
    proof.run([proof.program, *training.smoke(recipe, steps, f"--precision.dtype={precision}", f"--device.name={proof.device}", "--run", run, *words)], LIMIT)
    return training.RunFolder(run)


def steps_of(proof):
    return 10 if proof.small else 60


def trains(proof, recipe):
    with proof.trying(f"{recipe} trains"):
        summary = train(proof, recipe, f"{recipe}-trains", steps_of(proof)).summary()
        first, last = summary["loss"]["first"], summary["loss"]["last"]
        if not all(isinstance(value, (int, float)) for value in (first, last)):
            raise Failure(f"the loss went from {first} to {last}")
        step = summary["step_ms"]["p50"] if isinstance(summary["step_ms"], dict) else summary["step_ms"]
        proof.row(f"{recipe} trains", f"loss {first:.4f} to {last:.4f} in {summary['steps']} steps, {figures.short(step)} ms a step",
                  "ok" if summary["exit_reason"] == "max_steps" else "failed", "" if summary["exit_reason"] == "max_steps" else summary["exit_reason"], skipped=summary["skipped_steps"])


def verified(proof, recipe):
    with proof.trying(f"{recipe}: doctor --verify"):
        done = proof.tried([proof.program, "doctor", recipe, "--verify", "--preset", "smoke", f"--device.name={proof.device}"], LIMIT)
        lines = [line.strip() for line in done.out.splitlines() if line.strip()]
        good = done.status in (0, 3)  # 3: it warns, as where other programs have the cores
        proof.row(f"{recipe}: doctor --verify", lines[-1] if good and lines else "", "ok" if good else "failed", "" if good else done.why(), said=lines)


def kill_once_saved(proof, words, run):
    """Whether the program was there to be killed when it had saved."""
    child = subprocess.Popen([str(word) for word in [proof.program, *words, "--run", run]], env=proof.environment, cwd=proof.scratch,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while child.poll() is None and proof.left() > 1 and not list(run.glob("snapshots/step-*/manifest.json")):
        time.sleep(0.002)
    child.kill()
    return child.wait() == -signal.SIGKILL


def killed(proof, recipe):
    """kill -9 once it has saved, then the same command again: the state of a run that nobody killed."""
    what = f"{recipe}: killed and resumed"
    with proof.trying(what):
        steps = steps_of(proof) * 2
        fixed = [*training.FIXED, "--snapshot.every_steps=5", "--snapshot.every_epochs=0"]
        a = train(proof, recipe, f"{recipe}-whole", steps, *fixed).summary()
        words = training.smoke(recipe, steps, "--precision.dtype=fp32", f"--device.name={proof.device}", *fixed)
        name = next((name for name in (f"{recipe}-killed-{i}" for i in range(TRIES)) if kill_once_saved(proof, words, proof.scratch / "life" / name)), None)
        if name is None:
            proof.row(what, verdict="left out", why=f"{TRIES} times it came to its end before it could be killed")
            return
        b = train(proof, recipe, name, steps, *fixed).summary()
        same = a["state_sha256"] == b["state_sha256"]
        proof.row(what, f"state {'the same to the bit' if same else 'not the same'}, last loss {a['loss']['last']:.7g} and {b['loss']['last']:.7g}",
                  "ok" if same else "differs")


def same_loss(proof, recipe, what, name, against, *words, seen=None):
    """A way of saving memory that changes no loss."""
    with proof.trying(what):
        run = train(proof, recipe, name, 5, *training.FIXED, *words)
        a, b = against.summary()["loss"]["last"], run.summary()["loss"]["last"]
        close = abs(a - b) <= EQUAL * abs(a)
        proof.row(what, f"last loss {b:.7g} and {a:.7g} without it", "ok" if close else "differs", seen(run) if seen else "")


def memory(proof, recipe):
    with proof.trying(f"{recipe}: saving memory"):
        plain = train(proof, recipe, f"{recipe}-plain", 5, *training.FIXED)
        same_loss(proof, recipe, f"{recipe}: recomputes", f"{recipe}-recomputes", plain, "--memory.recompute=all")
        if proof.on_gpu:
            same_loss(proof, recipe, f"{recipe}: offloads", f"{recipe}-offloads", plain, "--memory.offload=64 KB")
        else:
            proof.skipped(f"{recipe}: offloads")


HOLD = """
import sys, torch
held = torch.empty(torch.cuda.mem_get_info()[0] - (4 << 30), dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def little_memory(proof):
    """A card with 4 GB left, whatever its size: another program holds the rest."""
    if not proof.on_gpu:
        yield
        return
    with subprocess.Popen([proof.python, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          env=proof.environment) as child:
        try:
            if child.stdout.readline().strip() != "held":
                raise Failure("the card's memory could not be taken up")
            yield
        finally:
            child.kill()


def outgrows(proof):
    """A batch that does not fit is recomputed or cut; on a CPU memory.limit is what it does not fit into."""
    what = "out of memory and recovered"
    with proof.trying(what):
        if proof.on_gpu:
            words = ["--data.batch_size=2500", "--recipe.model_embd=512", "--recipe.model_head=8", "--recipe.model_layer=6"]
        else:
            words = ["--data.batch_size=256", "--memory.limit=80 MB"]
        run = proof.scratch / "life" / "outgrows"
        with little_memory(proof):
            proof.run([proof.program, *training.smoke("language_model", 2, *words, "--log.every=1", "--precision.dtype=fp32"),
                       f"--device.name={proof.device}", "--run", run], LIMIT)
        folder = training.RunFolder(run)
        said = [entry["text"] for entry in folder.log("memory")]
        if not said:
            raise Failure("the batch fitted: nothing had to be recovered, and nothing is shown")
        proof.row(what, f"{folder.summary()['steps']} steps done", "ok", said[-1])


def run(proof):
    recipes = proof.recipes
    with ThreadPoolExecutor(6 if proof.on_gpu else 2) as pool:
        list(pool.map(lambda recipe: trains(proof, recipe), recipes))
        jobs = [pool.submit(killed, proof, recipe) for recipe in recipes]
        jobs += [pool.submit(memory, proof, recipe) for recipe in recipes[:1 if proof.small else None]]
        jobs += [pool.submit(verified, proof, recipe) for recipe in recipes]
        for job in jobs:
            job.result()
    outgrows(proof)  # alone: it takes the whole memory
