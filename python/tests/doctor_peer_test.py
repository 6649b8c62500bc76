"""`headrace doctor -- python train.py` and `headrace.watch`: a script computes, prints and leaves what it would without, and its time is
accounted for."""
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("MILLRACE_BUILD") or PACKAGE.parent / "build/release").resolve()
os.environ.setdefault("HEADRACE_LIBRARY", str(BUILD / "libheadrace.so"))
sys.path[:0] = [str(PACKAGE), str(Path(__file__).resolve().parent)]
import forked

# A loop with workers, a validation, saves; it prints each loss to the bit. Words: workers, start method, batches to stop at.
TRAIN = """
import os, sys, time, torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)

class Squares(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        time.sleep(0.02 if index == 7 else 0.001)
        return torch.full((8,), float(index)), index % 2

def main(workers=0, method=None, epochs=3):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Squares(), batch_size=4, shuffle=True, num_workers=workers, multiprocessing_context=method)
    judged = DataLoader(Squares(), batch_size=16)
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        with torch.no_grad():
            print(sum(model(x).sum().item() for x, _ in judged).hex())
        torch.save(model.state_dict(), os.path.join(os.environ.get("OUT", "."), "model.pt"))
"""
# Sample 7 is the slowest on a busy machine too, where any sample may have to wait for a core.
SLOW = TRAIN.replace("0.02 if", "0.3 if")
CALL = "\nif __name__ == '__main__':\n    main({})\n"


def settings(folder, more=None):
    path = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(PACKAGE), path])), "OUT": str(folder), **(more or {})}


def setUpModule():
    if importlib.util.find_spec("torch"):
        Script.server = unittest.enterModuleContext(forked.Server())


@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
class Script(unittest.TestCase):
    server = None

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = Path(self._folder.name)

    def run_plain(self, text, *words, stdin=b""):
        """A finished process, with bytes."""
        (self.folder / "train.py").write_text(textwrap.dedent(text))
        return self.server.run(self.folder, "train.py", words, stdin, settings(self.folder))

    def run_below(self, text, *words, stdin=b"", forks=False):
        """The same, of the script below the doctor. The evidence is in self.evidence, {} without a verdict. `forks`: neither Python
        nor torch is started anew, where the claim is about what follows."""
        (self.folder / "train.py").write_text(textwrap.dedent(text))
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        below = ["doctor", "--run", "run"]
        if forks:
            done = self.server.run(self.folder, "train.py", words, stdin, settings(self.folder), below)
        else:
            done = subprocess.run([sys.executable, "-m", "headrace", *below, "--", sys.executable, "train.py", *words], cwd=self.folder, input=stdin,
                                  capture_output=True, env=settings(self.folder))
        kept = self.folder / "run/evidence.json"
        self.evidence = json.loads(kept.read_text())["evidence"] if kept.exists() else {}
        return done

    def run_both(self, text, *words, stdin=b"", forks=False):
        """(as it is, below the doctor)."""
        return self.run_plain(text, *words, stdin=stdin), self.run_below(text, *words, stdin=stdin, forks=forks)

    def assert_same(self, plain, ours):
        self.assertEqual((ours.returncode, ours.stdout), (plain.returncode, plain.stdout), ours.stderr.decode()[-3000:])

    def said(self, ours):
        return ours.stderr.decode()


class Accounts(Script):
    def check_accounts(self, steps):
        times = self.evidence["times"]
        self.assertEqual(times["steps"], steps)
        self.assertAlmostEqual(sum(times["seconds"].values()), times["wall"], delta=0.01 * times["wall"])
        self.assertTrue(all(seconds >= 0 for seconds in times["seconds"].values()), times)
        return times["seconds"]

    def check_the_run_folder(self, ours):
        import headrace
        run = headrace.Run(self.folder / "run")
        self.assertEqual((run.recipe, run.state, run.step), ("train.py", "done: end", 35))
        self.assertIn("loss", run.history)
        kinds = [line["kind"] for line in run.lines()]
        self.assertEqual((kinds[0], kinds[-1]), ("start", "end"))
        self.assertIn("kept in run", self.said(ours))
        again = subprocess.run([sys.executable, "-m", "headrace", "doctor", "run"], cwd=self.folder, capture_output=True, text=True, env=settings(self.folder))
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("35 steps", again.stderr)

    def test_a_plain_loop(self):
        plain, ours = self.run_both(SLOW + CALL.format(""))
        self.assert_same(plain, ours)
        seconds = self.check_accounts(35)
        self.assertGreater(seconds["data_wait"], 0.001 * 35 * 4)  # each sample sleeps
        self.assertGreater(seconds["validate"], 0.001 * 48 * 3)
        for name in ("forward", "backward", "optimizer", "snapshot"):
            self.assertGreater(seconds[name], 0)
        script = self.evidence["script"]
        self.assertEqual((script["dialect"], script["saves"]["count"]), ("loop", 3))
        loader = script["loader"]
        self.assertEqual((loader["workers"], loader["batch_size"], loader["epochs"], loader["dataset"]), (0, 4, 3, "Squares"))
        line = next(number for number, text in enumerate(TRAIN.splitlines(), 1) if "loader = DataLoader(" in text)
        self.assertEqual(loader["where"], f"train.py:{line}")
        self.assertGreater(loader["sample_seconds"], 0.001)
        self.assertEqual(loader["slowest_index"], 7)
        judged = script["validation_input"]
        self.assertEqual((judged["workers"], judged["where"]), (0, f"train.py:{line + 1}"))
        self.assertTrue(0.001 * 48 * 3 < judged["read_seconds"] <= judged["wait_seconds"] < seconds["validate"], judged)
        lines = self.evidence["numbers"]["objectives"][0]["lines"]
        losses = {float.fromhex(text) for text in plain.stdout.decode().split()}
        self.assertTrue(lines and all(line["loss"] in losses for line in lines))
        self.check_the_run_folder(ours)

    def test_workers_of_each_kind_report(self):
        for method in ("fork", "spawn"):
            with self.subTest(method):
                plain = self.run_plain(SLOW + CALL.format("2, 'fork', 2"))  # what is printed does not depend on the method
                ours = self.run_below(SLOW + CALL.format(f"2, {method!r}, 2"), forks=method == "fork")
                self.assert_same(plain, ours)
                self.check_accounts(12 * 2 - 1)
                loader = self.evidence["script"]["loader"]
                self.assertEqual((loader["workers"], loader["multiprocessing"], loader["slowest_index"], loader["worker_threads"]), (2, method, 7, 1))
                self.assertGreater(loader["sample_seconds"], 0.001)
                self.assertGreater(loader["first_batch_seconds"], 0)

    def test_short_steps_are_passed_over_and_counted(self):
        text = TRAIN.replace("time.sleep(0.02 if index == 7 else 0.001)", "pass").replace("return 48", "return 1604") + CALL.format("")
        plain, ours = self.run_both(text, forks=True)
        self.assert_same(plain, ours)
        self.check_accounts(3 * 401 - 1)

    def test_a_loop_without_a_loader(self):
        plain, ours = self.run_both("""
            import torch
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 1)
            optimizer = torch.optim.Adam(model.parameters())
            for step in range(50):
                for _ in range(2):
                    model(torch.ones(3, 4)).sum().backward()
                optimizer.step(); optimizer.zero_grad()
            print(model.weight.sum().item().hex())
        """, forks=True)
        self.assert_same(plain, ours)
        self.check_accounts(49)
        self.assertNotIn("loader", self.evidence["script"])

    def test_a_kill_leaves_what_was_known(self):
        (self.folder / "train.py").write_text(SLOW + CALL.format("epochs=100000"))
        with subprocess.Popen([sys.executable, "-m", "headrace", "doctor", "--run", "run", "--", sys.executable, "train.py"], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=settings(self.folder)) as doctor:
            self.addCleanup(doctor.kill)
            while not (self.folder / "run/log.jsonl").exists() and doctor.poll() is None:
                time.sleep(0.1)
            import headrace
            run = headrace.Run(self.folder / "run")
            self.assertEqual(run.state, "running")
            doctor.kill()
        while run.is_running:  # its helper process, which has the lock too, is about to notice
            time.sleep(0.01)
        kinds = [line["kind"] for line in run.lines()]
        self.assertEqual((kinds[0], kinds[-1], run.state), ("start", "findings", "died"))
        again = subprocess.run([sys.executable, "-m", "headrace", "doctor", "run"], cwd=self.folder, capture_output=True, text=True, env=settings(self.folder))
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("waiting for data", again.stderr)


class Unchanged(Script):
    def test_a_script_that_fails_fails_alike(self):
        plain, ours = self.run_both(TRAIN + CALL.format("epochs=1") + "    raise SystemExit(7)\n")
        self.assert_same(plain, ours)
        self.assertEqual((ours.returncode, json.loads((self.folder / "run/summary.json").read_text())["exit_reason"]), (7, "error"))

    def test_a_dataset_that_raises(self):
        plain, ours = self.run_both(TRAIN.replace("return torch.full", "assert index != 9, 'nine'\n        return torch.full") + CALL.format(""), forks=True)
        self.assert_same(plain, ours)
        self.assertIn("AssertionError: nine", self.said(ours))

    def test_a_signal(self):
        plain, ours = self.run_both(TRAIN + CALL.format("epochs=1") + "    import signal; os.kill(os.getpid(), signal.SIGTERM)\n", forks=True)
        self.assert_same(plain, ours)
        self.assertEqual(ours.returncode, -signal.SIGTERM)

    def test_bytes_in_and_out(self):
        plain, ours = self.run_both("import sys, torch; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", stdin=bytes(range(256)), forks=True)
        self.assert_same(plain, ours)
        self.assertEqual(plain.stdout, bytes(range(256))[::-1])
        self.assertIn("no verdict: there was no backward pass", self.said(ours))
        self.assertFalse((self.folder / "run").exists())

    def test_the_users_own_sitecustomize_and_paths(self):
        own = self.folder / "own"
        own.mkdir()
        (own / "sitecustomize.py").write_text("import builtins; builtins.customised = __file__\n")
        path = os.pathsep.join(filter(None, [str(own), os.environ.get("PYTHONPATH", "")]))
        (self.folder / "train.py").write_text("import sys; print(customised, sys.path, sys.modules['sitecustomize'].__file__, sorted(n for n in sys.modules if 'torch' in n))")
        results = []
        for before in ([], [sys.executable, "-m", "headrace", "doctor", "--run", "run", "--"]):
            environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{PACKAGE}"}
            results.append(subprocess.run([*before, sys.executable, "train.py"], cwd=self.folder, capture_output=True, env=environment))
        self.assert_same(*results)
        self.assertIn(str(own).encode(), results[0].stdout)

    def test_children_by_fork_exec_and_spawn(self):
        text = TRAIN + """
if __name__ == '__main__':
    import multiprocessing
    if 'again' in sys.argv:
        main(epochs=1)
        sys.exit(4)
    for method in ('fork', 'spawn'):
        child = multiprocessing.get_context(method).Process(target=main, args=(0, None, 1))
        child.start(); child.join(); print(child.exitcode)
    if os.fork() == 0:
        os._exit(3)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    os.execv(sys.executable, [sys.executable, 'train.py', 'again'])
"""
        plain, ours = self.run_both(text)
        self.assert_same(plain, ours)
        self.assertEqual((ours.returncode, self.evidence["step"]), (4, 11))

    def test_below_pytest_or_another_main(self):
        (self.folder / "tests.py").write_text("import unittest\nimport train\nclass T(unittest.TestCase):\n    def test(self): train.main(epochs=1)\n")
        (self.folder / "train.py").write_text(TRAIN)
        done = subprocess.run([sys.executable, "-m", "headrace", "doctor", "--run", "other", "--", sys.executable, "-m", "unittest", "tests"], cwd=self.folder, capture_output=True,
                              env=settings(self.folder))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads((self.folder / "other/evidence.json").read_text())["evidence"]["step"], 11)

    def test_a_compiled_model_is_compiled_alike(self):
        text = TRAIN.replace("    optimizer = ", "    model = torch.compile(model, backend=count, fullgraph=True)\n    optimizer = ").replace(
            "def main(", "graphs = []\ndef count(graph, inputs):\n    graphs.append(len(list(graph.graph.nodes)))\n    return graph.forward\n\ndef main(")
        plain, ours = self.run_both(text + CALL.format("") + "    print(graphs)\n", forks=True)
        self.assert_same(plain, ours)
        self.assertEqual(plain.returncode, 0, plain.stderr.decode())

    def test_a_mistake_of_the_watcher_is_one_line(self):
        plain = self.run_plain(TRAIN + CALL.format("epochs=1"))
        for fault in ("accounts.Accounts.before_backward", "accounts.Accounts.after_batch", "borders.Borders.torch"):
            with self.subTest(fault):
                planted = f"""
import headrace._script.accounts, headrace._script.looks, headrace._script.borders
def broken(*_): raise KeyError('planted')
headrace._script.{fault} = broken
"""
                ours = self.run_below(planted + TRAIN + CALL.format("epochs=1"), forks=fault != "borders.Borders.torch")
                self.assert_same(plain, ours)
                own = [line for line in self.said(ours).splitlines() if line.startswith("headrace doctor")]
                self.assertEqual(len(own), 2, self.said(ours))
                self.assertIn("stopped watching, the script runs on: KeyError: 'planted'", own[0])
                self.assertIn("no verdict: watching failed", own[1])

    def test_a_look_that_fails_is_one_line_and_the_verdict_comes(self):
        plain = self.run_plain(TRAIN + CALL.format("epochs=1"))
        for fault, part in (("looks.Looks._look", "its lines"), ("kept.Kept.see", "losses that are kept"), ("evidence._python", "python")):
            with self.subTest(fault):
                planted = f"""
import headrace._script.evidence, headrace._script.kept, headrace._script.looks
def broken(*_): raise KeyError('planted')
headrace._script.{fault} = broken
"""
                ours = self.run_below(planted + TRAIN + CALL.format("epochs=1"), forks=True)
                self.assert_same(plain, ours)
                own = [line for line in self.said(ours).splitlines() if line.startswith("headrace doctor")]
                self.assertEqual(len(own), 2, self.said(ours))
                self.assertIn(f"goes on without {part}: KeyError: 'planted'", own[0])
                self.assertIn("steps of", own[1])


class Inside(Script):
    def test_watch(self):
        plain = self.run_plain(TRAIN + CALL.format(""))
        done = subprocess.run([sys.executable, "-c", textwrap.dedent("""
            import sys, torch, headrace, torch.optim, train
            optimizers = sys.modules["torch.optim.optimizer"]
            backward = torch.autograd.backward
            with headrace.watch("here", model=torch.nn.Linear(2, 3)) as run:
                train.main()
            assert torch.autograd.backward is backward
            assert not optimizers._global_optimizer_post_hooks
            assert abs(sum(run.accounts.values()) - run.evidence["times"]["wall"]) < 1e-6, run.accounts
            assert run.evidence["step"] == 35 and run.run.summary["parameters"] == 9
            assert "35 steps" in str(run) and "35 steps" in run._repr_html_()
            try:
                with headrace.watch() as first:
                    with headrace.watch():
                        pass
            except headrace.MomentError as error:
                assert "watched already" in str(error)
            try:
                with headrace.watch("here"):
                    pass
            except headrace.UsageError as error:
                assert "there already" in str(error)
            try:
                with headrace.watch("failed"):
                    train.main(epochs=1)
                    raise KeyError("mine")
            except KeyError:
                pass
            assert headrace.Run("failed").state == "failed"
        """)], cwd=self.folder, capture_output=True, env=settings(self.folder))
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertTrue(done.stdout.startswith(plain.stdout))


if __name__ == "__main__":
    unittest.main()
