"""The test programs under the label gpu, case by case as their reports say."""
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from .. import processes

BUILT_IN = re.compile(r"/\S*/(?=(?:src|tests|recipes)/)")  # where the sources lay when the test was built
FILTER = "-*WithoutAGpu*"  # those are of the machine that has the sources


def cases(report):
    """(name, "ok" | "failed" | "skipped", reason) of each case of a GoogleTest report."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        failure, skipped = case.find("failure"), case.find("skipped")
        if failure is not None:
            yield name, "failed", BUILT_IN.sub("", failure.get("message", ""))
        elif skipped is not None:
            yield name, "skipped", (skipped.get("message") or "no reason given").strip().splitlines()[-1]
        elif case.get("status") == "run":
            yield name, "ok", ""


def verdict_on(proof, verdict, reason):
    """On a GPU a test that finds neither driver nor plugin is no test that may be skipped."""
    return "failed" if proof.on_gpu and verdict == "skipped" and any(word in reason for word in ("plugin", "driver")) else verdict


def one(proof, program, wrapped=()):
    """Rows of one program's cases: the passed ones as one row."""
    report = proof.scratch / f"{program.name}{len(wrapped)}.xml"
    done = proof.tried([*wrapped, program], None, {"GTEST_OUTPUT": f"xml:{report}", "GTEST_COLOR": "no", "GTEST_FILTER": FILTER, "LD_LIBRARY_PATH": proof.setup["library_path"]})
    if not report.exists():
        proof.row(program.name, verdict="failed", why=done.why())
        return
    found = [(name, verdict_on(proof, verdict, reason), reason) for name, verdict, reason in cases(report)]
    passed = [name for name, verdict, _ in found if verdict == "ok"]
    if passed:
        proof.row(f"{program.name}: passed", f"{len(passed)} of {len(found)} tests", "ok", cases=passed)
    for name, verdict, reason in found:
        if verdict != "ok":
            proof.row(f"{program.name}: {name}", verdict=verdict, why=reason)
    if done.status != 0 and not any(verdict == "failed" for _, verdict, _ in found):
        proof.row(program.name, verdict="failed", why=f"after its report: {done.why()} {processes.last_lines(done.out)}")


def run(proof):
    programs = [Path(test) for test in proof.setup["tests"]]
    if not programs:
        proof.row("tests", verdict="left out", why="the build that the folder was made from has no test under the label gpu")
    for program in programs:
        with proof.trying(program.name):
            one(proof, program)
