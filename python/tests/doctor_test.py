"""`headrace doctor` without torch: its words, what it says where there is nothing to say, and the arithmetic of accounts."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

PACKAGE = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("MILLRACE_BUILD") or PACKAGE.parent / "build/release").resolve()
os.environ.setdefault("HEADRACE_LIBRARY", str(BUILD / "libheadrace.so"))
sys.path.insert(0, str(PACKAGE))
from headrace import doctor  # noqa: E402
from headrace._script import accounts, run_delay  # noqa: E402
from headrace._script import folder as folders  # noqa: E402
from headrace._script.loaders import Loader, Page, Reading, Timed, gives_samples  # noqa: E402
from headrace.errors import UsageError  # noqa: E402


def headrace(*words, folder=None, stdin=b"", more=None):
    return subprocess.run([sys.executable, "-m", "headrace", *words], cwd=folder, input=stdin, capture_output=True,
                          env={**os.environ, "PYTHONPATH": str(PACKAGE), **(more or {})})


class Clock:
    """A clock that is set by hand; ns."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


class Accounts(unittest.TestCase):
    def setUp(self):
        self.clock = Clock()
        patch = mock.patch.object(accounts, "_now", self.clock)
        patch.start()
        self.addCleanup(patch.stop)
        self.accounts = accounts.Accounts()
        self.loader, self.judged = Loader({}), Loader({})

    def pass_by(self, milliseconds):
        self.clock.now += milliseconds * 1_000_000

    def batch(self, loader, wait, with_grad=True, ended=False):
        self.accounts.before_batch()
        self.pass_by(wait)
        self.accounts.after_batch(loader, with_grad, ended)

    def train(self, forward=4, backward=5):
        self.pass_by(forward)
        self.accounts.before_backward()
        self.pass_by(backward)
        self.accounts.mark(accounts.BACKWARD)
        self.accounts.before_optimizer()
        self.pass_by(2)
        self.accounts.after_optimizer(1)
        self.pass_by(1)

    def milliseconds(self):
        wall, seconds = self.accounts.read()
        self.assertAlmostEqual(sum(seconds.values()), wall)
        return {phase: round(1e3 * value) for phase, value in seconds.items() if round(1e3 * value)}

    def start(self):
        self.pass_by(100)
        self.batch(self.loader, 10)
        self.train()
        self.batch(self.loader, 3)

    def test_an_interval_has_the_name_of_the_border_that_ends_it(self):
        self.start()
        self.train()
        self.batch(self.loader, 3)
        self.assertEqual(self.milliseconds(), {"startup": 122, "data_wait": 6, "forward": 4, "backward": 5, "optimizer": 2, "rest": 1})
        self.assertEqual((self.accounts.steps, self.accounts.times.milliseconds), (1, [15.0]))

    def test_batches_without_a_backward_pass_are_validation(self):
        self.start()
        self.train()
        self.batch(self.loader, 1, ended=True)
        for _ in range(5):
            self.batch(self.judged, 2)
            self.pass_by(6)
        self.batch(self.judged, 1, ended=True)
        self.batch(self.loader, 3)
        self.train()
        self.batch(self.loader, 3)
        self.assertEqual(self.milliseconds(), {"startup": 122, "data_wait": 10, "forward": 8, "backward": 10, "optimizer": 4, "rest": 2, "validate": 41})
        self.assertEqual(self.accounts.steps, 2)
        self.assertFalse(self.judged.trained)
        self.assertEqual(self.judged.judged_ns + self.judged.wait_ns, 11_000_000)

    def test_steps_on_the_first_batch_of_a_pass_are_told_apart(self):
        self.start()
        for passed, ended in ((9, False), (4, True), (7, False), (4, False), (4, True)):
            self.loader.is_first = passed != 4
            self.train(forward=passed)
            self.batch(self.loader, 3, ended=ended)
            if ended:
                self.batch(self.loader, 2)
        self.assertEqual(([ns // 10**6 for ns in self.loader.first_works], [ns // 10**6 for ns in self.loader.works]), ([17, 15], [12, 12, 12]))

    def test_a_validation_that_is_cut_short_stays_one(self):
        for with_grad in (False, True):
            with self.subTest(with_grad=with_grad):
                self.setUp()
                self.start()
                self.train()
                self.batch(self.loader, 3)
                for _ in range(4):
                    self.batch(self.judged, 2, with_grad)
                    self.pass_by(6)
                self.batch(self.loader, 3)
                self.train()
                self.batch(self.loader, 3)
                self.assertFalse(self.judged.trained)
                self.assertEqual(self.milliseconds()["validate"], 32)
                self.assertEqual(self.judged.judged_ns + self.judged.wait_ns, 8_000_000)

    def test_a_loop_may_take_batches_ahead_and_from_two_loaders(self):
        self.pass_by(100)
        other = Loader({})
        self.batch(self.loader, 10)
        for _ in range(3):
            self.batch(self.loader, 3)
            self.batch(other, 2)
            self.train()
        self.assertTrue(self.loader.trained and other.trained)
        self.batch(self.loader, 3)
        self.assertEqual(self.milliseconds()["data_wait"], 13)
        self.assertNotIn("validate", self.milliseconds())

    @mock.patch.object(accounts, "STEP_NS", 50_000_000)
    def test_a_step_that_lost_its_core_says_nothing_of_others(self):
        self.start()
        for number in range(40):
            if self.accounts.passed:
                break
            self.train(forward=4, backward=4)
            self.pass_by(200 if number % 3 == 2 else 0)
            self.batch(self.loader, 3)
        before = self.milliseconds()
        self.pass_by(110)
        self.accounts.go_on(self.accounts.passed, 0, False)
        self.assertEqual(self.milliseconds()["rest"] - before["rest"], 10)

    def test_the_cpu_time_of_short_steps_is_asked_for_now_and_then(self):
        with mock.patch.object(accounts.time, "process_time_ns", side_effect=lambda: self.clock.now // 2) as asked:
            self.start()
            for _ in range(1000):
                self.train(forward=0, backward=0)
                self.batch(self.loader, 0)
        self.assertEqual(self.accounts.steps, 1000)
        self.assertLess(asked.call_count, 2 * 3000 // 50 + 4)
        self.assertGreater(asked.call_count, 50)
        self.assertAlmostEqual(self.accounts.cpu_ns / self.accounts.cpu_wall, 0.5)

    def test_a_batch_whose_backward_pass_comes_with_a_later_one_is_trained(self):
        self.pass_by(100)
        for _ in range(2):
            for _ in range(3):
                self.batch(self.loader, 3)
                self.pass_by(4)
            self.batch(self.loader, 3)
            self.train()
        self.batch(self.loader, 3)
        self.assertTrue(self.loader.trained)
        self.assertEqual(self.accounts.steps, 1)
        self.assertEqual({name: self.milliseconds()[name] for name in ("data_wait", "forward")}, {"data_wait": 15, "forward": 16})
        self.assertNotIn("validate", self.milliseconds())

    def test_a_validation_on_the_data_of_the_training(self):
        self.start()
        self.train()
        self.batch(self.loader, 3, ended=True)
        for _ in range(4):
            self.batch(self.loader, 2, with_grad=False)
            self.pass_by(6)
        self.batch(self.loader, 2, with_grad=False, ended=True)
        self.pass_by(7)
        self.batch(self.loader, 3)
        self.assertEqual((self.milliseconds()["validate"], self.milliseconds()["rest"]), (34, 8))

    def test_steps_of_another_optimizer(self):
        def steps(optimizer, count):
            before = self.accounts.steps
            for _ in range(count):
                self.accounts.before_optimizer()
                self.pass_by(2)
                self.accounts.after_optimizer(optimizer)
            return self.accounts.steps - before
        self.assertEqual(steps(1, 10), 9)
        self.assertEqual([steps(2 + number % 40, 1) for number in range(200)], [0] * 200)  # one for each parameter
        self.assertEqual(steps(1, 1), 1)
        self.assertEqual(steps(2, accounts.SUCCEEDS + 10), 10)
        self.batch(self.loader, 3)
        self.train()
        self.assertTrue(self.accounts.by_loader)
        self.batch(self.loader, 3)
        self.assertEqual(steps(3, accounts.SUCCEEDS + 10), 10)

    def test_a_closure_and_two_backward_passes_in_a_step(self):
        self.start()
        for _ in range(2):
            self.accounts.before_optimizer()
            self.train()
            self.accounts.after_optimizer(2)
        self.batch(self.loader, 3)
        self.assertEqual(self.accounts.steps, 1)
        self.assertEqual(self.milliseconds()["forward"], 8)

    def test_a_save_in_a_step_is_not_of_the_step(self):
        self.start()
        self.train()
        self.accounts.passing()
        self.pass_by(50)
        self.accounts.mark(accounts.SNAPSHOT)
        self.batch(self.loader, 3)
        self.assertEqual((self.milliseconds()["snapshot"], self.accounts.times.milliseconds), (50, [15.0]))

    def test_steps_without_a_loader_end_behind_the_first_optimizer(self):
        for _ in range(4):
            self.train()
            self.accounts.before_optimizer()
            self.accounts.after_optimizer(2)
        self.assertEqual(self.accounts.steps, 3)
        self.assertEqual(self.milliseconds()["rest"], 4)

    @mock.patch.object(accounts, "STEP_NS", 50_000_000)
    def test_steps_that_are_passed_over_have_the_shares_of_the_others(self):
        self.start()
        for _ in range(40):
            if self.accounts.passed:
                break
            self.train(forward=1, backward=1)
            self.batch(self.loader, 3)
        passed, before = self.accounts.passed, self.milliseconds()
        steps = self.accounts.steps
        self.assertGreater(passed, 0)
        self.pass_by(60)
        self.accounts.go_on(passed, 20_000_000, False)
        after = self.milliseconds()
        self.assertEqual(self.accounts.steps, steps + passed)
        grown = {phase: after[phase] - before[phase] for phase in after}
        self.assertEqual((grown["data_wait"], grown["forward"], grown["backward"], grown["optimizer"], grown["rest"]), (20, 8, 8, 16, 8))


class Workers(unittest.TestCase):
    def test_a_page_holds_what_each_process_read(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Page(Path(folder) / "workers")
            for process, samples in ((5, 3), (6, 4)):
                reading = Reading()
                reading.count(samples, 2_000_000_000, 1_000_000_000)
                reading.time_one(process, 0.5)
                page.write(process, reading)
            other = Page(Path(folder) / "workers")
            loader = Loader({})
            loader.workers = {5, 6, 7}
            loader.collect(other)
            self.assertEqual((loader.reading.batches, loader.reading.samples, loader.reading.wall, loader.reading.slowest), (2, 7, 4.0, 5))

    def test_slow_samples_are_those_far_above_the_mean(self):
        reading = Reading()
        for index in range(40):
            reading.time_one(index, 0.4 if index == 30 else 0.01)
        self.assertEqual((reading.slow, reading.slowest, reading.timed), (1, 30, 40))

    def test_the_index_of_a_sample_may_be_of_another_type(self):
        class Index:
            def __index__(self):
                return 30
        for index, slowest in ((Index(), 30), ("thirty", -1)):
            reading = Reading()
            reading.time_one(1, 0.01)
            reading.time_one(index, 0.4)
            self.assertEqual((reading.slowest, reading.slowest_seconds), (slowest, 0.4))

    def test_a_sample_that_had_no_core_is_not_slow(self):
        clock = Clock()
        delay = mock.Mock()

        class Samples:
            def __getitem__(self, index):
                clock.now += 400_000_000 if index == 30 else 10_000_000
                delay.read.return_value += 390_000_000 if index == 30 else 0
                return index

        for counted, slow in ((True, 0), (False, 1)):
            delay.read.return_value, reading = 0, Reading()
            with mock.patch("headrace._script.loaders._now", clock), mock.patch("headrace._script.run_delay.of_this_thread", return_value=delay):
                timed = Timed(Samples(), reading)
                if not counted:
                    timed.delay = mock.Mock(**{"read.return_value": 0})
                for index in range(40):
                    timed[index]
            self.assertEqual((reading.slow, reading.timed), (slow, 40))

    def test_the_kernel_counts_what_this_thread_had_no_core(self):
        before = run_delay.of_this_thread()
        self.assertGreaterEqual(before.read(), 0)
        self.assertIs(run_delay.of_this_thread(), before)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, b"other" if run_delay.of_this_thread() is not before else b"same")
            os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(os.read(read, 8), b"other")

    def test_samples_of_a_subset_are_asked_for_one_by_one(self):
        class Subset:
            __module__ = "torch.utils.data.dataset"

            def __init__(self, dataset):
                self.dataset = dataset

            def __getitems__(self, indices):
                return indices
        self.assertTrue(gives_samples([1]) and gives_samples(Subset([1])))
        self.assertFalse(gives_samples(Subset(mock.Mock(__getitems__=1))))


class Folders(unittest.TestCase):
    def test_two_doctors_choose_a_folder_at_once(self):
        with tempfile.TemporaryDirectory() as place:
            names = [Path(place) / name for name in ("train", "train", "train-2")]
            first = folders.Folder(names[0], "train.py", [])
            (names[0] / "run.json").unlink()
            with mock.patch.object(folders, "next_free", side_effect=names), mock.patch.object(Path, "exists", return_value=False):
                second = folders.new(None, "train.py", [])
            self.assertEqual(second.path, names[2])
            first.remove()
            second.remove()


class Words(unittest.TestCase):
    def test_refusals_say_what_and_next(self):
        for words, what, following in (
                ([], "no command and no run is named", "headrace doctor -- python train.py"),
                (["--"], "there is no command behind --", "headrace doctor -- python train.py"),
                (["python", "train.py"], "there is no -- before the command", "headrace doctor -- python train.py"),
                (["train.py", "--fast"], "there is no -- before the command", "headrace doctor -- python train.py --fast"),
                (["--run"], "--run has no folder", "--run runs/x"), (["--fast", "--", "x"], "has no option --fast", "--run DIR, --json"),
                (["x", "--", "python"], "x stands before --", "goes behind --")):
            with self.subTest(words=words), self.assertRaises(UsageError) as found:
                doctor.parse(words)
            self.assertIn(what, found.exception.what)
            self.assertIn(following, found.exception.next)

    def test_the_script_of_a_command(self):
        for words, name in ((["python", "a/train.py"], "train.py"), (["torchrun", "--nproc-per-node", "2", "fit.py", "--x"], "fit.py"),
                            (["python", "-m", "pkg.train"], "pkg.train"), (["./run.sh"], "run.sh")):
            self.assertEqual(doctor.name_of(words), name)

    def test_folders_that_can_not_be_read_or_made(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "full").mkdir()
            (folder / "full/run.json").write_text("{}")
            (folder / "bare").mkdir()
            (folder / "bare/evidence.json").write_text("{}")
            for words, what, following in ((["doctor", "nothing"], "there is no folder nothing", "current folder"), (["doctor", "full"], "full is a run of Millrace", "millrace doctor full"),
                                           (["doctor", "."], ". is no run folder of a script", "headrace doctor --"), (["doctor", "--run", "full", "--", "true"], "full is there already", "new folder"),
                                           (["doctor", "bare"], "bare/evidence.json can't be read: it holds no evidence", "run the script again"), (["doctor", "--", "pithon"], "there is no program pithon", "activate")):
                found = headrace(*words, folder=folder)
                self.assertIn(found.returncode, (1, 2, 127))
                self.assertNotIn("Traceback", found.stderr.decode())
                self.assertIn(what, found.stderr.decode())
                self.assertIn(following, found.stderr.decode())


class Nothing(unittest.TestCase):
    """Programs that train nothing: no folder is left, and a line says why there is no verdict."""

    def check(self, command, why, status=0):
        with tempfile.TemporaryDirectory() as folder:
            found = headrace("doctor", "--", *command, folder=folder)
            self.assertEqual(found.returncode, status)
            self.assertIn("headrace doctor  no verdict: " + why, found.stderr.decode())
            self.assertEqual(os.listdir(folder), [])
            return found

    def test_no_torch(self):
        found = self.check([sys.executable, "-c", "import sys; print(7); sys.exit(5)"], "the script does not import torch", 5)
        self.assertEqual(found.stdout, b"7\n")

    def test_json_without_a_verdict(self):
        with tempfile.TemporaryDirectory() as folder:
            found = headrace("doctor", "--json", "--", sys.executable, "-c", "pass", folder=folder)
        self.assertEqual(json.loads(found.stdout), {"findings": [], "accounts": [], "verdict": "no verdict: the script does not import torch"})

    def test_no_hook(self):
        self.check(["true"], "no Python was started that reads PYTHONPATH")
        self.check([sys.executable, "-I", "-c", "pass"], "no Python was started that reads PYTHONPATH")

    def test_a_package_that_can_not_be_loaded_is_one_line(self):
        with tempfile.TemporaryDirectory() as name:
            hook = Path(name) / "headrace/_script/hook"
            hook.mkdir(parents=True)
            (hook / "sitecustomize.py").write_text((PACKAGE / "headrace/_script/hook/sitecustomize.py").read_text())
            found = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(hook), "HEADRACE_DOCTOR": name})
            self.assertEqual((found.returncode, found.stdout), (0, "1\n"))
            self.assertEqual(len(found.stderr.splitlines()), 1)
            self.assertIn("can't watch, the script runs on", found.stderr)

    def test_the_exit_code_is_the_commands_where_nobody_reads_what_is_said(self):
        command = [sys.executable, "-m", "headrace", "doctor", "--", sys.executable, "-c", "raise SystemExit(5)"]
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        with tempfile.TemporaryDirectory() as folder:
            read, write = os.pipe()
            os.close(read)
            self.assertEqual(subprocess.run(command, cwd=folder, env=environment, stderr=write).returncode, 5)
            os.close(write)
            self.assertEqual(subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", *command], cwd=folder, env=environment).returncode, 5)

    def test_help(self):
        found = headrace("doctor", "--help")
        self.assertEqual(found.returncode, 0)
        self.assertIn(b"headrace doctor [--run DIR] [--json] -- COMMAND...", found.stdout)


if __name__ == "__main__":
    unittest.main()
