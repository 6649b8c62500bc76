"""Runs as Python objects: what their folders say, the program that trains, and trackers that follow."""
import contextlib
import fcntl
import importlib.util
import io
import json
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
import headrace
from headrace import _predict, _safetensors, follow
from trackers import FakeMlflow, FakeWandb

try:
    import numpy
except ImportError:
    numpy = None

FINDING = {"id": "few_readers", "text": "few_readers: steps wait for data 61 %; data.workers=4: about 52 % less time", "gain": 0.52, "key": "data.workers", "value": "4"}
FIRST = [{"kind": "start", "step": 0, "process": 7, "unix_time": 1000.0, "time": 0.1}, {"kind": "step", "step": 1, "epoch": 1, "loss": 3.0, "time": 1.0, "shares": {"forward": 1}},
         {"kind": "step", "step": 2, "epoch": 1, "loss": "nan", "time": 2.0}, {"kind": "validation", "step": 2, "val_loss": 2.5, "score": 0.1, "seconds": 9.0, "time": 3.0},
         {"kind": "step", "step": 3, "epoch": 2, "loss": 9.0, "time": 4.0}, {"kind": "findings", "step": 3, "findings": [FINDING], "time": 4.5}]
RESUMED = [{"kind": "start", "step": 2, "process": 8, "unix_time": 2000.0, "time": 0.1}, {"kind": "step", "step": 3, "epoch": 2, "loss": 2.0, "time": 1.0},
           {"kind": "validation", "step": 3, "val_loss": 2.25, "score": 0.2, "time": 2.0}]


def write_log(folder, lines):
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "st')


def safetensors(tensors):
    """{name: (dtype, shape, bytes)} as a file's bytes."""
    header, data = {}, b""
    for name, (kind, shape, content) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps({**header, "__metadata__": {"format": "pt"}}).encode()
    return struct.pack("<Q", len(text)) + text + data


def make_run(folder, summary=None, snapshots=()):
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"recipe": "cosmology"}')
    (folder / "config.json").write_text('{"values": {"optim": {"learning_rate": 0.001}}, "origins": {"optim.learning_rate": "default"}}')
    write_log(folder, FIRST + RESUMED)
    if summary:
        (folder / "summary.json").write_text(json.dumps(summary))
    for step in snapshots:
        place = folder / f"snapshots/step-{step:08}"
        place.mkdir(parents=True)
        content = safetensors({"w": ("F32", [2], struct.pack("<2f", step, 0.5)), "b": ("BF16", [1], struct.pack("<H", 0x3F80)), "n": ("I64", [], struct.pack("<q", step))})
        (place / "model.safetensors").write_bytes(content)
        (place / "manifest.json").write_text(json.dumps({"files": {"model.safetensors": {"bytes": len(content)}}}))
    return folder


DONE = {"exit_reason": "epochs", "steps": 3, "metrics": {"score": {"last": 0.2, "best": 0.2, "best_step": 3}, "val_loss": {"last": 2.25, "best": "nan", "best_step": 3}},
        "metrics_order": ["val_loss", "score"], "findings": [FINDING]}


class Folders(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def test_history_is_columns_in_which_a_resume_replaces_what_it_made_again(self):
        history = headrace.Run(make_run(self.root / "a")).history
        self.assertEqual(history["step"], [1, 2, 3])
        self.assertEqual({len(column) for column in history.values()}, {3})
        self.assertEqual(history["val_loss"][1:], [2.5, 2.25])
        self.assertTrue(math.isnan(history["val_loss"][0]) and math.isnan(history["loss"][1]))
        self.assertEqual(history["loss"][2], 2.0)
        self.assertEqual(history["time"], [1.0, 2.0, 1.0])
        self.assertNotIn("seconds", history)

    def test_state_is_what_the_program_says(self):
        for number, (summary, snapshots, expected) in enumerate(((None, (), "new"), (None, (2,), "died"), (DONE, (3,), "done: epochs"), (DONE, (4,), "died"),
                                                                 ({"exit_reason": "signal", "steps": 3}, (3,), "stopped"), ({"exit_reason": "error"}, (3,), "failed"))):
            run = headrace.Run(make_run(self.root / f"r{number}", summary, snapshots))
            if expected == "stopped":
                write_log(run.folder, [*FIRST, *RESUMED, {"kind": "end", "exit_reason": "signal"}])
            self.assertEqual(run.state, expected)
            (run.folder / "lock").write_text("")
            self.assertEqual(run.state, expected)
            with open(run.folder / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self.assertEqual(run.state, "running")

    def test_a_run_that_died_after_a_step_of_a_hundred_thousand_bytes_has_not_stopped(self):
        run = headrace.Run(make_run(self.root / "a", None, (2,)))
        step = {"kind": "step", "step": 4, **{f"train/metric_{i}": 0.125 for i in range(4000)}}
        self.assertGreater(len(json.dumps(step)), 1 << 16)
        for last, expected in ((step, "died"), ({"kind": "end", "step": 4}, "stopped")):
            write_log(run.folder, [*FIRST, *RESUMED, step, last])
            self.assertEqual(run.state, expected)

    def test_metrics_and_findings_of_a_finished_and_of_a_running_run(self):
        run = headrace.Run(make_run(self.root / "a", DONE, (3,)))
        self.assertEqual(list(run.metrics), ["val_loss", "score"])
        self.assertEqual((run.metrics["score"].best, run.metrics["score"].best_step), (0.2, 3))
        self.assertTrue(math.isnan(run.metrics["val_loss"].best))
        self.assertEqual((str(run.findings[0]), run.findings[0].gain, run.findings[0].key), (FINDING["text"], 0.52, "data.workers"))
        (run.folder / "lock").write_text("")
        with open(run.folder / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertEqual((run.metrics["val_loss"].last, run.metrics["val_loss"].best, run.metrics["val_loss"].best_step), (2.25, 2.25, 3))
            self.assertEqual(run.metrics["score"].last, 0.2)
            self.assertTrue(math.isnan(run.metrics["score"].best))
            self.assertEqual(run.findings, [])  # the process since the resume has found nothing

    def test_the_best_of_a_running_run_is_finite_and_not_of_steps_that_were_undone(self):
        run = headrace.Run(make_run(self.root / "a"))
        (run.folder / "lock").write_text("")
        with open(run.folder / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for losses, resumed, expected in (((2.5, "nan"), None, ("nan", 2.5, 1)), (("nan", 2.5, "nan", 3.0), None, (3.0, 2.5, 2)),
                                              ((2.5, 1.0, 0.5), (1, 2.0), (2.0, 2.0, 2)), ((2.5, 1.0), (1, None), (2.5, 2.5, 1))):
                lines = [{"kind": "start", "step": 0}, *({"kind": "validation", "step": step, "val_loss": loss} for step, loss in enumerate(losses, 1))]
                if resumed is not None:
                    lines += [{"kind": "start", "step": resumed[0]}, *([{"kind": "validation", "step": 2, "val_loss": resumed[1]}] if resumed[1] else [])]
                write_log(run.folder, lines)
                found = run.metrics["val_loss"]
                with self.subTest(losses):
                    self.assertEqual((found.last if math.isfinite(found.last) else "nan", found.best, found.best_step), expected)

    def test_a_best_step_that_nobody_knows_is_a_number_too(self):
        run = headrace.Run(make_run(self.root / "a", {**DONE, "metrics": {"score": {"last": 0.2, "best": None, "best_step": None}}}, (3,)))
        self.assertTrue(math.isnan(run.metrics["score"].best))
        self.assertEqual(run.metrics["score"].best_step, 0)

    def test_a_process_that_ended_is_not_taken_for_the_one_that_trains_now(self):
        folder = make_run(self.root / "a", DONE, (3,))
        (folder / "lock").write_text("")
        ended = subprocess.Popen(["true"])
        ended.wait()
        run = headrace.Run(folder, ended)
        self.assertIs(run.wait(), run)
        holder = subprocess.Popen([sys.executable, "-c", "import fcntl, os, sys, time\nlock = open(sys.argv[1], 'r+')\nfcntl.flock(lock, fcntl.LOCK_EX)\n"
                                   "lock.write(f'{os.getpid()}\\n')\nlock.flush()\nprint('held', flush=True)\ntime.sleep(600)\n", str(folder / "lock")], stdout=subprocess.PIPE)
        try:
            self.assertEqual(holder.stdout.readline(), b"held\n")
            with self.assertRaises(TimeoutError):
                run.wait(0)
            run.stop()
            self.assertEqual(holder.wait(), -signal.SIGTERM)
        finally:
            holder.kill()
            holder.wait()
            holder.stdout.close()
        self.assertIs(run.wait(), run)

    def test_runs_are_listed_the_newest_first_and_shown(self):
        for number, name in enumerate(("cosmology/a", "cosmology/b", "c")):
            folder = make_run(self.root / name, DONE, (3,))
            for file in ("log.jsonl", "config.json", "summary.json"):
                os.utime(folder / file, (number, number))
        found = headrace.runs(self.root)
        self.assertEqual([run.name for run in found], ["c", "b", "a"])
        self.assertEqual((found[0].recipe, found[0].step, found[0].config), ("cosmology", 3, {"optim": {"learning_rate": 0.001}}))
        self.assertIn("done: epochs, step 3, val_loss 2.25", repr(found[0]))
        page = found[0]._repr_html_()
        for part in ("<svg", "few_readers", "<td>val_loss</td><td>2.25</td><td>nan</td>"):
            self.assertIn(part, page)

    def test_folders_that_may_not_be_read_hide_nothing_else(self):
        with tempfile.TemporaryDirectory() as name:
            for run in ("recipe/mine", "recipe/theirs", "other/run"):
                make_run(Path(name) / run)
            (Path(name) / "recipe/mine/lock").touch()
            closed = [Path(name) / place for place in ("recipe/mine/lock", "recipe/theirs", "other")]
            for place in closed:
                place.chmod(0)
            Path(name).chmod(0o755)
            child = os.fork()
            if child == 0:
                code = 2
                try:
                    os.chdir(name)
                    if os.geteuid() == 0:  # who may read all
                        os.setuid(65534)
                    code = 0 if [(run.name, run.is_running) for run in headrace.runs(".")] == [("mine", False)] else 1
                finally:
                    os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            for place in closed:
                place.chmod(0o755)

    def test_damaged_files_hide_nothing_else(self):
        run = headrace.Run(make_run(self.root / "a"))
        (run.folder / "run.json").write_text("[")
        (run.folder / "summary.json").write_text('{"steps": 3, "recipe": "cosmology"}')
        self.assertEqual((run.recipe, run.step, run.findings), ("cosmology", 3, []))

    @unittest.skipIf(numpy is None, "there is no NumPy in this Python")
    def test_weights_are_those_of_a_complete_snapshot(self):
        run = headrace.Run(make_run(self.root / "a", None, (2, 3)))
        (run.folder / "snapshots/step-00000009").mkdir()  # not complete
        weights = run.weights(to="numpy")
        self.assertEqual({name: (value.dtype.name, value.tolist()) for name, value in weights.items()}, {"w": ("float32", [3.0, 0.5]), "b": ("float32", [1.0]), "n": ("int64", 3)})
        self.assertEqual(run.weights(2, to="numpy")["n"], 2)
        weights["w"][0] = 7
        self.assertEqual(run.weights(to="numpy")["w"][0], 3)
        try:
            import torch
        except ImportError:
            return
        found = run.weights()
        self.assertEqual((found["b"].dtype, found["b"].item(), found["w"].tolist(), found["n"].shape), (torch.bfloat16, 1.0, [3.0, 0.5], torch.Size([])))

    @unittest.skipIf(numpy is None, "there is no NumPy in this Python")
    def test_what_is_written_is_read_again(self):
        arrays = {"b": numpy.arange(3, dtype=numpy.uint8), "x": numpy.ones((2, 3), dtype=">f8"), "f": numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
                  "n": numpy.int64(7), "empty": numpy.zeros((0, 2), numpy.float32), "bool": numpy.array([True, False])}
        _safetensors.save(self.root / "a.safetensors", arrays, "here")
        found = _safetensors.load(self.root / "a.safetensors", "numpy")
        self.assertEqual(set(found), set(arrays))
        for name, array in arrays.items():
            self.assertEqual((found[name].shape, found[name].dtype), (array.shape, array.dtype.newbyteorder("=")))
            self.assertTrue(numpy.array_equal(found[name], array))
        try:
            import torch
        except ImportError:
            return
        halves = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
        _safetensors.save(self.root / "t.safetensors", {"h": halves, "v": torch.arange(6).reshape(2, 3).T}, "here")
        found = _safetensors.load(self.root / "t.safetensors", "torch")
        self.assertTrue(torch.equal(found["h"], halves) and torch.equal(found["v"], torch.arange(6).reshape(2, 3).T))

    @unittest.skipUnless(importlib.util.find_spec("torch"), "there is no torch in this Python")
    def test_an_input_of_bfloat16_is_written_as_float32(self):
        import torch
        with tempfile.TemporaryDirectory() as folder:
            written = numpy.load(_predict._written(Path(folder), torch.tensor([1.5, -0.25], dtype=torch.bfloat16), ""))
        self.assertEqual((written.dtype, written.tolist()), (numpy.float32, [1.5, -0.25]))

    def test_mistakes_say_what_where_and_next(self):
        run = headrace.Run(make_run(self.root / "a", DONE, (2, 3)))
        without = headrace.Run(make_run(self.root / "b"))
        short = headrace.Run(make_run(self.root / "c", DONE, (3,)))
        file = short.folder / "snapshots/step-00000003/model.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
        damaged = self.root / "damaged.safetensors"
        damaged.write_bytes(b"\xff" * 64)
        for write, kind, what, following in (
                (lambda: headrace.runs(self.root / "rusn"), FileNotFoundError, "there is no folder", "runs lie in"),
                (lambda: headrace.Run(self.root), FileNotFoundError, "is no run folder", "lists the runs below it"),
                (lambda: headrace.Run(self.root / "no"), FileNotFoundError, "there is no folder", "the current folder is"),
                (lambda: run.weights(7), FileNotFoundError, "there is no snapshot of step 7", "steps with one: 2, 3"),
                (lambda: run.weights(to="jax"), ValueError, "to is 'jax'", 'give "torch" or "numpy"'),
                (lambda: run.weights(average=True, to="numpy"), FileNotFoundError, "no averaged weights", "leave average out"),
                (lambda: without.weights(to="numpy"), FileNotFoundError, "the run has no snapshot yet", "it saves"),
                (lambda: short.weights(to="numpy"), OSError, "its manifest says", "the snapshot before"),
                (lambda: _safetensors.load(damaged, "numpy"), OSError, "is no safetensors file, or damaged", "another snapshot")):
            with self.subTest(what), self.assertRaises(kind) as caught:
                write()
            with self.subTest(what):
                self.assertIsInstance(caught.exception, headrace.Error)
                self.assertIn(what, caught.exception.what)
                self.assertTrue(caught.exception.where)
                self.assertIn(following, caught.exception.next)


class Train(unittest.TestCase):
    def test_a_missing_or_another_program_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            other = Path(folder) / "millrace"
            other.write_text("#!/bin/sh\necho router 0.23\n")
            empty = Path(folder) / "empty"
            empty.touch()
            for each in (other, empty):
                each.chmod(0o755)
            for environment, what in (({"PATH": folder + "/no"}, "the program millrace is not on the PATH"), ({"MILLRACE": folder + "/no"}, "which MILLRACE names"),
                                      ({"MILLRACE": str(other)}, "is not Millrace"), ({"MILLRACE": str(empty)}, "can't be started"), ({"MILLRACE": folder}, "can't be started")):
                with unittest.mock.patch.dict(os.environ, environment), self.assertRaises(headrace.FileError) as caught:
                    headrace.train("cosmology")
                self.assertIn(what, caught.exception.what)
                self.assertIn("MILLRACE", caught.exception.next)
                if isinstance(caught.exception, headrace.MissingError):
                    self.assertIn("millrace_train-*.whl", caught.exception.next)  # a file: no index has the wheel

    def test_a_start_that_is_interrupted_leaves_no_training(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "millrace"
            program.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo Millrace 1 && exit\necho $$ > {folder}/pid\nexec sleep 600\n")
            program.chmod(0o755)

            def interrupt(_):
                if os.path.exists(f"{folder}/pid") and Path(folder, "pid").read_text().endswith("\n"):
                    raise KeyboardInterrupt

            started, popen = [], subprocess.Popen
            with unittest.mock.patch.dict(os.environ, {"MILLRACE": str(program)}), unittest.mock.patch("time.sleep", interrupt), \
                    unittest.mock.patch("subprocess.Popen", lambda *words, **options: started.append(popen(*words, **options)) or started[-1]), self.assertRaises(KeyboardInterrupt):
                headrace.train("cosmology", run=Path(folder) / "run")
            self.assertEqual(started[-1].wait(), -signal.SIGTERM)

    def test_a_prediction_that_is_killed_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "millrace"
            program.write_text("#!/bin/sh\n[ $1 = --version ] && echo Millrace 1 && exit\nkill -9 $$\n")
            program.chmod(0o755)
            run = headrace.Run(make_run(Path(folder) / "a", DONE, (3,)))
            with unittest.mock.patch.dict(os.environ, {"MILLRACE": str(program)}), unittest.mock.patch.object(_predict, "_written", lambda folder, *_: folder), \
                    self.assertRaises(headrace.RunError) as caught:
                run.predict({})
        self.assertEqual(caught.exception.what, "the program was ended by SIGKILL")
        self.assertIn("a smaller batch_size", caught.exception.next)

    def test_a_program_that_is_killed_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "millrace"
            program.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo Millrace 1 && exit\nmkdir {folder}/run\necho step 1\necho > {folder}/run/log.jsonl\nkill -9 $$\n")
            program.chmod(0o755)
            with unittest.mock.patch.dict(os.environ, {"MILLRACE": str(program)}), self.assertRaises(headrace.RunError) as caught:
                headrace.train("cosmology", run=Path(folder) / "run").wait()
        self.assertEqual(caught.exception.what, "the program was ended by SIGKILL")
        self.assertIn("where memory ran out", caught.exception.next)

    def test_it_starts_stops_resumes_and_says_what_is_wrong(self):
        program = Path(os.environ.get("MILLRACE_BUILD", "build/release")) / "millrace"
        if not program.exists():
            self.skipTest("the program is not built")
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, {"MILLRACE": str(program.resolve())}):
            self.addCleanup(os.chdir, os.getcwd())
            os.chdir(folder)
            with self.assertRaises(headrace.Error) as caught:
                headrace.train("language_model", {"optim.lerning_rate": 1e-3}, preset="smoke")
            self.assertIn("lerning_rate", caught.exception.what)
            self.assertIn("--optim.learning_rate", caught.exception.next)
            words = {"values": {"train": {"max_steps": 100000}}, "preset": "smoke", "run": "runs/a"}
            run = headrace.train("language_model", **words)
            self.assertEqual(run.state, "running")
            self.assertRaises(headrace.MomentError, headrace.train, "language_model", **words)
            headrace.Run("runs/a").stop()
            self.assertEqual(run.wait().state, "stopped")
            run = headrace.train("language_model", {"train.max_steps": run.step + 1}, run="runs/a")
            self.assertEqual(run.wait().state, "done: max_steps")
            self.assertIn("val_loss", run.metrics)
            self.assertIn("done at step", run.output)
            if numpy is not None:
                self.predicts(run)

    def predicts(self, run):
        """Rows by rows and by name it is the same; torch gives torch; a mistake has the program's words."""
        tokens = numpy.arange(12).reshape(3, 4) % 5
        alone = run.predict(tokens)["logits"]
        self.assertEqual((alone.shape[:2], alone.dtype), ((3, 4), numpy.float32))
        self.assertTrue(numpy.isfinite(alone).all())
        named = run.predict({"tokens": tokens}, batch_size=1, values={"device": {"threads": 1}}, step=run.step)["logits"]
        self.assertTrue(numpy.allclose(alone, named, atol=1e-5))
        try:
            import torch
        except ImportError:
            torch = None
        if torch is not None:
            self.assertTrue(torch.equal(run.predict(torch.from_numpy(tokens))["logits"], torch.from_numpy(alone)))
        for write, what, following in ((lambda: run.predict({"token": tokens}), "token", "tokens"), (lambda: run.predict({}), "there are no inputs", "names them"),
                                       (lambda: run.predict("tokens.npy"), "the input is a str, no array of numbers", "array of rows"),
                                       (lambda: run.predict({"tokens": "a"}), "tokens is of type str", "an array of numbers"),
                                       (lambda: run.predict(tokens, step=7777777), "there is no", "which snapshots")):
            with self.subTest(what), self.assertRaises(headrace.Error) as caught:
                write()
            self.assertIn(what, caught.exception.what)
            self.assertTrue(caught.exception.where)
            self.assertIn(following, caught.exception.next)


class Follow(unittest.TestCase):
    def follow(self, module, *words):
        with unittest.mock.patch.dict(sys.modules, module), contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(follow.main(words), 0)
        return said.getvalue()

    def test_wandb_has_one_run_over_a_resume(self):
        with tempfile.TemporaryDirectory() as folder:
            run, fake = make_run(Path(folder) / "a"), FakeWandb()
            write_log(run, FIRST[:4])
            self.assertEqual(self.follow({"wandb": fake.module}, str(run), "--to", "wandb", "--once"), "2 steps sent to wandb\n")
            write_log(run, FIRST[:4] + RESUMED)
            self.assertEqual(self.follow({"wandb": fake.module}, str(run), "--to", "wandb", "--once"), "1 steps sent to wandb\n")
            (rows,) = fake.runs.values()
            self.assertEqual(rows, {1: {"epoch": 1.0, "loss": 3.0}, 2: {"epoch": 1.0, "val_loss": 2.5, "score": 0.1, "seconds": 9.0},
                                    3: {"epoch": 2.0, "loss": 2.0, "val_loss": 2.25, "score": 0.2}})
            self.assertEqual((fake.asked[0]["resume"], fake.asked[0]["project"], fake.asked[0]["config"]), ("allow", "cosmology", {"optim": {"learning_rate": 0.001}}))

    def test_mlflow_has_one_run_over_a_resume(self):
        with tempfile.TemporaryDirectory() as folder:
            run, fake = make_run(Path(folder) / "a", {"exit_reason": "signal", "steps": 2}, (2,)), FakeMlflow()
            module = {"mlflow": types.SimpleNamespace(MlflowClient=lambda: fake)}
            write_log(run, FIRST[:4])
            self.follow(module, str(run), "--to", "mlflow")
            self.assertEqual(fake.runs["x"]["status"], "KILLED")
            write_log(run, FIRST[:4] + RESUMED)
            (run / "summary.json").write_text(json.dumps(DONE))
            self.follow(module, str(run), "--to", "mlflow")
            self.assertEqual(fake.runs["x"]["metrics"]["val_loss"], {2: 2.5, 3: 2.25})
            self.assertEqual((fake.runs["x"]["status"], fake.runs["x"]["params"]), ("FINISHED", {"optim.learning_rate": 0.001}))

    def test_steps_that_a_resume_makes_again(self):
        with tempfile.TemporaryDirectory() as folder:
            run, wandb, fake = make_run(Path(folder) / "a"), FakeWandb(), FakeMlflow()
            module = {"mlflow": types.SimpleNamespace(MlflowClient=lambda: fake)}
            write_log(run, FIRST)
            self.assertEqual(self.follow({"wandb": wandb.module}, str(run), "--to", "wandb", "--once"), "3 steps sent to wandb\n")
            self.assertEqual(self.follow(module, str(run), "--to", "mlflow", "--once"), "3 steps sent to mlflow\n")
            self.assertEqual(fake.runs["x"]["metrics"]["loss"], {1: 3.0, 3: 9.0})
            write_log(run, FIRST + RESUMED)
            self.assertEqual(self.follow({"wandb": wandb.module}, str(run), "--to", "wandb", "--once"),
                             "0 steps sent to wandb. A resume made 1 steps again; wandb takes no step twice and keeps their first values\n")
            self.assertEqual(self.follow(module, str(run), "--to", "mlflow", "--once"), "1 steps sent to mlflow\n")
            self.assertEqual(fake.runs["x"]["metrics"]["loss"], {1: 3.0, 3: 2.0})
            self.assertEqual(self.follow(module, str(run), "--to", "mlflow", "--once"), "0 steps sent to mlflow\n")

    def test_what_a_running_run_logs_later_is_sent_by_the_next_once(self):
        with tempfile.TemporaryDirectory() as folder:
            run, fake = make_run(Path(folder) / "a", DONE), FakeMlflow()
            module = {"mlflow": types.SimpleNamespace(MlflowClient=lambda: fake)}
            (run / "lock").write_text("")
            with open(run / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                write_log(run, FIRST[:3])  # the validation of step 2 comes later
                self.assertEqual(self.follow(module, str(run), "--to", "mlflow", "--once"), "1 steps sent to mlflow\n")
                self.assertNotEqual(fake.runs["x"].get("status"), "FINISHED")
            write_log(run, FIRST[:4])
            self.follow(module, str(run), "--to", "mlflow", "--once")
            self.assertEqual((fake.runs["x"]["metrics"]["val_loss"], fake.runs["x"]["status"]), ({2: 2.5}, "FINISHED"))

    def test_a_running_run_is_followed_to_its_end(self):
        with tempfile.TemporaryDirectory() as folder:
            run, sent = make_run(Path(folder) / "a"), []
            write_log(run, FIRST[:3])
            (run / "lock").write_text("")
            tracker = types.SimpleNamespace(last_step=-1, last_part=None, log=lambda part, step, values: sent.append(step), finish=lambda state: sent.append(state))
            lock = open(run / "lock")
            fcntl.flock(lock, fcntl.LOCK_EX)

            def wait():  # between two looks the run goes on, and ends
                write_log(run, FIRST)
                lock.close()

            follow.follow(headrace.Run(run), tracker, wait=wait)
            self.assertEqual(sent, [1, 2, 3, "new"])

    def test_mistakes(self):
        for words, what in (([], "no run is named"), (["a"], "no tracker is named"), (["a", "--to", "tensorbord"], "there is no tracker tensorbord"), (["a", "--to"], "--to has no value"),
                            (["a", "b", "--to", "wandb"], "takes no b"), (["no", "--to", "wandb"], "there is no folder no")):
            with self.subTest(words), self.assertRaises(headrace.Error) as caught:
                follow.main(words)
            self.assertIn(what, caught.exception.what)
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(sys.modules, {"wandb": None}), self.assertRaises(ImportError) as caught:
            follow.main([str(make_run(Path(folder) / "a")), "--to", "wandb"])
        self.assertIn("pip install wandb", caught.exception.next)


if __name__ == "__main__":
    unittest.main()
