"""What once lost work, with the command lines that showed it: one case each, all small."""
import json
import shutil
import signal
import subprocess
import time

from world import (COMMON, difference, expect, hash_of_tree, is_whole_pt, is_whole_snapshot, lasting, leftovers, read_json,
                   require, seeded, whole_snapshots)


# What the program does not pass yet: the small mode leaves them out.
OPEN = set()


def steps_in(run):
    return sorted(int(path.name[5:13]) for path in (run / "snapshots").glob("step-*") if is_whole_snapshot(path))


def damaged_snapshots(world, place):
    """Retention counts only snapshots that load: those that are damaged do not cost the one just written."""
    run = place / "C"
    expect(world.call(*world.train_lm("--max_steps", 6, "--snapshot.every_steps=2", "--run", run)), 0)
    shutil.rmtree(run / "snapshots/step-00000002")
    for step in (4, 6):
        (run / f"snapshots/step-0000000{step}/manifest.json").write_text("x\n")
    (run / "snapshots/step-00000099").mkdir()
    expect(world.call(*world.train_lm("--max_steps", 3, "--snapshot.keep_last=2", "--run", run)), 0)
    require(3 in steps_in(run), f"the snapshot of step 3 is gone; whole are {steps_in(run)}")
    expect(world.call("generate", "a", "--from", run, "--max_length", 2), 0)


def older_snapshot(world, place):
    """Going on from an older snapshot begins a branch: what was later stays, set aside, and the new line is the run."""
    run = place / "A"
    often = ["--snapshot.every_steps=1", "--snapshot.keep_last=10"]
    expect(world.call(*world.train_lm("--max_steps", 10, *often, "--run", run)), 0)
    before = hash_of_tree(run / "snapshots")
    words = world.train_lm("--max_steps", 5, "--snapshot.every_steps=1", f"--train.resume={run}/snapshots/step-00000003", "--run", run)
    expect(world.call(*words), 0)
    require(set(steps_in(run)) >= {4, 5} and max(steps_in(run)) == 5, f"snapshots are {steps_in(run)}")
    branches = [path for path in (run / "branches").iterdir() if path.is_dir()]
    require(len(branches) == 1, f"branches: {branches}")
    aside = hash_of_tree(branches[0] / "snapshots")
    lost = [name for name, what in before.items() if name.startswith("step-000000") and int(name[5:13]) > 3 and aside.get(name) != what]
    require(not lost, f"of the later line is lost: {lost}")
    again = expect(world.call(*words), 0)
    require("already complete at step 5" in again.text, str(again))


def fresh_with_a_mistake(world, place):
    """--fresh deletes nothing before the new run can take its first step."""
    run = place / "F"
    expect(world.call(*world.train_lm("--max_steps", 2, "--run", run)), 0)
    before = hash_of_tree(run)
    before.pop("lock")
    for words in (["--sources", place / "typo.txt"], ["--data", place / "nonexistent"]):
        result = expect(world.call("train", "language_model", "--preset", "smoke", *words, "--run", run, "--fresh"), 1, 2)
        after = hash_of_tree(run)
        after.pop("lock", None)
        require(before == after, f"{difference(before, after)} after {result}")


def first_runs_at_once(world, place):
    """Sample data of a preset is published whole, and once."""
    for recipe, data, count in (("cosmology", world.co, 3), ("language_model", world.lm, 4), ("neural_response", world.nr, 2),
                                ("autoencoder_3d", world.ae, 2), ("image_pairs", world.ip, 2)):
        live = [world.start("train", recipe, "--preset", "smoke", *COMMON, "--device.layout=contiguous", "--train.max_steps=1",
                            "--train.validate_batches=1", "--run", f"{recipe}-{i}", cwd=place) for i in range(count)]
        for each in live:
            expect(each.wait(), 0)
        gap = difference(world.data_hashes[data.name], hash_of_tree(place / f"runs/data/{recipe}-smoke"))
        require(not gap, f"sample data of {recipe}: {gap}")
    require(not leftovers(place), f"leftovers: {leftovers(place)}")


def config_in_the_run_folder(world, place):
    """A config of the user's in the run folder is not overwritten."""
    (place / "mine").mkdir()
    (place / "mine/config.json").write_text('{"train": {"max_steps": 2}}\n')
    before = hash_of_tree(place)
    result = expect(world.call("train", "language_model", "mine/config.json", "--preset", "smoke", "--data", world.lm, "--run", "mine",
                               cwd=place), 1, 2)
    require(before == hash_of_tree(place), f"{difference(before, hash_of_tree(place))} after {result}")


def fresh_in_a_users_folder(world, place):
    """--fresh in a folder that is no run removes nothing."""
    (place / "snapshots").mkdir()
    for name in ("snapshots/photo.jpg", "history.csv", "log.jsonl", "config.json"):
        (place / name).write_text("mine")
    before = hash_of_tree(place)
    result = expect(world.call(*world.train_lm("--max_steps", 2, "--run", ".", "--fresh"), cwd=place), 1, 2)
    require(before == hash_of_tree(place), f"{difference(before, hash_of_tree(place))} after {result}")


def stopped_in_the_last_validation(world, place):
    """A run that was stopped in its last validation still has it to do."""
    words = world.train_lm("--max_steps", 6, "--snapshot.every_steps=100", "--recipe.val_fraction=0.6")
    reference = world.reference("last-validation", words)
    for attempt in range(5):
        run = place / f"S{attempt}"
        live = world.start(*words, "--run", run)
        live.watch(lambda path=run / "snapshots/step-00000006/manifest.json": path.exists())
        live.send(signal.SIGTERM)
        if (result := expect(live.wait(), 0, 143)).code == 143:
            break
    require(result.code == 143, "never stopped in the last validation")
    row = json.loads(expect(world.call("runs", "--root", place, "--json"), 0).text)[0]
    require(not row["state"].startswith("done"), f"runs says {row['state']} before the last validation")
    expect(world.call(*words, "--run", run), 0)
    require(lasting(read_json(run / "summary.json")) == lasting(reference["summary"]), f"summary differs after {result}")


def failed_in_the_last_validation(world, place):
    """Data that can't be read in the last validation: repaired, the same command makes it good."""
    data = place / "data"
    shutil.copytree(world.co, data)
    words = ["train", "cosmology", "--preset", "smoke", "--data", data, *COMMON, "--device.layout=contiguous", "--max_steps=2", "--train.validate_every=1000", "--data.cache=off", "--run", place / "run"]
    live = world.start(*words)
    saved = place / "run/snapshots"
    live.watch(lambda: saved.is_dir() and any("step-00000002" in path.name for path in saved.iterdir()))
    live.send(signal.SIGSTOP)
    for file in (data / "signal").iterdir():
        file.write_bytes(b"")
    live.send(signal.SIGCONT)
    first = expect(live.wait(), 0, 1)
    shutil.rmtree(data)
    shutil.copytree(world.co, data)
    again = expect(world.call(*words), 0)
    require(first.code == 0 or "already complete" not in again.text, f"complete without a validation: {again}")
    summary = read_json(place / "run/summary.json")
    require("val_loss" in summary["metrics"] and summary["exit_reason"] == "max_steps", f"no validation: {summary['metrics']}")


def runs_of_the_same_second(world, place):
    """Each run without --run gets a folder of its own."""
    live = [world.start(*world.train_lm("--max_steps", 1), cwd=place) for _ in range(4)]
    for each in live:
        expect(each.wait(), 0)
    runs = list((place / "runs/language_model").iterdir())
    require(len(runs) == 4 and all(steps_in(run) == [1] for run in runs), f"runs: {runs}")


def exports_beside_files(world, place):
    """export touches no file but the one it is told, and several exports of one file do not meet."""
    run = place / "r1"
    expect(world.call(*world.train_lm("--max_steps", 1, "--run", run)), 0)
    (place / "victim").write_text("mine")
    (place / "x.pt.part").symlink_to("victim")
    (place / "y.pt.part").write_text("mine too")
    for name in ("x.pt", "y.pt"):
        live = [world.start("export", "--from", run, "--to", place / name) for _ in range(2)]
        for each in live:
            expect(each.wait(), 0)
        require(is_whole_pt(place / name) and not (place / name).is_symlink(), f"{name} is not whole")
    require((place / "victim").read_text() == "mine" and (place / "y.pt.part").read_text() == "mine too", "a file beside was touched")
    require((place / "x.pt.part").is_symlink(), "x.pt.part is gone")


def renamed_run(world, place):
    """A run folder that is moved while the run goes on: told, and both places hold what can be used."""
    run, moved = place / "run", place / "moved"
    live = world.start(*world.train_lm("--max_steps", 300, "--snapshot.every_steps=30", "--run", run))
    require(live.watch(lambda: (run / "snapshots/step-00000030/manifest.json").exists()), "no snapshot")
    run.rename(moved)
    result = expect(live.wait(), 0)
    require("moved or deleted" in result.text, f"nothing told: {result}")
    for folder in (run, moved):
        expect(world.call("generate", "a", "--from", folder, "--max_length", 2), 0)
        expect(world.call("inspect", folder), 0)
    require(300 in steps_in(run), f"the last snapshot is not there: {steps_in(run)}")


def renamed_run_and_another(world, place):
    """Another run begins where a run was moved from: the first one leaves it alone, while it works and when it is done."""
    words = world.train_lm("--max_steps", 400, "--snapshot.every_steps=40")
    wrong = []
    for when in ("at work", "done"):
        run = place / when.replace(" ", "-")
        first = world.start(*words, "--train.seed=9", "--run", run)
        saved = run / "snapshots/step-00000040/manifest.json"
        require(first.watch(saved.exists), "no snapshot")
        first.send(signal.SIGSTOP)
        run.rename(place / f"moved-{run.name}")
        second = world.start(*words, "--run", run)
        if when == "at work":
            second.watch(saved.exists)
            second.send(signal.SIGSTOP)
        else:
            expect(second.wait(), 0)
        before = hash_of_tree(run)
        first.send(signal.SIGCONT)
        told = first.wait()
        if changes := difference(before, hash_of_tree(run)):
            wrong.append(f"another run that is {when} was changed: {changes}; the first one: {told}")
        if when == "at work":
            second.send(signal.SIGCONT)
            expect(second.wait(), 0)
    require(not wrong, "\n    ".join(wrong))


def snapshots_is_a_link(world, place):
    """A link in the place of snapshots is refused: what it leads to is another run's."""
    other, run = place / "other", place / "LA"
    expect(world.call(*world.train_lm("--max_steps", 6, "--snapshot.every_steps=2", "--run", other)), 0)
    before = hash_of_tree(other)
    run.mkdir()
    (run / "snapshots").symlink_to(other / "snapshots")
    result = expect(world.call(*world.train_lm("--max_steps", 8, "--snapshot.keep_last=1", "--run", run)), 1, 2)
    require(before == hash_of_tree(other), f"{difference(before, hash_of_tree(other))} after {result}")


def summary_lost(world, place):
    """A summary that is lost is made anew, and true."""
    words = world.train_lm("--max_steps", 6, "--snapshot.every_steps=2", "--run", place / "run")
    expect(world.call(*words), 0)
    before = lasting(read_json(place / "run/summary.json"))
    (place / "run/summary.json").unlink()
    result = expect(world.call(*words), 0)
    after = lasting(read_json(place / "run/summary.json"))
    require(before == after, f"{after['loss']} for {before['loss']} after {result}")


def make_data_killed(world, place):
    """make-data killed at any moment: its folder is whole or not there, and the same command makes it."""
    random = seeded(1, "make-data", 0)
    for recipe, data in (("cosmology", world.co), ("neural_response", world.nr), ("autoencoder_3d", world.ae), ("image_pairs", world.ip),
                         ("language_model", world.lm)):
        folder = place / "data"
        words = ["make-data", recipe, "--preset", "smoke", "--out", folder]
        live = world.start(*words)
        part = place / ".data.millrace-part"
        live.watch(lambda path=part: path.exists() and any(child.is_dir() for child in path.iterdir()))
        time.sleep(random.uniform(0, 0.3))
        live.send(signal.SIGKILL)
        result = live.wait()
        if folder.exists() and any(folder.iterdir()):
            gap = difference(world.data_hashes[data.name], hash_of_tree(folder))
            require(not gap, f"half a folder: {gap} after {result}")
            shutil.rmtree(folder)
        expect(world.call(*words), 0)
        require(not (gap := difference(world.data_hashes[data.name], hash_of_tree(folder))), f"made again: {gap}")
        require(not leftovers(place), f"leftovers: {leftovers(place)}")
        shutil.rmtree(folder)


def killed_after_the_fit(world, place):
    """CO killed between the fit of its components and its first snapshot: the state at the end is the same."""
    words = world.train_co("--max_steps=2", "--snapshot.every_steps=1", "--train.validate_every=1000")
    reference = world.reference("fit", words)
    for k, pattern in enumerate((".new-*/pca_components*", "pca_components*", "log.jsonl")):
        run = place / f"run{k}"
        live = world.start(*words, "--run", run)
        live.watch(lambda folder=run, names=pattern: any(folder.glob(names)))
        live.send(signal.SIGKILL)
        live.wait()
        expect(world.call(*words, "--run", run), 0)
        ours = read_json(run / "summary.json")
        require(lasting(ours) == lasting(reference["summary"]), f"killed at {pattern}: another state at the end")
        require(not leftovers(run), f"leftovers: {leftovers(run)}")


def fresh_killed_before_its_first_snapshot(world, place):
    """The old run is still there for everybody who reads it."""
    run = place / "run"
    expect(world.call(*world.train_lm("--max_steps", 2, "--run", run)), 0)
    never = ["--snapshot.every_steps=0", "--snapshot.every_epochs=0", "--snapshot.keep_best=false", "--log.every=1"]
    live = world.start(*world.train_lm("--max_steps", 100000, *never, "--run", run, "--fresh"))
    require(live.watch(lambda: "\nstep " in live.text()), "the new run has no step")
    beside = world.call("export", "--from", run, "--to", place / "w.pt")
    live.send(signal.SIGKILL)
    live.wait()
    require(whole_snapshots(run), "the old run is lost")
    after = world.call("export", "--from", run, "--to", place / "w.pt")
    expect(world.call(*world.train_lm("--max_steps", 2, "--run", run)), 0)
    require(steps_in(run) == [2], f"the old run did not come back: {steps_in(run)}")
    for each in (beside, after):
        require(each.code == 0 or "--fresh" in each.text, f"nothing explains it: {each}")


def early_stop(world, place):
    """A run that stopped early is complete, and the same command again says so."""
    words = world.train_lm("--max_steps", 100, "--train.early_stop_patience=1", "--train.validate_every=2", "--optim.learning_rate=2",
                           "--run", place / "run")
    first = expect(world.call(*words), 0)
    require(read_json(place / "run/summary.json")["exit_reason"] == "early_stop", f"no early stop: {first}")
    again = expect(world.call(*words), 0)
    require("already complete" in again.text, str(again))


def branch_is_a_run(world, place):
    """What was set aside is a run folder of its own, for inspect, export and train."""
    run = place / "A"
    often = ["--snapshot.every_steps=1", "--snapshot.keep_last=9"]
    expect(world.call(*world.train_lm("--max_steps", 4, *often, "--run", run)), 0)
    before = lasting(read_json(run / "summary.json"))
    expect(world.call(*world.train_lm("--max_steps", 3, *often, f"--train.resume={run}/snapshots/step-00000002", "--run", run)), 0)
    branch = run / "branches/step-00000004"
    expect(world.call("inspect", branch), 0)
    expect(world.call("export", "--from", branch, "--to", place / "w.pt"), 0)
    again = expect(world.call(*world.train_lm("--max_steps", 4, *often, "--run", branch)), 0)
    require("already complete at step 4" in again.text and lasting(read_json(branch / "summary.json")) == before, str(again))


def files_where_the_old_run_goes_back(world, place):
    """A --fresh start was killed, and the user puts files where the old run was: they stay, and the old run comes back."""
    run = place / "run"
    expect(world.call(*world.train_lm("--max_steps", 4, "--snapshot.every_steps=1", "--run", run)), 0)
    events = next(path for path in run.iterdir() if path.name.startswith("events."))
    never = ["--snapshot.every_steps=0", "--snapshot.every_epochs=0", "--snapshot.keep_best=false", "--log.every=1"]
    live = world.start(*world.train_lm("--max_steps", 100000, *never, "--run", run, "--fresh"))
    require(live.watch(lambda: "\nstep " in live.text()), "the new run has no step")
    live.send(signal.SIGKILL)
    live.wait()
    mine = [run / "snapshots/step-00000004/photo.jpg", events]
    for file in mine:
        require(not file.exists(), f"{file} is not free")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    again = world.call(*world.train_lm("--max_steps", 4, "--snapshot.every_steps=1", "--run", run))
    require(again.code == 0, f"the old run does not come back: {again}")
    lost = [file.name for file in mine if not file.exists() or file.read_text() != "mine"]
    require(not lost, f"of the user's is gone: {lost}")


def users_old_run(world, place):
    """A file of the user's in .old-run, which the run has no use for at the time."""
    run = place / "run"
    expect(world.call(*world.train_lm("--max_steps", 1, "--run", run)), 0)
    (run / ".old-run").mkdir()
    (run / ".old-run/photo.jpg").write_text("mine")
    expect(world.call(*world.train_lm("--max_steps", 1, "--run", run)), 0)
    require((run / ".old-run/photo.jpg").exists(), "the same command again removed .old-run/photo.jpg")


def failed_start(world, place):
    """A start that fails leaves a folder that was there as it was."""
    run = place / "mine"
    run.mkdir()
    (run / "notes.txt").write_text("mine")
    before = hash_of_tree(run)
    result = expect(world.call("train", "language_model", "--preset", "smoke", "--data", place / "nonexistent", "--run", run), 1, 2)
    require(before == hash_of_tree(run), f"{difference(before, hash_of_tree(run))} after {result}")


def names_of_a_container(world, place):
    """In a container the process is number 1 each time: what others of that number left is not ours."""
    container = ["unshare", "-Urpf", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*container, "true"], check=False, capture_output=True).returncode != 0:
        container = []  # then the number is at least one that the run knows
    run = place / "run"
    expect(world.call(*world.train_lm("--max_steps", 1, "--run", run), under=container), 0)
    process = int((run / "lock").read_text())
    names = [f"x.tmp.{process}.0", f"pictures/y.tmp.{process}.0", f".new-{process}/photo.jpg",
             f"snapshots/.tmp-step-00000002-{process}/photo.jpg", f"snapshots/.tmp-gone-step-00000001-{process}/photo.jpg",
             f"snapshots/.old-step-00000002-{process}/photo.jpg"]
    for name in names:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("mine")
    words = world.train_lm("--snapshot.keep_last=1", "--snapshot.every_steps=1", "--snapshot.keep_best=false", "--run", run)
    for steps in (3, 2):
        expect(world.call(*words, "--max_steps", steps, *(["--fresh"] if steps == 2 else []), under=container), 0)
    lost = [name for name in names if not (run / name).exists()]
    require(not lost, f"gone: {lost}")


def photo_in_a_snapshot(world, place):
    """A snapshot that the user put a file into: it is the old run's all the same when --fresh or an older snapshot goes on."""
    often = ["--snapshot.every_steps=1", "--snapshot.keep_last=9"]
    wrong = []
    for name, words in (("fresh", ["--fresh"]), ("older", [f"--train.resume={place}/older/snapshots/step-00000002"])):
        run = place / name
        expect(world.call(*world.train_lm("--max_steps", 5, *often, "--run", run)), 0)
        photo = run / "snapshots/step-00000005/photo.jpg"
        photo.write_text("mine")
        expect(world.call(*world.train_lm("--max_steps", 3, *often, "--run", run, *words)), 0)
        require(photo.exists(), "the photo is gone")
        again = expect(world.call(*world.train_lm("--max_steps", 4, *often, "--run", run)), 0)
        if "resumed from step 3" not in again.text:
            wrong.append(f"after {words[0]} the run goes on from the old one: {again}")
    require(not wrong, "\n    ".join(wrong))


def run_of_a_stranger(world, place):
    """A run folder that somebody else made up says that files outside are its own."""
    run = place / "run"
    expect(world.call(*world.train_lm("--max_steps", 1, "--run", run)), 0)
    (place / "precious").mkdir()
    (place / "precious/thesis").write_text("mine")
    record = read_json(run / "run.json")
    (run / ".old-run").mkdir()
    (run / ".old-run/run.json").write_text(json.dumps(record))
    record["old_run"] = ".old-run"
    record["files"] += ["../precious", str(place / "precious/thesis")]
    record["replacement"] = "complete"
    (run / "run.json").write_text(json.dumps(record))
    shutil.rmtree(run / "snapshots")
    result = world.call(*world.train_lm("--max_steps", 1, "--run", run))
    require((place / "precious/thesis").exists(), f"files outside the run folder are gone after {result}")


def fresh_after_a_fit(world, place):
    """Components that pca fit put into the run's folder are no stranger's file to --fresh."""
    run = place / "run"
    expect(world.call("pca", "fit", "--preset", "smoke", "--data", world.co, "--num-samples", 4, "--run.dir", run), 0)
    words = world.train_co("--max_steps=1", "--train.validate_batches=1", "--run", run)
    expect(world.call(*words), 0)
    expect(world.call(*words, "--fresh"), 0)


def parts_on_disk(world, place):
    """Decoded parts on disk are shared by runs at once, and whatever somebody does to them, the data stays right."""
    words = world.train_co("--max_steps=3", "--train.validate_every=2")
    reference = lasting(world.reference("parts", [*words, "--data.cache=off"])["summary"])
    disk = [*words, "--data.cache=disk"]
    parts = world.folder / "cache/millrace/parts"
    shutil.rmtree(parts, ignore_errors=True)
    live = [world.start(*disk, "--run", place / f"run{i}") for i in range(3)]
    live[2].watch(lambda: parts.is_dir() and len(list(parts.iterdir())) > 3)
    live[2].send(signal.SIGKILL)
    for i, each in enumerate(live):
        result = each.wait()
        if i < 2:
            expect(result, 0)
            require(lasting(read_json(place / f"run{i}/summary.json")) == reference, f"another end: {result}")
    files = sorted(path for path in parts.iterdir() if path.name.endswith(".part"))
    require(len(files) > 5, f"kept are {len(files)} parts")
    for k, path in enumerate(files):
        good = path.read_bytes()
        path.unlink()
        kind = k % 6
        if kind == 0:
            path.write_bytes(good[:len(good) // 2])
        elif kind == 1:
            path.write_bytes(bytes(len(good)))
        elif kind == 2:
            path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        elif kind == 3:
            path.mkdir()
        elif kind == 4:
            path.symlink_to(files[0])
        else:
            path.write_bytes(b"")
    damaged = expect(world.call(*disk, "--run", place / "damaged"), 0)
    require(lasting(read_json(place / "damaged/summary.json")) == reference, f"another end: {damaged}")
    require("was changed after it was written" in damaged.text, f"nothing is said of damage: {damaged}")
    shutil.rmtree(parts)
    parts.write_text("mine")
    refused = expect(world.call(*disk, "--run", place / "refused"), 0)
    require(lasting(read_json(place / "refused/summary.json")) == reference and parts.read_text() == "mine", str(refused))
    require("decoded parts" in refused.text, f"nothing is said of the folder: {refused}")
    parts.unlink()


CASES = {
    "B1": damaged_snapshots, "B2": older_snapshot, "B3": fresh_with_a_mistake, "S1": first_runs_at_once,
    "S2a": config_in_the_run_folder, "S2b": fresh_in_a_users_folder, "S3a": stopped_in_the_last_validation,
    "S3b": failed_in_the_last_validation, "S4": runs_of_the_same_second, "S10": exports_beside_files, "renamed": renamed_run,
    "renamed-another": renamed_run_and_another, "link": snapshots_is_a_link, "summary": summary_lost, "make-data": make_data_killed,
    "fit": killed_after_the_fit, "branch": branch_is_a_run, "early-stop": early_stop,
    "fresh-killed": fresh_killed_before_its_first_snapshot, "restore": files_where_the_old_run_goes_back, "old-run": users_old_run,
    "failed-start": failed_start, "container": names_of_a_container, "photo": photo_in_a_snapshot, "stranger": run_of_a_stranger,
    "fit-fresh": fresh_after_a_fit, "parts": parts_on_disk,
}


def rounds(world, seed, numbers, report):
    for name in numbers or CASES:
        if numbers or report.is_full or name not in OPEN:
            report.round("cases", seed, name, lambda n=name: CASES[n](world, world.new_folder("case-" + n)))
        else:
            report.note(f"left out, open: {name}")
