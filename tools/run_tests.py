#!/usr/bin/env python3
"""Runs the test programs that CMake registered, and the Python tests of tools/, and closes with one line of totals.

    tools/run_tests.py --build build/release [--long] [--label L] [--only REGEX] [--quiet] [--no-python] [--gtest_...]

A GoogleTest program reports each case through an XML file. A program that dies leaves no report: its output so far counts, and
the case in which it died and all later cases have failed, each by its name. Any other test counts as a single case, by its exit
status (its SKIP_RETURN_CODE means skipped). Skipped cases are listed with their reasons. The exit status is 1 when something failed or
nothing ran.

Programs run side by side, each on a core of its own: two that train on all cores at once wait for each other at every barrier.
Those that CMake marked RUN_SERIAL come first, one by one, on all cores.
"""
import argparse
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import ticks

ROOT = Path(__file__).resolve().parent.parent
HANG_SECONDS = 1800  # a test program that runs longer is stuck; it is stopped and counted as failed
LEFT_OUT = "long"    # the label that only --long includes
SAID = re.compile(r"\[( RUN      |       OK |  FAILED  |  SKIPPED )\] ([\w/]+\.[\w/]+)")  # lines that GoogleTest prints
PRINTING = threading.Lock()


@dataclass
class Tally:
    passed: int = 0
    failed: list = field(default_factory=list)   # names
    skipped: list = field(default_factory=list)  # (name, reason)
    ran: set = field(default_factory=set)        # GoogleTest's "Suite.Case" that ran or was skipped with a reason

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.ran |= other.ran

    def line(self):
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


@dataclass
class Test:
    name: str
    command: list
    labels: list
    folder: str
    environment: dict
    skip_code: int = None
    alone: bool = False


def registered_tests(build):
    """The tests of a build folder, from ctest's own list."""
    listing = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], check=True, capture_output=True, text=True)
    tests = []
    for entry in json.loads(listing.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        tests.append(Test(entry["name"], entry.get("command", []), properties.get("LABELS", []),
                          properties.get("WORKING_DIRECTORY", str(build)),
                          dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", [])),
                          properties.get("SKIP_RETURN_CODE"), bool(properties.get("RUN_SERIAL"))))
    return tests


def interpreter(test):
    """Tests named *_peer_test.py need the Python next to our LibTorch, once it is set up."""
    peer = ROOT / "tools/python-peer"
    ready = (ROOT / ".deps/venv/.millrace-peers").exists()
    return [str(peer)] if ready and test.name.endswith("_peer_test.py") else [sys.executable]


def python_tests(build):
    """tools/*_test.py, tests/field/*_test.py and python/tests/*_test.py: unittest files, each run in a separate process; MILLRACE_BUILD names the build folder."""
    return [Test(f"{folder}/{path.name}", [*interpreter(path), __file__, "--unittest", str(path)], ["unit"], str(ROOT),
                 {"MILLRACE_BUILD": str(build.resolve())})
            for folder in ("tools", "tests/field", "python/tests") for path in sorted((ROOT / folder).glob("*_test.py"))]


def wanted(test, options):
    if LEFT_OUT in test.labels and not (options.long or options.label == LEFT_OUT):
        return False
    if options.label and options.label not in test.labels:
        return False
    return not options.only or re.search(options.only, test.name) is not None


def read_report(program, path):
    """Counts of a GoogleTest XML report (tools/*_test.py write the same form)."""
    tally = Tally()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{program}: {case.get('classname')}.{case.get('name')}"
        skipped = case.find("skipped")
        if case.get("status") == "run":
            tally.ran.add(in_source(f"{case.get('classname', '')}.{case.get('name', '')}"))
        if case.find("failure") is not None:
            tally.failed.append(name)
        elif skipped is not None:
            reason = (skipped.get("message") or "").strip().splitlines()
            tally.skipped.append((name, reason[-1] if reason else "no reason given"))
        elif case.get("status") == "run":
            tally.passed += 1
    return tally


def in_source(case):
    """"Prefix/Suite.Case/0" of a parameterised test is "Suite.Case" in the source."""
    suite, _, name = case.partition(".")
    return f"{suite.split('/')[-1]}.{name.split('/')[0]}"


def listed_cases(command, folder, environment):
    """The cases that a GoogleTest program would run, in its order; empty if it does not list them."""
    try:
        listing = subprocess.run([*command, "--gtest_list_tests"], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=HANG_SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    cases, suite = [], ""
    for line in listing.decode(errors="replace").splitlines():
        word = line.partition("#")[0].strip()
        if not line.startswith(" ") and word.endswith("."):
            suite = word
        elif line.startswith("  ") and suite and word and "DISABLED_" not in suite + word:
            cases.append(suite + word)
    return cases


def judge_dead(test, status, output, list_cases):
    """Counts of a GoogleTest program that ended without a report: from its output, and from the cases it had not run."""
    tally, running, ended, before = Tally(), None, set(), ""
    for line in output.decode(errors="replace").splitlines():
        said = SAID.search(line)
        if said is None:
            before = line.strip() or before
            continue
        verdict, case = said.group(1).strip(), said.group(2)
        if verdict == "RUN":
            running = case
        elif case == running:  # the final list of failed cases repeats their names
            running = None
            ended.add(case)
            if verdict == "FAILED":
                tally.failed.append(f"{test.name}: {case}")
            elif verdict == "SKIPPED":
                tally.skipped.append((f"{test.name}: {case}", before or "no reason given"))
            else:
                tally.passed += 1
    end = describe(status)
    where = f"in {running}" if running else "between two cases"
    tally.failed.append(f"{test.name}: {running}: {end}" if running else f"{test.name}: {end} {where}")
    tally.ran = {in_source(case) for case in ended | ({running} if running else set())}
    tally.failed += [f"{test.name}: {case}: not run, {end} {where}"
                     for case in list_cases() if case not in ended and case != running]
    return tally


def judge(test, status, report, output=b"", list_cases=list):
    """The counts of a finished program. A program that dies, or fails without a failed case, is itself a failure."""
    if not report.exists():
        if status == 0:
            return Tally(passed=1)
        if test.skip_code is not None and status == test.skip_code:
            said = output.decode(errors="replace").strip().splitlines()
            return Tally(skipped=[(test.name, said[0] if said else f"exit status {status}")])
        if b"[==========] Running" in output:
            return judge_dead(test, status, output, list_cases)
        return Tally(failed=[f"{test.name}: {describe(status)}"])
    tally = read_report(test.name, report)
    if status != 0 and not tally.failed:
        tally.failed.append(f"{test.name}: {describe(status)} after its report")
    return tally


def describe(status):
    if status is None:
        return f"still running after {HANG_SECONDS} s, stopped"
    return f"ended by signal {-status}" if status < 0 else f"exit status {status}"


def run(test, quiet, gtest_flags):
    """Runs one program; prints its output only if something in it failed."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        environment = {**os.environ, **test.environment, "GTEST_OUTPUT": f"xml:{report}", "GTEST_COLOR": "no"}
        for flag in gtest_flags:  # --gtest_filter=X is GTEST_FILTER=X in the environment, which other programs ignore
            name, _, value = flag.removeprefix("--").partition("=")
            environment[name.upper()] = value or "1"
        began = time.monotonic()
        try:
            done = subprocess.run(test.command, cwd=test.folder, env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=HANG_SECONDS)
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            status, output = None, late.stdout or b""
        except OSError as error:
            status, output = 127, f"{test.command[0]}: {error.strerror}\n".encode()
        tally = judge(test, status, report, output, lambda: listed_cases(test.command, test.folder, environment))
    verdict = "FAIL" if tally.failed else "ok" if tally.passed else "skip" if tally.skipped else "none"
    with PRINTING:
        if tally.failed:
            sys.stdout.write(output.decode(errors="replace"))
        if tally.failed or not quiet:
            print(f"  {verdict:<5}{test.name:<40}{tally.line()}  ({time.monotonic() - began:.1f} s)", flush=True)
    return tally


def run_all(tests, run_one):
    """The tallies of all tests, unordered. Tests that need all cores run first, then one test per core, slow tests first."""
    total = Tally()
    for test in tests:
        if test.alone:
            total.add(run_one(test))
    cores = queue.SimpleQueue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)
    others = sorted((test for test in tests if not test.alone), key=lambda test: "slow" not in test.labels)
    # Programs inherit the cores of the thread that starts them.
    with ThreadPoolExecutor(cores.qsize(), initializer=lambda: os.sched_setaffinity(0, {cores.get()})) as pool:
        for tally in pool.map(run_one, others):
            total.add(tally)
    return total


def run_unittest(path):
    """Runs one unittest file and leaves a report in GoogleTest's form where GTEST_OUTPUT says."""
    sys.path.insert(0, str(Path(path).parent))
    suite = unittest.defaultTestLoader.loadTestsFromName(Path(path).stem)
    names = [case.id() for group in suite for case in (group if isinstance(group, unittest.TestSuite) else [group])]
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    bad = {case.id() for case, _ in result.failures + result.errors}
    bad |= {case.test_case.id() for case, _ in result.failures + result.errors if hasattr(case, "test_case")}
    skipped = {case.id(): reason for case, reason in result.skipped}
    root = ElementTree.Element("testsuites")
    for name in names:
        case = ElementTree.SubElement(root, "testcase", classname=name.rpartition(".")[0], name=name.rpartition(".")[2], status="run")
        if name in bad:
            ElementTree.SubElement(case, "failure")
        elif name in skipped:
            ElementTree.SubElement(case, "skipped", message=skipped[name])
    target = os.environ.get("GTEST_OUTPUT", "")
    if target.startswith("xml:"):
        ElementTree.ElementTree(root).write(target.removeprefix("xml:"))
    return 0 if result.wasSuccessful() else 1


def parse(arguments):
    parser = argparse.ArgumentParser(prog="run_tests.py", description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--long", action="store_true", help="also the long set")
    parser.add_argument("--label", help="only tests with this label")
    parser.add_argument("--only", metavar="REGEX", help="only test programs whose name matches")
    parser.add_argument("--quiet", action="store_true", help="one line per failing program, and the totals")
    parser.add_argument("--no-python", action="store_true", help="leave out tools/*_test.py, tests/field/*_test.py and python/tests/*_test.py")
    parser.add_argument("--unittest", metavar="FILE", help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args(arguments)
    unknown = [word for word in rest if not word.startswith("--gtest_")]
    if unknown:
        parser.error(f"unknown argument {unknown[0]} (GoogleTest's own start with --gtest_)")
    return options, rest


def main(arguments):
    options, gtest_flags = parse(arguments)
    if options.unittest:
        return run_unittest(options.unittest)
    tests = registered_tests(options.build) + ([] if options.no_python else python_tests(options.build))
    began = time.monotonic()
    total = run_all([test for test in tests if wanted(test, options)], lambda test: run(test, options.quiet, gtest_flags))
    if not (options.only or options.label or options.no_python or gtest_flags):  # all tests ran, and a tick may name only a test that ran
        total.failed += [f"{name}:{line}: {message}" for name, line, message in ticks.problems(ROOT, total.ran)]
    for name, reason in total.skipped:
        print(f"  skipped  {name}: {reason}")
    for name in total.failed:
        print(f"  FAILED   {name}")
    if not total.passed and not total.failed:
        print("Error  no test ran\n  where    the filters given\n  next     ./dev help lists them", file=sys.stderr)
    (options.build / "test-summary.txt").write_text(total.line() + "\n")
    print(f"{time.monotonic() - began:.0f} s in all\n{total.line()}")
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
