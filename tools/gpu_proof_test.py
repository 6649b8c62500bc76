"""Tests of tools/gpu-proof: parts that hang, crash, or write garbage stop nothing and are named; a table that is too long; a folder that is too
large; a wheel that is missing; a page that is not the script's. What the parts judge: gpu_proof_parts_test.py."""
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

from gpu_proof import carry, command, figures, page, processes, programs, rehearsal, report, runner
from gpu_proof.errors import ProofError
from gpu_proof.parts import ALL, chosen
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
    """The parts are modules that each test writes."""

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
        self.assertEqual(ALL[-1].name, "steps")
        self.assertGreater(runner.WHOLE_SECONDS - sum(part.limit for part in chosen([])[:-1] if not part.beside), 150)
        self.assertLess(runner.WHOLE_SECONDS, 540)
        self.assertEqual([(part.name, part.limit) for part in chosen(["steps"])], [("steps", runner.WHOLE_SECONDS)])
        self.assertEqual([part.name for part in ALL if part not in chosen([])], ["python", "sanitizer"])
        self.assertEqual([part.name for part in chosen(["sanitizer"])], ["sanitizer"])


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
        self.assertIn("the bad one: failed. 1 ms; because", text)
        self.assertIn("NOT GREEN", text.splitlines()[-1])

    def test_a_table_of_bad_rows_alone_is_short_enough_too(self):
        bad = [row("failed", f"bad {i}", why="y" * 500) for i in range(500)]
        text = report.table(HEADER, [result(part.name, bad) for part in ALL], 5)
        self.assertLessEqual(len(text), report.MOST_CHARACTERS)
        self.assertIn(f"and {500 * len(ALL) - 20:d} more", text)

    def test_a_cell_is_one_line_without_bars(self):
        self.assertEqual(report.cell("a | b\n\n c"), "a \\| b / c")
        self.assertEqual(report.cell("x" * 50 + "end", 10), "… xxxxxend")
        self.assertEqual(report.cell("stopped " + "x" * 500 + " end", 100), "stopped " + "x" * 17 + " … " + "x" * 68 + " end")

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

    def test_a_test_takes_its_libraries_along_but_for_those_of_torch_and_the_system(self):
        torch = self.folder / "site" / "torch" / "lib" / "libtorch_cpu.so"
        other = self.folder / "usr" / "libutf8proc.so.2.4.1"
        for library in (torch, other):
            library.parent.mkdir(parents=True)
            library.write_bytes(b"\x7fELF")
        said = (f"\tlinux-vdso.so.1 (0x0)\n\tlibtorch_cpu.so => {torch} (0x0)\n\tlibutf8proc.so.2 => {other} (0x0)\n"
                "\tlibstdc++.so.6 => /lib/libstdc++.so.6 (0x0)\n\tlibc.so.6 => /lib/libc.so.6 (0x0)\n\tlibgone.so => not found\n")
        ran = []
        with mock.patch.object(processes, "run", lambda words, limit: mock.Mock(out=said)), \
                mock.patch.object(carry, "strip", lambda source, target: ran.append((source, target))):
            carry.copy_libraries(Path("a_test"), self.folder / "lib")
        self.assertEqual(ran, [(other.resolve(), self.folder / "lib" / "libutf8proc.so.2")])

    def test_headrace_takes_its_libraries_along(self):
        library = self.folder / "libheadrace.so"
        library.touch()
        said = f"\tlibspng.so.0 => {library} (0x0)\n"
        ran = []
        with mock.patch.object(processes, "run", lambda words, limit: mock.Mock(out=said)), \
                mock.patch.object(carry, "strip", lambda source, target: ran.append(target)):
            carry.copy_headrace(self.wish(build=self.folder), self.folder, self.fail)
        self.assertEqual(ran, [self.folder / "python/lib/libheadrace.so", self.folder / "python/lib/libspng.so.0"])

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
        self.assertIn("- Planted, other: differs. by a lot", said)


class Surrounding(Folder):
    def test_a_python_without_torch_is_refused(self):
        with self.assertRaisesRegex(ProofError, "has no torch"):
            rehearsal.surrounding(sys.executable, self.folder)


if __name__ == "__main__":
    unittest.main()
