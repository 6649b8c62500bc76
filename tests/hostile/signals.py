"""Signals at random moments: the same command afterwards ends with the state and the summary of a run that nobody disturbed."""
import csv
import io
import json
import shutil
import signal
import time

from world import Violation, expect, lasting, leftovers, read_json, require, seeded

STEPS = ["--train.epochs=0", "--log.every=1"]


def shapes(world):
    """Name: command without a run folder, and its share of the rounds."""
    lm = world.train_lm()
    return {
        "lm": (lm + STEPS + ["--max_steps=48", "--snapshot.every_steps=4", "--train.validate_every=12", "--snapshot.keep_last=2"], 3),
        "lm-last": (lm + STEPS + ["--max_steps=10", "--snapshot.every_steps=3", "--train.validate_every=1000",
                                  "--recipe.val_fraction=0.6"], 3),
        "lm-epochs": (lm + ["--log.every=1", "--train.epochs=4", "--max_steps=0", "--data.batch_size=400", "--snapshot.every_steps=5",
                            "--snapshot.every_epochs=1", "--train.validate_at_start", "--train.early_stop_patience=9"], 2),
        "co": (world.train_co("--max_steps=6", "--snapshot.every_steps=2", "--train.validate_every=3", "--log.every=1"), 2),
        "co-last": (world.train_co("--max_steps=3", "--snapshot.every_steps=2", "--train.validate_every=1000", "--data.cache=off", "--log.every=1"), 2),
    }


def last_save_begins(run, last):
    snapshots = run / "snapshots"
    return snapshots.is_dir() and any(f"step-{last:08d}" in path.name for path in snapshots.iterdir())


def wait_for_moment(live, run, reference, random):
    """A moment of the run; more than half of them are in its last fifth. What it is."""
    last = reference["summary"]["steps"]
    seconds, tail = reference["seconds"], reference["tail"]
    aim = random.choices(["any", "late", "last save", "last validation", "end"], [4, 2, 2, 3, 1])[0]
    if aim == "any":
        time.sleep(random.uniform(0, seconds))
    elif aim == "late":
        step = random.randint(last - last // 5, last)
        live.watch(lambda: f"\nstep {step:>{len(str(last))}}/{last}" in live.text())
        time.sleep(random.uniform(0, 0.03))
    elif aim == "end":
        live.watch(lambda: f"validation  step {last}" in live.text())
        time.sleep(random.uniform(0, 0.06))
    else:
        live.watch(lambda: last_save_begins(run, last))
        time.sleep(random.uniform(0, 0.02 if aim == "last save" else 0.9 * tail))
    return aim


def disturb(live, random):
    """Sends what is drawn, and says what; the codes the program may end with."""
    kind = random.choice(["TERM", "INT", "HUP", "USR1", "KILL", "KILL", "STOP", "TERM TERM"])
    if kind == "STOP":
        live.send(signal.SIGSTOP)
        time.sleep(random.uniform(0, 0.1))
        live.send(signal.SIGCONT)
        return kind, {0}
    numbers = [getattr(signal, "SIG" + word) for word in kind.split()]
    for number in numbers:
        live.send(number)
        if len(numbers) > 1:
            time.sleep(random.choice([0, 0, random.uniform(0, 0.05)]))
    # Minus the number: it came before the handlers were there.
    return kind, {0, -numbers[0]} | ({128 + numbers[0]} if kind != "KILL" else set())


def same_history(text, expected):
    """But for times and rates."""
    def rows(table):
        return [row[:3] for row in csv.reader(io.StringIO(table or ""))]
    return rows(text) == rows(expected)


def check_end(world, words, run, reference):
    result = expect(world.call(*words, "--run", run), 0)
    summary = read_json(run / "summary.json")
    require(summary is not None, f"no summary after {result}")
    ours, theirs = lasting(summary), lasting(reference["summary"])
    require(ours == theirs, "summary differs: " + json.dumps(
        {key: [ours[key], theirs[key]] for key in ours if ours[key] != theirs[key]}) + f"\n    {result}")
    listed = expect(world.call("runs", "--root", run.parent, "--json"), 0)
    rows = json.loads(listed.text)
    require(len(rows) == 1 and rows[0]["state"].startswith("done"), f"runs does not say done: {listed}")
    again = expect(world.call(*words, "--run", run), 0)
    require("already complete" in again.text, f"not complete: {again}")
    require(lasting(read_json(run / "summary.json") or {}) == theirs, f"summary is another one after {again}")
    require(not leftovers(run), f"leftovers: {leftovers(run)}")
    history = (run / "history.csv").read_text() if (run / "history.csv").exists() else None
    require(same_history(history, reference["history"]), f"history differs:\n{history}\n{reference['history']}")
    for line in (run / "log.jsonl").read_text().splitlines():
        try:
            json.loads(line)
        except ValueError:
            raise Violation(f"log.jsonl has a broken line: {line[:200]}") from None


def one_round(world, seed, number, report):
    random = seeded(seed, "signals", number)
    table = shapes(world)
    name = random.choices(list(table), [share for _, share in table.values()])[0]
    words = table[name][0]
    reference = world.reference(name, words)
    run = world.new_folder(f"signals-{number}") / "run"
    told = [name]
    try:
        while True:
            live = world.start(*words, "--run", run)
            aim = wait_for_moment(live, run, reference, random)
            kind, codes = disturb(live, random)
            result = live.wait()
            told.append(f"{kind} at {aim}: {result.code}")
            report.note(f"{aim}: " + ("too late" if result.code == 0 and kind != "STOP" else kind))
            require(result.code in codes, f"unexpected end: {result}")
            if random.random() < 0.65:
                break
        check_end(world, words, run, reference)
    except Violation as violation:
        raise Violation(f"{'; '.join(told)}\n    {violation}") from None
    shutil.rmtree(run.parent)


def rounds(world, seed, numbers, report):
    for number in numbers:
        report.round("signals", seed, number, lambda n=number: one_round(world, seed, n, report))
