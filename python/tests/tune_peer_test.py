"""`headrace tune`: what its search finds, that a trial changes nothing of the user's, and a trial of a script with torch."""
import contextlib
import importlib.util
import io
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock
from pathlib import Path

PYTHON = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PYTHON))
from headrace import __main__, tune
from headrace._script import scratch, trial
from headrace._script.search import Measured, Script, Search, Setting, short_of
from headrace.errors import UsageError

HAS_TORCH = importlib.util.find_spec("torch") is not None

SCRIPT = """\
import os
import time
import torch
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self):
        return 10_000
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.ones(4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(Slow(), batch_size=4):
    model(batch).mean().backward()
    optimizer.step()
    open(os.environ.get("LOSSES", "losses.txt"), "a").close()
"""


class Machine:
    """A script on a machine, by a formula: reading is divided among workers, the cores do what reading and the step compute."""

    def __init__(self, read_ms, work_ms, read_cpu=0.0, cores=4, workers=0, kept=1.0, threads=4):
        self.read, self.work, self.read_cpu, self.cores, self.kept = read_ms, work_ms, read_cpu, cores, kept
        self.script = Script(workers=workers, threads=threads)
        self.seen = []

    def ms(self, setting):
        workers = self.script.workers if setting.workers is None else setting.workers
        threads = setting.threads or self.script.threads
        work = self.work * (self.kept if setting.environment else 1) * (1 + 0.2 * max(0, threads - self.cores))
        read = self.read if workers == 0 else self.read / workers
        step = work + read if workers == 0 else max(work, read, work + self.read * self.read_cpu / self.cores)
        return step, work

    def run(self, setting, steps, give_up_ms=None):
        self.seen.append((setting, steps))
        step, work = self.ms(setting)
        return Measured(step, 1 - work / step, work / step)

    def find(self, steps=200, **options):
        return Search(self.script, self.run(Setting(), short_of(steps)), steps, self.cores, self.run, **options).find()


class Finds(unittest.TestCase):
    def test_workers_for_a_script_that_waits(self):
        found = Machine(read_ms=64, work_ms=10).find()
        self.assertEqual(found.best.loader(), {"num_workers": 8, "persistent_workers": True})
        self.assertAlmostEqual(found.speedup(), 7.4)

    def test_the_doctors_number_is_tried_first(self):
        machine = Machine(read_ms=64, work_ms=10)
        machine.script.advised_workers = 8
        found = machine.find()
        self.assertEqual(machine.seen[1][0].workers, 8)
        self.assertEqual(found.best.workers, 8)

    def test_fewer_workers_where_there_are_too_many(self):
        machine = Machine(read_ms=20, work_ms=10, workers=32)
        machine.ms = lambda setting: (10 + 1.0 * abs((32 if setting.workers is None else setting.workers) - 4), 10)
        self.assertEqual(machine.find().best.workers, 4)

    def test_environment_and_threads(self):
        found = Machine(read_ms=0, work_ms=10, kept=0.8, threads=16).find()
        self.assertEqual((found.best.environment, found.best.threads, found.best.workers), (True, 4, None))

    def test_nothing_for_a_script_that_is_as_fast_as_it_can_be(self):
        machine = Machine(read_ms=0.01, work_ms=10)
        found = machine.find()
        self.assertEqual((found.best, found.speedup()), (Setting(), 1.0))
        self.assertLessEqual(len(machine.seen), 4)

    def test_a_small_gain_needs_a_second_look(self):
        machine = Machine(read_ms=0, work_ms=10)
        lucky = iter([9.5, 10.5])
        plain = machine.run
        machine.run = lambda setting, steps, give_up_ms=None: Measured(next(lucky, 10.5), 0, 1) if setting.environment else plain(setting, steps)
        self.assertEqual(machine.find().best, Setting())

    def test_no_trial_begins_when_the_time_is_over(self):
        machine = Machine(read_ms=64, work_ms=10)
        machine.find(has_time=lambda: False)
        self.assertEqual(len(machine.seen), 1)

    def test_a_trial_that_fails_is_not_kept(self):
        machine = Machine(read_ms=64, work_ms=10)
        plain = machine.run
        machine.run = lambda setting, steps, give_up_ms=None: Measured(failure="no memory") if setting.workers == 4 else plain(setting, steps)
        self.assertEqual(machine.find().best.workers, 2)

    def test_it_takes_a_quarter_of_a_grids_time(self):
        machine = Machine(read_ms=64, work_ms=10)
        found = machine.find()
        took = sum(machine.ms(setting)[0] * steps for setting, steps in machine.seen)
        grid = [Setting(workers, 2 * ahead or None, None, threads, environment) for workers in (0, 1, 2, 4, 8, 16) for ahead in (0, 2) for threads in (2, 4)
                for environment in (False, True)]
        times = [machine.ms(setting)[0] for setting in grid]
        self.assertLess(took, 0.25 * 200 * sum(times))
        self.assertGreater(found.speedup() - 1, 0.8 * (machine.ms(Setting())[0] / min(times) - 1))


class Says(unittest.TestCase):
    def lines(self, best, dialect):
        return tune.lines_of(best, {"script": {"dialect": dialect, "loader": {"where": "train.py:31"}}}, ["python", "train.py"])

    def test_lines_in_the_words_of_the_script(self):
        best = Setting(workers=4, prefetch=4, threads=2, environment=True)
        self.assertEqual(self.lines(best, "lightning"), ["DataLoader(..., num_workers=4, persistent_workers=True, prefetch_factor=4)   (train.py:31)",
                                                         "torch.set_num_threads(2)   (at the beginning)", "headrace run -- python train.py   (as the command)"])
        self.assertEqual(self.lines(best, "trainer")[0], "TrainingArguments(..., dataloader_num_workers=4, dataloader_persistent_workers=True, dataloader_prefetch_factor=4)")
        self.assertEqual(self.lines(Setting(workers=0), "loop"), ["DataLoader(..., num_workers=0)   (train.py:31)"])

    def test_wrong_words(self):
        for words, what in ((["--step", "3", "--", "python", "x"], "no option"), (["python", "x.py"], "no -- before"), (["--steps", "many", "--", "python", "x"], "takes a number"),
                            (["--steps", "5", "--", "python", "x"], "5 steps are too few"), (["--minutes", "-1", "--", "python", "x"], "a time above 0, not -1"), ([], "no command"), (["--"], "no command")):
            with self.subTest(words=words):
                stderr = io.StringIO()
                with contextlib.redirect_stderr(stderr):
                    self.assertEqual(__main__.main(["tune", *words]), 2)
                self.assertIn(what, stderr.getvalue())
                self.assertIn("headrace tune", stderr.getvalue())


class ChangesNothing(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_a_copy_has_small_files_and_links_large_ones(self):
        mine = self.folder / "mine"
        (mine / "sub").mkdir(parents=True)
        (mine / ".git").mkdir()
        (mine / "sub/small.txt").write_text("a")
        with open(mine / "large.bin", "wb") as large:
            large.truncate(scratch.LARGE + 1)
        self.assertEqual(scratch.copy_of(mine, self.folder / "copy"), 1)
        copy = self.folder / "copy"
        self.assertFalse((copy / "sub/small.txt").is_symlink())
        self.assertTrue((copy / "large.bin").is_symlink())
        self.assertFalse((copy / ".git").exists())

    def test_what_may_not_be_read_is_linked(self):
        mine = self.folder / "mine"
        (mine / "theirs").mkdir(parents=True)
        (mine / "key").write_text("a")
        (mine / "train.py").write_text("")
        for closed in ("theirs", "key"):
            (mine / closed).chmod(0)
        with unittest.mock.patch("os.access", lambda path, mode: os.stat(path).st_mode & 0o444 != 0):  # root may read all
            self.assertEqual(scratch.copy_of(mine, self.folder / "copy"), 0)
        self.assertEqual([(self.folder / "copy" / name).is_symlink() for name in ("theirs", "key", "train.py")], [True, True, False])
        (mine / "theirs").chmod(0o755)

    def test_a_signal_ends_it_with_all_that_it_started(self):
        (self.folder / "train.py").write_text("import os, time\nopen('../../begun', 'w').write(str(os.getpid()))\ntime.sleep(1000)\n")
        (self.folder / "temporary").mkdir()
        for number in (signal.SIGTERM, signal.SIGHUP):
            environment = {**os.environ, "PYTHONPATH": str(PYTHON), "TMPDIR": str(self.folder / "temporary")}
            with subprocess.Popen([sys.executable, "-m", "headrace", "tune", "--writes", "--", sys.executable, "train.py"], cwd=self.folder, env=environment,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)) as tuning:
                while not (begun := list((self.folder / "temporary").glob("*/begun"))) or not begun[0].read_text():
                    self.assertIsNone(tuning.poll())
                    time.sleep(0.02)
                script = int(begun[0].read_text())
                tuning.send_signal(number)
                self.assertEqual(tuning.wait(), 128 + number, tuning.stderr.read())
            self.assertEqual(list((self.folder / "temporary").iterdir()), [])
            self.assertFalse(os.path.exists(f"/proc/{script}"))

    def test_a_folder_that_is_too_large_is_refused(self):
        mine = self.folder / "mine"
        mine.mkdir()
        for name in "abc":
            (mine / name).touch()
        with unittest.mock.patch.object(scratch, "MOST_FILES", 2), self.assertRaisesRegex(UsageError, "to copy for each trial"):
            scratch.copy_of(mine, self.folder / "copy")

    def test_what_may_be_written(self):
        mine, copy = self.folder / "mine", self.folder / "copy"
        mine.mkdir()
        copy.mkdir()
        (copy / "link").symlink_to(mine / "large.bin")
        refused = []
        guard = trial.Guard([str(copy)], str(mine), refused.append)
        for path in (copy / "out/last.pt", "/dev/shm/x", "/dev/null", os.path.expanduser("~/.cache/x"), 3):
            guard("open", (path, "w", os.O_WRONLY))
        guard("open", (mine / "train.py", "r", os.O_RDONLY))
        self.assertEqual(refused, [])
        for path in (mine / "last.pt", copy / "link", "/srv/data/last.pt", os.path.expanduser("~/runs/last.pt")):
            guard("open", (path, "w", os.O_WRONLY | os.O_CREAT))
        guard("os.rename", (copy / "a", mine / "b"))
        guard("os.remove", (mine / "train.py", -1))
        self.assertEqual(len(refused), 6)

    def test_what_is_linked_into_the_copy_stays_as_it_is_where_all_may_be_written(self):
        mine, copy = self.folder / "mine", self.folder / "copy"
        (mine / "many").mkdir(parents=True)
        copy.mkdir()
        for name in ("last.pt", "many/a.pt"):
            (mine / name).touch()
        (copy / "last.pt").symlink_to(mine / "last.pt")
        (copy / "many").symlink_to(mine / "many")
        (copy / "elsewhere").symlink_to("/srv/data")
        refused = []
        guard = trial.Guard([str(copy), str(self.folder / "place")], str(mine), refused.append, everywhere=True)
        for path in (copy / "new.pt", mine / "log.txt", "/srv/data/x", copy / "elsewhere/x", 3):
            guard("open", (path, "w", os.O_WRONLY | os.O_CREAT))
        guard("os.remove", (copy / "last.pt", -1))
        guard("os.rename", (copy / "new.pt", copy / "last.pt", -1, -1))
        guard("open", (copy / "last.pt", "r", os.O_RDONLY))
        self.assertEqual(refused, [])
        for path in (copy / "last.pt", copy / "many/a.pt", copy / "many/new.pt"):
            guard("open", (path, "w", os.O_WRONLY | os.O_CREAT))
        guard("os.remove", (copy / "many/a.pt", -1))
        guard("os.truncate", (copy / "last.pt", 0))
        self.assertEqual(len(refused), 5)
        os.chdir(copy)
        self.addCleanup(os.chdir, "/")
        self.assertTrue(guard.is_linked("last.pt") and not guard.is_linked("new.pt"))

    def test_a_database_is_copied_and_not_linked(self):
        mine = self.folder / "mine"
        mine.mkdir()
        for name, begins in (("a.db", b"SQLite format 3\0"), ("a.db-wal", b""), ("b.db", b"HDF")):
            (mine / name).write_bytes(begins)
            os.truncate(mine / name, 2000)
        with unittest.mock.patch.object(scratch, "LARGE", 1000):
            scratch.copy_of(mine, self.folder / "copy")
            with unittest.mock.patch.object(scratch, "LARGE_DATABASE", 1000):
                scratch.copy_of(mine, self.folder / "second")
        links = {place: [name for name in sorted(os.listdir(self.folder / place)) if (self.folder / place / name).is_symlink()] for place in ("copy", "second")}
        self.assertEqual(links, {"copy": ["b.db"], "second": ["a.db", "b.db"]})

    def test_a_database_outside_of_the_copy_is_not_opened_for_writing(self):
        mine, copy = self.folder / "mine", self.folder / "copy"
        mine.mkdir()
        copy.mkdir()
        (copy / "large.db").symlink_to(mine / "large.db")
        with contextlib.closing(sqlite3.connect(mine / "large.db")) as database:
            database.execute("create table rows (x)")
        for everywhere in (False, True):
            refused = []
            guard = trial.Guard([str(copy)], str(mine), refused.append, everywhere=everywhere)
            for path in (copy / "new.db", ":memory:", "", f"file:{mine}/large.db?mode=ro", f"file:{copy}/large.db?immutable=1"):
                guard("sqlite3.connect", (path,))
            self.assertEqual(refused, [])
            for path in (copy / "large.db", f"file:{copy}/large.db", f"file://{copy}/large.db?mode=rw", bytes(copy / "large.db")):
                guard("sqlite3.connect", (path,))
            self.assertEqual(len(refused), 4)
        with unittest.mock.patch("os.access", lambda path, mode: False):  # root may write all
            self.assertEqual(trial.database_file(str(mine / "large.db")), ())
        self.assertIn("mode=ro", tune.only_read(str(mine / "large.db")))

    def test_a_file_that_a_library_in_c_opens_is_seen(self):
        seen = []
        trying = trial.Trial.__new__(trial.Trial)
        h5f = types.SimpleNamespace(ACC_RDWR=1, open=lambda name, flags=1, fapl=None: "opened", create=lambda name, flags=2: "made")
        tables = types.SimpleNamespace(hdf5_version="1.14", open_file=lambda filename, mode="r": "opened")
        trying.imported("h5py", types.SimpleNamespace(h5f=h5f))
        trying.imported("tables", tables)
        with unittest.mock.patch("sys.audit", lambda event, path, mode, flags: seen.append((event, path))):
            self.assertEqual([h5f.open(b"a", 0), h5f.open(b"b", flags=1, fapl=None), h5f.open(name=b"c"), h5f.create(b"d", 2)], ["opened"] * 3 + ["made"])
            self.assertEqual([tables.open_file("e"), tables.open_file("f", "a"), tables.open_file(filename="g", mode="w")], ["opened"] * 3)
        self.assertEqual(seen, [("open", name) for name in (b"b", b"c", b"d", "f", "g")])

    def test_a_module_tables_of_the_users_own_is_left_alone(self):
        def open_file(*, path):
            return path
        for own in (types.SimpleNamespace(rows=3), types.SimpleNamespace(open_file=open_file)):
            before = vars(own).copy()
            trial.Trial.__new__(trial.Trial).imported("tables", own)
            self.assertEqual(vars(own), before)

    @unittest.skipUnless(importlib.util.find_spec("h5py"), "there is no h5py in this Python")
    def test_h5py_opens_its_files_by_the_functions_that_are_wrapped(self):
        import h5py
        seen, path = [], self.folder / "a.h5"
        with unittest.mock.patch.object(h5py.h5f, "open", h5py.h5f.open), unittest.mock.patch.object(h5py.h5f, "create", h5py.h5f.create):
            trial.Trial.__new__(trial.Trial).imported("h5py", h5py)
            with unittest.mock.patch("sys.audit", lambda event, *_: seen.append((event, mode))):
                for mode in ("w", "r", "a", "r+"):
                    h5py.File(path, mode).close()
        self.assertEqual(seen, [("open", "w"), ("open", "a"), ("open", "r+")])

    def test_a_loader_without_workers_gets_no_argument_about_them(self):
        self.assertEqual(trial.with_workers_right({"num_workers": 0, "prefetch_factor": 4, "persistent_workers": True, "shuffle": True}), {"num_workers": 0, "shuffle": True})


@unittest.skipUnless(HAS_TORCH, "there is no torch in this Python")
class Tries(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "train.py").write_text(SCRIPT)
        self.before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, self.before)

    def test_a_trial_ends_after_its_steps_and_leaves_nothing(self):
        with tune.Trials([sys.executable, "train.py"], False) as trials:
            measured = trials.run(Setting(workers=2, threads=1), 25, None)
            self.assertEqual(measured.failure, "")
            loader = trials.evidence["script"]["loader"]
            self.assertEqual((loader["workers"], loader["persistent"], loader["where"]), (2, True, "train.py:13"))
            self.assertEqual(trials.evidence["script"]["threads"], 1)
            self.assertLess(trials.evidence["step"], 60)
            self.assertGreater(measured.step_ms, 1)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["train.py"])
        self.assertFalse(trials.folder.exists())

    def test_a_trial_of_a_script_without_an_optimizer_ends_after_its_steps(self):
        (self.folder / "train.py").write_text("""
import inspect, pickle, torch
from torch.utils.data import DataLoader
assert "num_workers" in inspect.signature(DataLoader.__init__).parameters and pickle.loads(pickle.dumps(torch.save)) is torch.save
weight = torch.ones(4, requires_grad=True)
for x in DataLoader([torch.ones(4)] * 400):
    (x @ weight).sum().backward()
    with torch.no_grad():
        weight -= 0.01 * weight.grad
""")
        with tune.Trials([sys.executable, "train.py"], False) as trials:
            self.assertEqual(trials.run(Setting(), 25, None).failure, "")
            self.assertLess(trials.evidence["step"], 60)

    def test_a_script_that_writes_into_the_users_folder_is_ended_before(self):
        outside = self.folder / "losses.txt"
        with unittest.mock.patch.dict(os.environ, LOSSES=str(outside)), tune.Trials([sys.executable, "train.py"], False) as trials, \
                self.assertRaisesRegex(UsageError, "would write.*losses.txt"):
            trials.run(Setting(), 25, None)
        self.assertFalse(outside.exists())

    @unittest.skipUnless(importlib.util.find_spec("safetensors"), "there is no safetensors in this Python")
    def test_what_is_written_outside_of_python_is_noticed_too(self):
        saves = ("torch.save(obj=model.state_dict(), f=os.environ['MODEL'])", "safetensors.torch.save_file(model.state_dict(), os.environ['MODEL'])",
                 "safetensors.torch.save_file(tensors=model.state_dict(), filename=os.environ['MODEL'])")
        for save in saves:
            outside = self.folder / "model.bin"
            (self.folder / "train.py").write_text(SCRIPT.replace("import torch\n", "import torch\nimport safetensors.torch\n", 1) + f"    {save}\n")
            with self.subTest(save), unittest.mock.patch.dict(os.environ, MODEL=str(outside)), tune.Trials([sys.executable, "train.py"], False) as trials, \
                    self.assertRaisesRegex(UsageError, "would write.*model.bin"):
                trials.run(Setting(), 25, None)
            self.assertFalse(outside.exists())


if __name__ == "__main__":
    unittest.main()
