"""Tests of tools/run_tests.py: what counts as passed, failed and skipped, and the closing line."""
import contextlib
import io
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import run_tests
from run_tests import Tally, Test

REPORT = """<testsuites><testsuite name="Loader">
<testcase name="orders" status="run" result="completed" classname="Loader"/>
<testcase name="stops" status="run" classname="Loader"><failure message="no">no</failure></testcase>
<testcase name="pins" status="run" classname="Loader"><skipped message="file.cpp:3&#x0A;no GPU here&#x0A;"/></testcase>
<testcase name="DISABLED_x" status="notrun" classname="Loader"/>
<testcase name="Equal/2" status="run" classname="All/EachTable"/>
</testsuite></testsuites>"""


class Judging(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.report = Path(scratch.name) / "report.xml"

    def judge(self, status, skip_code=None):
        return run_tests.judge(Test("prog", [], [], "", {}, skip_code), status, self.report)

    def test_report_is_counted_case_by_case(self):
        self.report.write_text(REPORT)
        tally = self.judge(1)
        self.assertEqual(tally.line(), "2 passed, 1 failed, 1 skipped")
        self.assertEqual(tally.ran, {"Loader.orders", "Loader.stops", "Loader.pins", "EachTable.Equal"})
        self.assertEqual(tally.failed, ["prog: Loader.stops"])
        self.assertEqual(tally.skipped, [("prog: Loader.pins", "no GPU here")])

    def test_death_after_a_clean_report_is_a_failure(self):
        self.report.write_text('<testsuites><testcase name="a" classname="b" status="run"/></testsuites>')
        self.assertEqual(self.judge(-11).failed, ["prog: ended by signal 11 after its report"])

    def test_program_without_report_counts_once(self):
        self.assertEqual(self.judge(0).line(), "1 passed, 0 failed, 0 skipped")
        self.assertEqual(self.judge(-6).failed, ["prog: ended by signal 6"])
        self.assertEqual(self.judge(4, skip_code=4).line(), "0 passed, 0 failed, 1 skipped")
        self.assertEqual(self.judge(4).line(), "0 passed, 1 failed, 0 skipped")

    def test_program_that_skips_itself_says_why(self):
        test = Test("prog-avx2", [], [], "", {"MILLRACE_CPU": "avx2"}, 2)
        tally = run_tests.judge(test, 2, self.report, b"ConfigError  this CPU does not have it\n  where    MILLRACE_CPU\n")
        self.assertEqual(tally.skipped, [("prog-avx2", "ConfigError  this CPU does not have it")])

    def test_hang_is_a_failure(self):
        self.assertIn("still running", self.judge(None).failed[0])


class Dying(unittest.TestCase):
    """A GoogleTest program that ends without a report."""
    SAID = b"""[==========] Running 6 tests from 2 test suites.
[ RUN      ] Sum.adds
noise[       OK ] Sum.adds (3 ms)
[ RUN      ] Sum.carries
file.cpp:3: Failure
[  FAILED  ] Sum.carries (0 ms)
[ RUN      ] All/Each.Table/1
file.cpp:9: Skipped
no GPU here

[  SKIPPED ] All/Each.Table/1 (0 ms)
[ RUN      ] Sum.overruns
free(): invalid next size
"""
    CASES = ["Sum.adds", "Sum.carries", "All/Each.Table/1", "Sum.overruns", "Sum.ends", "All/Each.Table/2"]

    def judge(self, output, status=-6, cases=None):
        cases = self.CASES if cases is None else cases
        return run_tests.judge(Test("prog", [], [], "", {}), status, Path("no report"), output, lambda: cases)

    def test_every_case_counts_by_name(self):
        tally = self.judge(self.SAID)
        self.assertEqual(tally.line(), "1 passed, 4 failed, 1 skipped")
        self.assertEqual(tally.failed, ["prog: Sum.carries", "prog: Sum.overruns: ended by signal 6",
                                        "prog: Sum.ends: not run, ended by signal 6 in Sum.overruns",
                                        "prog: All/Each.Table/2: not run, ended by signal 6 in Sum.overruns"])
        self.assertEqual(tally.skipped, [("prog: All/Each.Table/1", "no GPU here")])
        self.assertEqual(tally.ran, {"Sum.adds", "Sum.carries", "Each.Table", "Sum.overruns"})

    def test_a_hang_and_an_exit_count_the_same(self):
        self.assertIn("prog: Sum.ends: not run, still running", self.judge(self.SAID, None).failed[2])
        self.assertIn("prog: Sum.overruns: exit status 7", self.judge(self.SAID, 7).failed)

    def test_an_end_between_two_cases_is_a_failure_of_the_program(self):
        tally = self.judge(self.SAID.partition(b"[ RUN      ] Sum.overruns")[0], -11)
        self.assertEqual(tally.line(), "1 passed, 5 failed, 1 skipped")
        self.assertIn("prog: ended by signal 11 between two cases", tally.failed)

    def test_without_a_list_the_death_is_told(self):
        self.assertEqual(self.judge(self.SAID, cases=[]).line(), "1 passed, 2 failed, 1 skipped")

    def test_a_program_that_dies_is_asked_for_its_cases(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "program"
            path.write_text("#!/bin/sh\n"
                            'if [ "$1" = --gtest_list_tests ]; then\n'
                            "  echo 'Running main() from main.cpp'; echo 'Sum.  # TypeParam = int'; echo '  adds'; echo '  carries/0  # GetParam() = 3'\n"
                            "  echo '  DISABLED_x'; echo 'Last.'; echo \"  $GTEST_FILTER\"; exit 0\nfi\n"
                            "echo '[==========] Running 3 tests'; echo '[ RUN      ] Sum.adds'; kill -ABRT $$\n")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
            with contextlib.redirect_stdout(io.StringIO()):
                tally = run_tests.run(Test("program", [str(path)], [], scratch, {}), True, ["--gtest_filter=one"])
        self.assertEqual(tally.failed, ["program: Sum.adds: ended by signal 6",
                                        "program: Sum.carries/0: not run, ended by signal 6 in Sum.adds",
                                        "program: Last.one: not run, ended by signal 6 in Sum.adds"])


class Choosing(unittest.TestCase):
    def choose(self, labels, **options):
        defaults = {"long": False, "label": None, "only": None}
        return run_tests.wanted(Test("millrace_data_test", [], labels, "", {}), SimpleNamespace(**{**defaults, **options}))

    def test_long_set_needs_to_be_asked_for(self):
        self.assertTrue(self.choose(["unit"]))
        self.assertFalse(self.choose(["long"]))
        self.assertTrue(self.choose(["long"], long=True))
        self.assertTrue(self.choose(["long"], label="long"))

    def test_label_and_name(self):
        self.assertFalse(self.choose(["unit"], label="ranks"))
        self.assertTrue(self.choose(["unit"], only="data"))
        self.assertFalse(self.choose(["unit"], only="config"))


class Scheduling(unittest.TestCase):
    def test_those_marked_have_all_cores_and_the_others_one_each(self):
        tests = [Test(name, [], labels, "", {}, alone=name.startswith("all")) for name, labels in
                 [("quick", ["unit"]), ("all_b", []), ("slow", ["slow"]), ("all_a", [])]]
        cores = {}
        order = []

        def run_one(test):
            cores[test.name] = len(os.sched_getaffinity(0))
            order.append(test.name)
            return Tally(passed=1)

        before = os.sched_getaffinity(0)
        total = run_tests.run_all(tests, run_one)
        self.assertEqual(total.passed, 4)
        self.assertEqual(order[:2], ["all_b", "all_a"])
        self.assertEqual(cores, {"all_a": len(before), "all_b": len(before), "quick": 1, "slow": 1})
        self.assertEqual(os.sched_getaffinity(0), before)


class Running(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def program(self, text):
        path = self.folder / "program"
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return Test("program", [str(path)], [], str(self.folder), {"GREETING": "hello"})

    def run_quietly(self, test, flags=()):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            tally = run_tests.run(test, False, flags)
        return tally, out.getvalue()

    def test_output_is_shown_only_on_failure(self):
        self.assertNotIn("secret", self.run_quietly(self.program("echo secret"))[1])
        self.assertIn("secret", self.run_quietly(self.program("echo secret; exit 3"))[1])

    def test_environment_and_gtest_flags_reach_the_program(self):
        test = self.program('echo "$GREETING $GTEST_FILTER"; exit 1')
        self.assertIn("hello Loader*", self.run_quietly(test, ["--gtest_filter=Loader*"])[1])

    def test_missing_program_is_a_failure(self):
        tally, out = self.run_quietly(Test("gone", [str(self.folder / "gone")], [], str(self.folder), {}))
        self.assertEqual(tally.line(), "0 passed, 1 failed, 0 skipped")
        self.assertIn("No such file", out)

    def test_python_file_reports_each_case(self):
        (self.folder / "sample_test.py").write_text(
            "import unittest\nclass T(unittest.TestCase):\n  def test_a(self): pass\n  def test_b(self): self.fail('x')\n"
            "  @unittest.skip('no disk')\n  def test_c(self): pass\n")
        test = Test("sample", [sys.executable, run_tests.__file__, "--unittest", str(self.folder / "sample_test.py")],
                    [], str(self.folder), {})
        tally, _ = self.run_quietly(test)
        self.assertEqual(tally.line(), "1 passed, 1 failed, 1 skipped")
        self.assertEqual(tally.skipped[0][1], "no disk")

    def test_file_that_cannot_be_imported_is_a_failure(self):
        (self.folder / "broken_test.py").write_text("import no_such_module\n")
        test = Test("broken", [sys.executable, run_tests.__file__, "--unittest", str(self.folder / "broken_test.py")],
                    [], str(self.folder), {})
        self.assertEqual(self.run_quietly(test)[0].passed, 0)
        self.assertTrue(self.run_quietly(test)[0].failed)


class Arguments(unittest.TestCase):
    def test_unknown_argument_is_refused(self):
        done = subprocess.run([sys.executable, run_tests.__file__, "--lonng"], capture_output=True, text=True, env=os.environ)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--lonng", done.stderr)

    def test_totals_add_up(self):
        total = Tally()
        total.add(Tally(passed=2, skipped=[("a", "b")]))
        total.add(Tally(passed=1, failed=["c"]))
        self.assertEqual(total.line(), "3 passed, 1 failed, 1 skipped")


if __name__ == "__main__":
    unittest.main()
