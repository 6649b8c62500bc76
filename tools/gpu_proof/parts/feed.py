"""The loader feeds the device: waiting for data, the copy, how busy the GPU is, with 1, 4 and 12 readers; the pause of a snapshot."""
from .. import figures, nvml, training

RECIPE = "cosmology"  # the largest batches by far
LARGE = ["--recipe.model_embd=768", "--recipe.model_head=12", "--recipe.model_layer=18", "--data.batch_size=2"]  # 1.5 GB with what AdamW keeps
# In small: the way of the data is looked at, not the network, nor what a start would try for it.
FEW = ["--recipe.filters=2", "--precision.dtype=fp32", "--device.kernels=ours", "--device.layout=contiguous"]
LIMIT = 25


def train(proof, name, *words):
    run = proof.scratch / "feed" / name
    proof.run([proof.program, "train", RECIPE, "--preset", "smoke" if proof.small else "small", "--train.validate_every=0", "--train.validate_batches=1",
               *training.QUIET, *(FEW if proof.small else []), "--log.every=5", f"--device.name={proof.device}", "--run", run, *words], LIMIT)
    return training.RunFolder(run)


def share(accounts, name, loop):
    return 100 * accounts.get(name, 0.0) / loop if loop else 0.0


def shares_of(run):
    """Percent of the loop's time that its steps waited for data and copied, from the log lines after the first."""
    sums = {}
    for entry in run.log("step")[1:] or run.log("step"):
        for name, seconds in entry["accounts"].items():
            sums[name] = sums.get(name, 0.0) + seconds
    return sums


def readers(proof, number, steps):
    what = f"{RECIPE}, {number} reader{'s' if number > 1 else ''}"
    with proof.trying(what):
        with nvml.Busy() as busy:
            run = train(proof, f"readers-{number}", f"--data.workers={number}", "--data.cache=off", f"--train.max_steps={steps}", "--train.epochs=0")
        accounts = shares_of(run)
        whole = sum(accounts.values())
        summary = run.summary()
        figure = (f"wait for data {share(accounts, 'data_wait', whole):.1f} %, copy {share(accounts, 'copy', whole):.1f} % of the time, "
                  f"{summary['samples_per_s']:.1f} samples/s")
        proof.row(what, figure, accounts=accounts)
        if not proof.on_gpu:
            proof.skipped(f"{what}: GPU busy")
        elif busy.values:
            proof.row(f"{what}: GPU busy", figures.text(busy.values, "%"), values=busy.values)
        else:
            proof.row(f"{what}: GPU busy", verdict="left out", why=busy.why or "the run ended before the first look")


def told_of(run):
    """What a snapshot's row says: how long the loop stood still for each, and the size of the last."""
    blocked = [entry["blocked_ms"] for entry in run.log("snapshot")]
    size = sum(file.stat().st_size for file in run.snapshot().glob("*.safetensors"))
    return f"{figures.text(blocked, 'ms')} for {size / 1e6:,.1f} MB", blocked


def snapshots(proof):
    what = "pause of a snapshot"
    with proof.trying(what):
        run = train(proof, "snapshots", "--snapshot.every_steps=5", f"--train.max_steps={10 if proof.small else 20}", "--train.epochs=0")
        figure, blocked = told_of(run)
        proof.row(what, figure, blocked_ms=blocked)


def large_snapshots(proof):
    """Of a language model of 127 million weights: a few steps, each long enough for what is written beside it."""
    what = "pause of a large snapshot"
    if proof.small:
        proof.skipped(what)
        return
    with proof.trying(what):
        folder = proof.scratch / "feed" / "large"
        proof.run([proof.program, *training.smoke("language_model", 240, "--snapshot.every_steps=100", "--precision.dtype=fp32", "--snapshot.every_epochs=0", "--snapshot.keep_last=1", *LARGE,
                                                  f"--device.name={proof.device}", "--run", folder)], LIMIT + 15)
        figure, blocked = told_of(training.RunFolder(folder))
        proof.row(what, figure, blocked_ms=blocked)


def run(proof):
    numbers = [1, 2] if proof.small else [1, 4, 12]
    snapshots(proof)  # first: this run makes the preset's data, for which no other has to wait
    large_snapshots(proof)
    for number in numbers:
        readers(proof, number, 10 if proof.small else 40)
