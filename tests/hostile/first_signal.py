"""The first signal before the first step: the program ends within ten seconds and says so, leaves no child, and the same command starts."""
import signal
import shutil
import time
from pathlib import Path

from world import expect, leftovers, require, seeded

LIMIT_S = 10
PUBLISHED_S = 60  # the first minute of a start that takes minutes
SIGNALS = ["TERM", "INT", "HUP", "USR1"]
ONE_STEP = ["--train.epochs=0", "--max_steps=1", "--log.every=1", "--train.validate_at_start", "--off=kept_trials"]


def small(world):
    """Trials of kernels, formats, layouts and convolutions, PCA's fit, HDF5's child: what a start has."""
    data = {"language_model": world.lm, "cosmology": world.co, "neural_response": world.nr, "autoencoder_3d": world.ae,
            "image_pairs": world.ip}
    return {name: ["train", name, "--preset", "smoke", "--data", folder, *ONE_STEP] for name, folder in data.items()}


def published(world):
    """Presets of the sizes that are published, as far as a small machine has memory: steps of seconds, trials of minutes."""
    data = {}
    for name, preset in (("cosmology", "small"), ("neural_response", "small"), ("autoencoder_3d", "stable"), ("image_pairs", "small")):
        data[name] = world.folder / f"data-{name}-{preset}"
        if not data[name].exists():
            expect(world.call("make-data", name, "--preset", preset, "--out", data[name]), 0)
    starts = {f"{name} {folder.name.rsplit('-', 1)[1]}": ["train", name, "--preset", folder.name.rsplit("-", 1)[1], "--data", folder,
                                                         *ONE_STEP] for name, folder in data.items()}
    starts["language_model full"] = ["train", "language_model", "--preset", "full", "--data", world.lm, "--data.batch_size=6", *ONE_STEP]
    return starts


def processes_of(session):
    """Ids of the session's processes that are not zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, number = stat.read_text().rsplit(")", 1)[1].split()[:4]
        except (OSError, ValueError):  # it has ended meanwhile
            continue
        if int(number) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found


def left_behind(session):
    """Processes of the session that are still there after a moment: a child that notices its parent's end needs one."""
    end = time.monotonic() + LIMIT_S
    while processes_of(session) and time.monotonic() < end:
        time.sleep(0.05)
    return processes_of(session)


def seconds_to_step(world, name, words, known):
    """From the start to the end of the first step, undisturbed: once for each name."""
    if name not in known:
        run = world.new_folder("undisturbed") / "run"
        begin = time.monotonic()
        live = world.start(*words, "--run", run)
        live.watch(lambda: "\nstep 1/1" in live.text())
        known[name] = time.monotonic() - begin
        expect(live.wait(), 0)
        shutil.rmtree(run.parent)
    return known[name]


def one_round(world, seed, number, report, known, answers):
    random = seeded(seed, "first_signal", number)
    is_published = report.is_full and number % 2 == 1
    table = published(world) if is_published else small(world)
    name = list(table)[number // 2 % len(table)] if report.is_full else list(table)[number % len(table)]
    words = table[name]
    run = world.new_folder(f"first-signal-{number}") / "run"
    # The time of an undisturbed start is too long for a check of every change: it goes by what is on the screen.
    longest = PUBLISHED_S if is_published else seconds_to_step(world, name, words, known) if report.is_full else 0.5
    wait = random.uniform(0, longest)
    live = world.start(*words, "--run", run)
    if not report.is_full and number % 5 > 0:
        live.watch(lambda: "\nplan\n" in live.text())
    time.sleep(wait)
    word = random.choice(SIGNALS)
    told = getattr(signal, "SIG" + word)
    begin = time.monotonic()
    live.send(told)
    result = live.wait()
    seconds = time.monotonic() - begin
    case = f"{name}, {word} after {wait:.2f} s, answered in {seconds:.2f} s"
    # Minus the number: it came before the handlers were there.
    require(result.code in (0, -told, 128 + told), f"{case}: {result}")
    before = f"stopped by SIG{word} before the first step" in result.text
    if result.code == 128 + told:
        require(before or f"stopped by SIG{word}, saved at step" in result.text, f"{case}: without a word: {result}")
        report.note(f"{name}: stopped " + ("before the first step" if before else "after it"))
    children = left_behind(live.process.pid)
    require(not children, f"{case}: left behind {children}")
    if report.is_full and before:  # a loaded machine may be late; whoever asks for rounds wants the number
        require(seconds <= LIMIT_S, f"{case}: {result}")
        answers.append((seconds, case))
    if not is_published:
        again = expect(world.call(*words, "--run", run), 0)
        require("done at step 1" in again.text or "already complete" in again.text, f"{case}: then {again}")
        require(not leftovers(run), f"{case}: leftovers {leftovers(run)}")
    shutil.rmtree(run.parent)


def rounds(world, seed, numbers, report):
    known, answers = {}, []
    try:
        for number in numbers:
            report.round("first_signal", seed, number, lambda n=number: one_round(world, seed, n, report, known, answers))
    finally:
        if answers:
            answers.sort()
            shares = ", ".join(f"{share} % within {answers[(len(answers) - 1) * share // 100][0]:.2f} s" for share in (50, 90, 95, 99))
            print(f"{len(answers)} answers before the first step: {shares}; slowest: {answers[-1][1]}", flush=True)
