"""Tests of tools/gpu-proof: parts that hang, crash, or write garbage stop nothing and are named; a table that is too long; references that
differ; a folder that is too large; a wheel that is missing; a page that is not the script's."""
import contextlib
import io
import json
import os
import sys
import tarfile
import tempfile
import textwrap
import unittest
import zipfile
from pathlib import Path
from unittest import mock

from gpu_proof import benches, carry, command, figures, nvml, page, processes, programs, rehearsal, report, runner, trace, training
from gpu_proof.errors import ProofError
from gpu_proof.parts import ALL, chosen
from gpu_proof.parts import feed, life, parity, sanitizer, steps
from gpu_proof.parts import tests as tests_part
from gpu_proof.proof import Failure, Proof
from gpu_proof.runner import Part, Runner

ROOT = Path(__file__).resolve().parent.parent
HEADER = {"day": "2026-01-02", "device": "cuda", "card": "Card A", "driver": "580.1", "card_memory": "80 GiB", "cpu": "CPU", "cores": 16,
          "python": "3.12", "torch": "2.11.0", "millrace": "0.1.0", "commit": "abc", "isolation": ""}


class Folder(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def proof(self, **setup):
        keep = {"device": "cpu", "small": True, "quick": False, "recipes": [], "folder": str(self.folder), "scratch": str(self.folder),
                "keep": str(self.folder / "keep"), "python": sys.executable, "program": "/bin/true", "environment": {}, "limit": 60, "tests": [],
                "library_path": ""}
        self.rows = io.StringIO()
        return Proof({**keep, **setup}, self.rows)

    def said(self):
        return [json.loads(line) for line in self.rows.getvalue().splitlines()]


def row(verdict="ok", what="a", figure="1 ms", why=""):
    return {"what": what, "figure": figure, "verdict": verdict, "why": why}


def result(name, rows, title=None):
    return {"name": name, "title": title or next((part.title for part in ALL if part.name == name), name), "limit": 10, "seconds": 1.0, "rows": rows}


class Running(Folder):
    """Parts are modules that each test writes."""

    def run_parts(self, bodies, limit=60, whole=500):
        modules = self.folder / "modules"
        modules.mkdir()
        parts = []
        for name, body in bodies.items():
            (modules / f"planted_{name}.py").write_text("import os, subprocess, sys, time\ndef run(proof):\n" + textwrap.indent(textwrap.dedent(body), "    "))
            parts.append(Part(name, limit if not name.startswith("hangs") else 8, name, module=f"planted_{name}",
                              beside=("first", "next") if name.startswith("beside") else ()))
        setup = {"scratch": str(self.folder), "python": sys.executable, "device": "cpu", "small": True, "quick": True, "recipes": [],
                 "folder": str(self.folder), "keep": str(self.folder / "keep"), "program": "", "environment": {}}
        with mock.patch.dict(os.environ, PYTHONPATH=str(modules)):
            results = Runner(setup, HEADER, self.folder / "out", lambda text: None, whole).run(parts)
        self.assertEqual(json.loads((self.folder / "out/result.json").read_text())["parts"], results)
        return {entry["name"]: entry["rows"] for entry in results}, results

    def test_parts_run_in_order_and_their_rows_are_kept(self):
        rows, results = self.run_parts({"first": "proof.row('x', '1 ms', 'ok', raw=[1])", "second": "proof.skipped('y')"})
        self.assertEqual(rows["first"], [{**row(what="x"), "data": {"raw": [1]}}])
        self.assertEqual(rows["second"][0]["verdict"], "skipped")
        self.assertTrue(runner.is_good(results))

    def test_nothing_but_skipped_rows_is_not_green(self):
        _, results = self.run_parts({"first": "proof.skipped('y')"})
        self.assertFalse(runner.is_good(results))

    def test_a_part_that_hangs_is_ended_with_its_children_and_the_others_go_on(self):
        rows, results = self.run_parts({"hangs": """
            child = subprocess.Popen([sys.executable, '-c', 'import os, time; os.setsid(); time.sleep(1000)'])
            proof.row('child', str(child.pid))
            time.sleep(1000)""", "after": "proof.row('x', '', 'ok')"})
        self.assertEqual([entry["verdict"] for entry in rows["hangs"]], ["measured", "failed"])
        self.assertIn("stopped at its limit of 8 s", rows["hangs"][1]["why"])
        self.assertNotIn(int(rows["hangs"][0]["figure"]), processes.parents())
        self.assertEqual(rows["after"][0]["verdict"], "ok")
        self.assertFalse(runner.is_good(results))

    def test_children_that_a_part_leaves_behind_are_ended(self):
        rows, _ = self.run_parts({"leaves": """
            child = subprocess.Popen([sys.executable, '-c', 'import os, time; os.setsid(); time.sleep(1000)'])
            proof.row('child', str(child.pid), 'ok')"""})
        self.assertNotIn(int(rows["leaves"][0]["figure"]), processes.parents())

    def test_a_part_that_crashes_is_named_with_its_last_lines(self):
        rows, results = self.run_parts({"raises": "raise ValueError('planted fault')", "dies": "os.kill(os.getpid(), 11)", "after": "proof.row('x', '', 'ok')"})
        self.assertIn("planted fault", rows["raises"][0]["why"])
        self.assertIn("signal 11", rows["dies"][0]["why"])
        self.assertEqual(rows["after"][0]["verdict"], "ok")
        self.assertIn("planted fault", report.table(HEADER, results, 1))
        self.assertFalse(runner.is_good(results))

    def test_garbage_instead_of_rows_is_a_failure(self):
        rows, _ = self.run_parts({"garbage": "proof.rows.write('no json\\n{\"verdict\": \"ok\"}\\n\\x00\\xff\\n'); proof.row('x', '', 'ok')",
                                  "silent": "pass", "printing": "print('{}' * 100); proof.row('x', '', 'ok')"})
        self.assertEqual([entry["verdict"] for entry in rows["garbage"]], ["ok", "failed"])
        self.assertIn("3 lines are no rows", rows["garbage"][1]["why"])
        self.assertIn("said nothing", rows["silent"][0]["why"])
        self.assertEqual(rows["printing"], [row(what="x", figure="")])

    def test_what_runs_beside_a_part_is_waited_for(self):
        rows, results = self.run_parts({"beside": "time.sleep(0.5); proof.row('y', '', 'ok')", "first": "proof.row('x', '', 'ok')",
                                        "next": "proof.row('z', '', 'ok')", "last": "proof.row('w', '', 'ok')"})
        self.assertEqual(rows["beside"], [row(what="y", figure="")])
        self.assertEqual([entry["name"] for entry in results], ["first", "next", "beside", "last"])
        self.assertTrue(runner.is_good(results))

    def test_a_part_whose_companions_are_not_wanted_runs_alone(self):
        rows, _ = self.run_parts({"beside": "proof.row('y', '', 'ok')", "last": "proof.row('w', '', 'ok')"})
        self.assertEqual(rows["beside"], [row(what="y", figure="")])

    def test_no_part_goes_on_beyond_the_whole_time(self):
        rows, _ = self.run_parts({"first": "time.sleep(1000)", "second": "time.sleep(1000)"}, whole=1)
        self.assertIn("stopped", rows["first"][0]["why"])
        self.assertIn("stopped", rows["second"][0]["why"])

    def test_limits_fit_a_call_of_nine_minutes(self):
        self.assertLessEqual(sum(part.limit for part in ALL if not part.beside), runner.WHOLE_SECONDS)
        self.assertLess(runner.WHOLE_SECONDS, 540)
        self.assertEqual([(part.name, part.limit) for part in chosen(["steps"])], [("steps", runner.WHOLE_SECONDS)])


class Rows(Folder):
    def test_a_failure_is_a_row_and_what_comes_after_goes_on(self):
        proof = self.proof()
        with proof.trying("thing"):
            proof.run(["/bin/sh", "-c", "echo told >&2; exit 3"])
        with proof.trying("file"):
            (self.folder / "absent").read_text()
        proof.row("after", "", "ok")
        said = self.said()
        self.assertEqual([entry["verdict"] for entry in said], ["failed", "failed", "ok"])
        self.assertIn("status 3: told", said[0]["why"])

    def test_a_program_that_does_not_end_is_ended(self):
        with self.assertRaisesRegex(Failure, "sh was stopped after"):
            self.proof().run(["/bin/sh", "-c", "sleep 1000 & sleep 1000"], 0.5)

    def test_a_verdict_that_is_no_verdict_is_refused(self):
        with self.assertRaises(AssertionError):
            self.proof().row("x", "", "fine")


class Table(unittest.TestCase):
    def test_what_matters_most_is_last_and_short_tables_are_whole(self):
        text = report.table(HEADER, [result("steps", [row(what="step")]), result("loads", [row(what="load")])], 5)
        self.assertLess(text.index("| load |"), text.index("| step |"))
        self.assertTrue(text.endswith("2 parts, 5 s, 2 rows: 2 ok. green\n"))

    def test_a_table_that_is_too_long_keeps_what_is_bad(self):
        many = [row(what=f"row {i}", figure="x" * 100) for i in range(200)]
        text = report.table(HEADER, [result("loads", many), result("steps", many + [row("failed", "the bad one", why="because")])], 5)
        self.assertLessEqual(len(text), report.MOST_CHARACTERS)
        self.assertIn("more rows are in result.json", text)
        self.assertIn("the bad one: failed. 1 ms because", text)
        self.assertIn("NOT GREEN", text.splitlines()[-1])

    def test_a_table_of_bad_rows_alone_is_short_enough_too(self):
        bad = [row("failed", f"bad {i}", why="y" * 500) for i in range(500)]
        text = report.table(HEADER, [result(part.name, bad) for part in ALL], 5)
        self.assertLessEqual(len(text), report.MOST_CHARACTERS)
        self.assertIn("and 4980 more", text)

    def test_a_cell_is_one_line_without_bars(self):
        self.assertEqual(report.cell("a | b\n\n c"), "a \\| b / c")
        self.assertEqual(report.cell("x" * 50 + "end", 10), "… xxxxxend")

    def test_figures(self):
        self.assertEqual([figures.short(value) for value in (0.00012345, 0.5, 99.96, 1234.5, 0)], ["0.000123", "0.5", "100", "1234", "0"])
        self.assertEqual(figures.text([3, 1, 2], "ms"), "2 ms (1..3)")


class Page(Folder):
    def write_result(self, name, **changes):
        file = self.folder / name
        file.write_text(json.dumps({**HEADER, "seconds": 9, "parts": [result("parity", [row(what="alike", figure="1e-5")])], **changes}))
        return file

    def write(self, *files):
        page.write(self.folder / "gpu.md", files, lambda text: None)
        return (self.folder / "gpu.md").read_text()

    def test_the_page_in_the_tree_is_the_scripts_own(self):
        text = (ROOT / "docs/gpu.md").read_text()
        self.assertEqual(text, page.render(page.read_page(text)))

    def test_what_was_not_measured_says_so(self):
        self.assertEqual(self.write().count("\nnot yet\n"), len(ALL))

    def test_results_are_added_by_card_and_day(self):
        text = self.write(self.write_result("a.json"))
        self.assertIn("### Card A, driver 580.1, 16 cores, torch 2.11.0, 2026-01-02, Millrace 0.1.0 (abc)", text)
        self.assertEqual(text.count("not yet\n"), len(ALL) - 1)
        text = self.write(self.write_result("b.json", day="2026-02-03"), self.write_result("c.json", commit="new"))
        self.assertEqual(text.count("### Card A"), 2)
        self.assertIn("(new)", text)
        self.assertNotIn("(abc)", text.partition("2026-02-03")[0])
        self.assertEqual(text, self.write())

    def test_a_rehearsal_proves_nothing_on_a_gpu(self):
        with self.assertRaisesRegex(ProofError, "of a rehearsal"):
            self.write(self.write_result("a.json", device="cpu", card=""))
        with self.assertRaisesRegex(ProofError, "no result of gpu-proof"):
            (self.folder / "x.json").write_text("garbage")
            self.write(self.folder / "x.json")


class Carrying(Folder):
    def wish(self, **changes):
        return carry.Wish(**{"root": self.folder, "folder": self.folder / "carried", "build": self.folder, "wheel": None, "program": None,
                             "python": sys.executable, "recipes": [], **changes})

    def test_a_missing_wheel_is_an_error_that_says_how_to_make_one(self):
        with self.assertRaisesRegex(ProofError, r"(?s)no wheel to carry.*\./dev wheel"):
            carry.make(self.wish(), lambda text: None)
        self.assertFalse((self.folder / "carried").exists())

    def test_the_newest_wheel_is_taken(self):
        (self.folder / "dist").mkdir()
        for age, name in ((5, "millrace_train-2-py3.whl"), (9, "millrace_train-1-py3.whl")):
            (self.folder / "dist" / name).touch()
            os.utime(self.folder / "dist" / name, (age, age))
        self.assertEqual(carry.wheel_of(self.wish()).name, "millrace_train-1-py3.whl")

    def test_a_folder_of_others_is_left_alone(self):
        (self.folder / "mine.txt").write_text("mine")
        with self.assertRaisesRegex(ProofError, "holds something else"):
            carry.make(self.wish(folder=self.folder), lambda text: None)

    def test_a_folder_that_is_too_large_names_its_largest_files(self):
        (self.folder / "large").write_bytes(bytes(3_000_000))
        (self.folder / "small").write_bytes(bytes(10))
        self.assertEqual(carry.refuse_too_large(self.folder, 4_000_000), 3_000_010)
        with self.assertRaisesRegex(ProofError, r"3\.0 MB, and 2 MB are the most.*\n.*large 3\.0 MB, small"):
            carry.refuse_too_large(self.folder, 2_000_000)

    def test_scripts_go_along_with_what_they_import(self):
        carry.copy_scripts(ROOT, self.folder)
        for name in ("tools/gpu-proof", "tools/gpu_proof/parts/parity.py", "bench/step/compare.py", "tests/cosmology/unet.py", "tests/neural_response/twin.py"):
            self.assertTrue((self.folder / name).exists(), name)

    def test_a_wheel_is_unpacked_with_its_programs(self):
        wheel = self.folder / "wheel" / "millrace_train-1-py3-none-any.whl"
        wheel.parent.mkdir()
        with zipfile.ZipFile(wheel, "w") as archive:
            entry = zipfile.ZipInfo("millrace_train/__main__.py")
            archive.writestr(entry, "import sys\nprint('started', *sys.argv[1:])\n")
            program = zipfile.ZipInfo("millrace_train/bin/millrace")
            program.external_attr = 0o755 << 16
            archive.writestr(program, b"\x7fELF")
        made = programs.prepare(self.folder, self.folder / "scratch", sys.executable, self.folder)
        self.assertEqual(processes.run([made.millrace, "a b", "c"], 60).out, "started a b c\n")
        self.assertEqual([path.name for path in programs.elf_files(made)], ["millrace"])
        self.assertTrue(os.access(made.folder / "millrace_train/bin/millrace", os.X_OK))

    def test_without_a_folder_or_a_gpu_the_error_says_what_to_do(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(command.main(["--folder", str(self.folder)]), 2)
            (self.folder / programs.MANIFEST).write_text("{}")
            with mock.patch.object(programs, "torch_facts", return_value={"card": ""}):
                self.assertEqual(command.main(["--folder", str(self.folder)]), 2)
            self.assertEqual(command.main(["--parts", "wrong"]), 2)
        self.assertIn("tools/gpu-proof --carry", said.getvalue())
        self.assertIn("gpu-proof --rehearse", said.getvalue())
        self.assertIn("there is no 'wrong'", said.getvalue())


class Whole(Folder):
    """The command from a carried folder to its table, with planted parts."""

    def prove(self, body):
        (self.folder / "planted_part.py").write_text("def run(proof):\n    " + body)
        (self.folder / programs.MANIFEST).write_text(json.dumps({"millrace": "0.1.0", "commit": "abc"}))
        facts = {"card": "", "site": str(self.folder), "python": "3.11", "torch": "2.11.0"}
        (self.folder / "program").mkdir()
        (self.folder / "program" / "millrace").touch()
        said = io.StringIO()
        with mock.patch.object(programs, "torch_facts", return_value=facts), mock.patch.dict(os.environ, PYTHONPATH=str(self.folder)), \
                mock.patch.object(command, "chosen", return_value=[Part("planted", 100, "Planted", module="planted_part")]), contextlib.redirect_stdout(said):
            status = command.main(["--inside", "nothing is hidden", "--folder", str(self.folder), "--out", str(self.folder / "out")])
        self.assertEqual({file.name for file in (self.folder / "out").iterdir()}, {"result.json", "table.md", "files.tar"})
        self.assertTrue(said.getvalue().endswith((self.folder / "out/table.md").read_text()))
        return status, said.getvalue()

    def test_a_good_proof_ends_with_0(self):
        status, said = self.prove("print('told'); proof.row('thing', '1 ms', 'ok')")
        self.assertEqual(status, 0)
        self.assertIn("| thing | 1 ms | ok |", said)
        with tarfile.open(self.folder / "out/files.tar") as tar:
            self.assertEqual(tar.extractfile("planted.log").read(), b"told\n")

    def test_a_bad_one_ends_with_1(self):
        status, said = self.prove("proof.row('thing', '', 'ok'); proof.row('other', '', 'differs', 'by a lot')")
        self.assertEqual(status, 1)
        self.assertIn("- Planted, other: differs.  by a lot", said)


class Judging(Folder):
    def test_losses_that_differ_are_told_apart(self):
        self.assertLess(training.distance_of([1.00001, 2], [1, 2]), 1e-4)
        self.assertGreater(training.distance_of([1.01, 2], [1, 2]), 1e-3)
        self.assertAlmostEqual(training.distance_of([0.1, 2], [0.0, 2]), 0.1)  # a loss near zero is held against the usual one
        with self.assertRaises(ValueError):
            training.distance_of([1], [1, 2])
        self.assertGreater(training.loss_distance({"a": [1], "b": [2]}, {"a": [1], "b": [1]}), 0.9)
        with self.assertRaisesRegex(ValueError, "objectives"):
            training.loss_distance({"a": [1]}, {"b": [1]})

    def test_planted_losses_are_differs(self):
        """A program whose losses are others than the reference's, and one that computed in another format."""
        program = self.folder / "program"
        program.write_text(f"""#!{sys.executable}
import json, pathlib, sys
run = pathlib.Path(sys.argv[sys.argv.index("--run") + 1])
run.mkdir(parents=True)
losses = [1.1, 0.9] if any("bf16" in word for word in sys.argv) else [1.0, 0.9]
(run / "log.jsonl").write_text("".join(json.dumps({{"kind": "step", "loss": loss}}) + "\\n" for loss in losses))
(run / "plan.json").write_text(json.dumps([{{"option": "precision.dtype", "value": next(word.split("=")[1] for word in sys.argv if "dtype" in word).replace("fp16", "fp32")}}]))
""")
        program.chmod(0o755)
        proof = self.proof(program=str(program))
        for form in (parity.FORMATS[0], *parity.FORMATS[2:]):
            parity.losses(proof, "language_model", form, {"losses": {"loss": [1.0, 0.9]}, "scatter": 1e-6}, True)
        self.assertEqual([entry["verdict"] for entry in self.said()], ["ok", "differs", "left out"])
        self.assertIn("computed in fp32", self.said()[2]["why"])

    def test_a_trace_of_a_gpu(self):
        events = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "ts": 1000 * i, "dur": 1000} for i in (1, 2)]
        events += [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1000, "dur": 600}, {"ph": "X", "cat": "kernel", "name": "k", "ts": 1500, "dur": 500},
                   {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy", "ts": 2500, "dur": 500}, {"ph": "M", "name": "process_name"},
                   {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "ts": 2400, "dur": 600},
                   {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1000, "dur": 10}]
        file = self.folder / "trace.json"
        file.write_text(json.dumps({"traceEvents": events}))
        self.assertEqual(trace.read(file), {"steps": 2, "step_ms": 1.0, "operations": 0.5, "kernels": 1.0, "copies": 0.5, "waits": 0.5, "wait_ms": 0.3, "idle": 0.25})

    def test_a_trace_without_steps_is_refused(self):
        (self.folder / "trace.json").write_text('{"traceEvents": []}')
        with self.assertRaisesRegex(ValueError, "no steps"):
            trace.read(self.folder / "trace.json")


RUN = """#!{python}
# A program that trains nothing: it writes the folder of a run as the words ask.
import json, os, pathlib, signal, sys
words = dict(word.removeprefix("--").split("=", 1) for word in sys.argv if word.startswith("--") and "=" in word)
run = pathlib.Path(sys.argv[sys.argv.index("--run") + 1])
run.mkdir(parents=True, exist_ok=True)
dtype = words.get("precision.dtype", "fp32")
lines = [dict(kind="step", loss=loss, accounts=dict(data_wait=1.0, copy=2.0, forward=1.0)) for loss in (1.0, 0.9)]
lines += [dict(kind="memory", text="cut in two")] * (words.get("data.batch_size") == "2500")
lines += [dict(kind="snapshot", blocked_ms=2.0)]
(run / "log.jsonl").write_text("".join(json.dumps(line) + "\\n" for line in lines))
(run / "plan.json").write_text(json.dumps([dict(option="precision.dtype", value=dtype)]))
(run / "summary.json").write_text(json.dumps(dict(skipped_steps=1, steps=2, samples_per_s=3.0, loss=dict(first=1.0, last=0.9), exit_reason="max_steps",
                                                  step_ms=dict(p50=1.0), state_sha256="a")))
(run / "snapshots/step-00000002").mkdir(parents=True, exist_ok=True)
(run / "snapshots/step-00000002/model.safetensors").write_bytes(bytes(8))
"""


class OnGpu(Folder):
    """What is done on a GPU alone, with programs that stand in for it: a typing mistake is found here."""

    def setUp(self):
        super().setUp()
        self.program = self.script("millrace", RUN.format(python=sys.executable))

    def script(self, name, text):
        file = self.folder / name
        file.write_text(text)
        file.chmod(0o755)
        return str(file)

    def gpu(self, **setup):
        return self.proof(**{"device": "cuda", "small": False, "program": self.program, **setup})

    def verdicts(self):
        return [(entry["what"], entry["verdict"]) for entry in self.said()]

    def test_all_formats_are_held_against_the_reference(self):
        proof = self.gpu()
        expected = {"losses": {"loss": [1.0, 0.9]}, "losses_without_dropout": {"loss": [1.0, 0.9]}, "scatter": 0.0}
        with mock.patch.object(parity, "gradients", lambda proof, recipe, form: proof.row(f"{recipe} {form.name}: gradients", "", "ok")):
            for job in parity.jobs_of(proof, "language_model", expected):
                job()
        self.assertEqual([verdict for _, verdict in self.verdicts()], ["ok"] * 9)
        self.assertEqual({what.split(":")[0] for what, _ in self.verdicts()}, {f"language_model {form.name}" for form in parity.FORMATS})

    def test_another_program_takes_the_memory_up_while_a_run_outgrows_it(self):
        holder = self.script("holder", "#!/bin/sh\necho held\ncat > /dev/null\n")
        life.outgrows(self.gpu(python=holder))
        self.assertEqual(self.verdicts(), [("out of memory and recovered", "ok")])
        life.outgrows(self.gpu(python="/bin/false"))
        self.assertIn("could not be taken up", self.said()[0]["why"])

    def test_readers_and_how_busy_the_gpu_is(self):
        class Library:
            nvmlInit_v2 = nvmlDeviceGetHandleByIndex_v2 = staticmethod(lambda *_: 0)

            @staticmethod
            def nvmlDeviceGetUtilizationRates(device, found):
                found._obj.gpu = 80
                return 0

        with mock.patch.object(nvml.ctypes, "CDLL", lambda name: Library), mock.patch.object(nvml, "INTERVAL", 0.001):
            feed.run(self.gpu())
        self.assertEqual([verdict for _, verdict in self.verdicts()], ["measured"] * 9)
        self.assertIn("wait for data 25.0 %, copy 50.0 %", self.said()[0]["figure"])
        self.assertIn("80 %", self.said()[1]["figure"])

    def test_without_nvml_the_row_says_so(self):
        with mock.patch.object(nvml.ctypes, "CDLL", side_effect=OSError):
            feed.readers(self.gpu(), 1, 2)
        self.assertEqual(self.said()[1]["why"], "no NVML (libnvidia-ml.so.1)")

    def test_what_the_sanitizer_finds_is_a_failure(self):
        for errors, verdict in ((0, "ok"), (3, "failed")):
            tool = self.script("compute-sanitizer", f"#!/bin/sh\necho '========= ERROR SUMMARY: {errors} errors'\n")
            with mock.patch.object(sanitizer, "PLACES", (tool,)):
                sanitizer.run(self.gpu(tests=["/bin/true"]))
            self.assertEqual([found for _, found in self.verdicts()], [verdict] * 2)
        with mock.patch.object(sanitizer, "PLACES", ()):
            sanitizer.run(self.gpu())
        self.assertEqual(self.verdicts(), [("compute-sanitizer", "left out")])

    def test_comparisons_are_called_until_the_time_is_over(self):
        compare = """import json, sys
words = sys.argv
dtypes = words[words.index("--dtypes") + 1:words.index("--rounds")]
assert words[words.index("--device") + 1] == "cuda"
row = lambda dtype: dict(dtype=dtype, chosen="ours", step_ms=dict(ours=1.0, eager=2.0, compile_x=1.5), fastest="compile_x", ratio=[0.5, 0.4, 0.6],
                         peak_bytes=dict(ours=1e6, eager=2e6), left_out={} if "--compile" in words else dict(graphs_x="no"))
json.dump(dict(results=[row(dtype) for dtype in dtypes if dtype != "fp32"]), open(words[words.index("--json") + 1], "w"))
"""
        (self.folder / "bench/step").mkdir(parents=True)
        for bench in benches.BENCHES.values():
            (self.folder / "bench/step" / bench.script).write_text(compare)
        steps.run(self.gpu(recipes=["cosmology"], limit=1000))
        said = self.said()
        self.assertEqual(said[0]["figure"], "ours 1.00 ms, compile_x 1.50, eager 2.00; ours / compile_x 0.500 (0.400..0.600); peak 1 and at least 2 MB")
        self.assertEqual([entry["verdict"] for entry in said], ["measured", "measured", "failed", "measured"])  # fp32 is missing
        steps.run(self.gpu(recipes=["cosmology"], limit=1))
        self.assertEqual({entry["why"] for entry in self.said()}, {"no time was left"})


class TestReports(Folder):
    def planted(self, device, case, status=0):
        program = self.folder / "planted_test"
        program.write_text(f"""#!{sys.executable}
import os, sys
open(os.environ["GTEST_OUTPUT"].removeprefix("xml:"), "w").write('<a><testcase classname="S" name="one" status="run"/>{case}</a>')
sys.exit({status})
""")
        program.chmod(0o755)
        tests_part.run(self.proof(device=device, tests=[str(program)]))
        return [entry["verdict"] for entry in self.said()]

    def test_cases_are_told_apart(self):
        self.assertEqual(self.planted("cpu", '<testcase classname="S" name="two" status="run"><failure message="x"/></testcase>', 1), ["ok", "failed"])
        self.assertEqual(self.planted("cpu", "", 3), ["ok", "failed"])

    def test_a_test_that_finds_no_plugin_on_a_gpu_has_failed(self):
        skipped = '<testcase classname="S" name="two" status="run"><skipped message="the CUDA plugin does not load"/></testcase>'
        self.assertEqual(self.planted("cpu", skipped), ["ok", "skipped"])
        self.assertEqual(self.planted("cuda", skipped), ["ok", "failed"])


class Surrounding(Folder):
    def test_a_python_without_torch_is_refused(self):
        with self.assertRaisesRegex(ProofError, "has no torch"):
            rehearsal.surrounding(sys.executable, self.folder)


if __name__ == "__main__":
    unittest.main()
