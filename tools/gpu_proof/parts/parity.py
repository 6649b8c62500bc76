"""The five recipes on the device beside the CPU's references: losses of 20 steps with dropout, gradients of step 1 without.

A gradient is what one step of plain SGD with a known rate moves, read from two saved states; it needs no door into the program. Dropout is off
there, so that the figure is of the arithmetic alone; the losses have it on, so that they also show whether the same elements are dropped.
Runs go side by side: each is small, and its start takes longer than its steps.
"""
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from .. import references, training


@dataclass
class Format:
    """What a number format may differ by. loss: of 20 losses, relative; cosine and relative: of all gradients together."""
    name: str
    words: list
    loss: float
    relative: float
    cosine: float
    needs_gpu: bool = False


FORMATS = [
    Format("fp32 exact", ["--precision.dtype=fp32", "--device.tf32=off"], 1e-4, 1e-3, 0.9999),
    Format("fp32 TF32", ["--precision.dtype=fp32", "--device.tf32=on"], 1e-2, 2e-2, 0.999, needs_gpu=True),
    Format("bf16", ["--precision.dtype=bf16"], 5e-2, 1e-1, 0.99),
    Format("fp16", ["--precision.dtype=fp16"], 2e-2, 2e-2, 0.999, needs_gpu=True),
]
SCATTERS = 4  # times what the CPU's losses differ by when it computes with the least of its instructions
SIDE_BY_SIDE = 5
RUN_LIMIT = 80  # seconds


def train(proof, name, words):
    run = proof.scratch / "parity" / name
    proof.run([proof.program, *words, f"--device.name={proof.device}", "--run", run], RUN_LIMIT)
    return training.RunFolder(run)


def fell_back(proof, what, form, run):
    """Whether the program took another format than it was asked for, which hardware without it makes it do; a row says so then."""
    asked, taken = form.words[0].rpartition("=")[2], run.plan("precision.dtype")
    if taken == asked:
        return False
    proof.row(what, verdict="left out", why=f"the program computed in {taken}: {asked} is not for this device")
    return True


def losses(proof, recipe, form, carried, dropout):
    """Twenty steps of Adam make more of a rounding, in some recipes much more: what is allowed grows with what the CPU does to itself."""
    expected, limit = carried["losses" if dropout else "losses_without_dropout"], form.loss + SCATTERS * carried["scatter"]
    steps = len(next(iter(expected.values())))
    what = f"{recipe} {form.name}: losses of {steps} steps{'' if dropout else ' without dropout'}"
    with proof.trying(what):
        name = f"{recipe}-{form.name.replace(' ', '-')}-{'losses' if dropout else 'plain'}"
        run = train(proof, name, [*training.loss_words(recipe, dropout, steps), *form.words])
        found = run.losses()
        distance = training.loss_distance(found, expected)
        if fell_back(proof, what, form, run):
            return
        skipped = run.summary()["skipped_steps"] if form.name == "fp16" else 0
        if skipped:
            proof.row(what, verdict="left out", why=f"{skipped} steps overflowed at the first loss scales and were skipped, as they should be", losses=found)
            return
        good = distance <= limit
        last = ", ".join(f"{found[name][-1]:.5f} instead of {expected[name][-1]:.5f}" for name in expected)
        proof.row(what, f"{distance:.1e} apart, {limit:.0e} allowed", "ok" if good else "differs", "" if good else f"at the end {last}", losses=found)


def gradients(proof, recipe, form):
    from .. import tensors
    what = f"{recipe} {form.name}: gradients of step 1"
    with proof.trying(what):
        run = train(proof, f"{recipe}-{form.name.replace(' ', '-')}-gradient", [*training.gradient_words(recipe), *form.words])
        if fell_back(proof, what, form, run):
            return
        if run.summary()["skipped_steps"]:
            proof.row(what, verdict="left out", why="the first step overflowed at the first loss scale and was skipped, as it should be")
            return
        initial = tensors.read_all(references.weights(proof.folder, recipe, "initial"))
        expected = tensors.moved(initial, tensors.read_all(references.weights(proof.folder, recipe, "stepped")), training.RATE)
        apart = tensors.apart(tensors.moved(initial, tensors.read_all(run.weights()), training.RATE), expected)
        allowed = form.relative + training.GRADIENT_ROUNDING.get(recipe, 0.0)
        good = apart["relative"] <= allowed and apart["cosine"] >= form.cosine
        proof.row(what, f"{apart['relative']:.1e} apart, {allowed:.0e} allowed; cosine {apart['cosine']:.7f}", "ok" if good else "differs",
                  "" if good else f"cosine {apart['worst_cosine']:.5f} in {apart['worst']}; {form.cosine} asked for", **apart)


def jobs_of(proof, recipe, expected):
    """Functions, the first of which makes the recipe's data."""
    jobs = []
    for form in FORMATS:
        if form.needs_gpu and not proof.on_gpu:
            proof.skipped(f"{recipe} {form.name}")
            continue
        jobs.append(lambda form=form: losses(proof, recipe, form, expected, True))
        jobs.append(lambda form=form: gradients(proof, recipe, form))
        if form is FORMATS[0] and "losses_without_dropout" in expected:
            jobs.append(lambda form=form: losses(proof, recipe, form, expected, False))
    return jobs


def run(proof):
    import torch  # here, on the main thread
    torch.set_num_threads(2)
    carried = references.read(proof.folder)
    jobs = {}
    for recipe in proof.recipes:
        if recipe in carried:
            jobs[recipe] = jobs_of(proof, recipe, carried[recipe])
        else:
            proof.row(f"{recipe}", verdict="left out", why="the folder was carried without references of it")
    with ThreadPoolExecutor(SIDE_BY_SIDE if proof.on_gpu else 2) as pool:
        firsts = list(pool.map(lambda recipe: jobs[recipe][0](), jobs))
        assert len(firsts) == len(jobs)
        for done in [pool.submit(job) for recipe in jobs for job in jobs[recipe][1:]]:
            done.result()
