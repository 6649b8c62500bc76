"""What `headrace doctor` costs in ordinary scripts, and whether it names the faults planted in them and what their remedies gain.

    python bench/headrace/doctor/measure.py clean  [--scripts gan ...]  [--rounds 5] [--json FILE]
    python bench/headrace/doctor/measure.py faults [--faults saves ...] [--rounds 3] [--json FILE]
    python bench/headrace/doctor/measure.py traceml [--faults saves ...] [--json FILE]

Run by tools/python-peer, or by a Python that has torch, lightning, transformers, accelerate and tensorboard; HEADRACE_LIBRARY names the
library of a build. A script runs in a folder of its own. It says on stderr how long its loop took; what it prints on stdout must be equal
with and without the doctor.

clean: plain and below the doctor in turns; cost by the medians of the loop's wall and CPU time. faults: the planted script below the
doctor, its first finding applied by remedies.py, then the planted and the mended script in turns without the doctor. traceml: what TraceML,
installed beside this Python, says of the planted scripts.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import traceml
from faults import FAULTS, mended_by_hand, planted
from remedies import NotApplicable, applied

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[2] / "python"
OF_THE_MACHINE = {"neighbours"}  # true of every script beside other programs, and no fault of it
TIMES = re.compile(r"(\d+) steps in ([\d.]+) s, CPU ([\d.]+) s")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH")])), "PYTHONDONTWRITEBYTECODE": "1"}


class Folder:
    """A fresh folder with a script, in which commands run."""

    def __init__(self, text):
        self.path = Path(tempfile.mkdtemp(prefix="doctor-bench-"))
        (self.path / "train.py").write_text(text)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def run(self, before=(), variables=None):
        done = subprocess.run([*before, sys.executable, "train.py"], cwd=self.path, env={**ENVIRONMENT, **(variables or {})}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=900)
        found = TIMES.search(done.stderr)
        if done.returncode or not found:
            raise RuntimeError(f"{' '.join(before)} train.py ended with {done.returncode}: {done.stderr[-2000:]}")
        return {"out": done.stdout, "err": done.stderr, "steps": int(found[1]), "wall": float(found[2]), "cpu": float(found[3])}


def run(text, before=(), variables=None):
    with Folder(text) as folder:
        return folder.run(before, variables)


def watched(text):
    """The run below the doctor, with what it found: {"findings", "accounts", "evidence", ...}."""
    done = run(text, [sys.executable, "-m", "headrace", "doctor", "--json", "--"])
    body, _, last = done["out"].rstrip("\n").rpartition("\n")
    return {**done, "out": body + "\n", "doctor": json.loads(last)}


def turns(sides, rounds):
    """{name: [run, ...]}: each side once a round, the order changing."""
    runs = {name: [] for name in sides}
    for round_ in range(rounds):
        for name in list(sides) if round_ % 2 else reversed(list(sides)):
            runs[name].append(sides[name]())
    return runs


def clean(options):
    rows = []
    for path in sorted((HERE / "scripts").glob("*.py")):
        if options.scripts and path.stem not in options.scripts:
            continue
        text = path.read_text()
        runs = turns({"plain": lambda: run(text), "doctor": lambda: watched(text)}, options.rounds)
        doctors = [each["doctor"] for each in runs["doctor"]]
        times = [each["evidence"]["times"] for each in doctors]
        row = {"script": path.stem, "step_ms": median(1e3 * each["wall"] / each["steps"] for each in runs["plain"]),
               "equal": len({each["out"] for side in runs.values() for each in side}) == 1,
               "accounts_over_wall": max((sum(each["seconds"].values()) / each["wall"] for each in times), key=lambda ratio: abs(ratio - 1)),
               "cost": {kind: median(each[kind] for each in runs["doctor"]) / median(each[kind] for each in runs["plain"]) - 1 for kind in ("wall", "cpu")},
               "findings": sorted({finding["id"] for each in doctors for finding in each.get("findings", [])} - OF_THE_MACHINE),
               "texts": [finding["text"] for finding in doctors[-1].get("findings", [])]}
        rows.append(row)
        print(f"{row['script']:<18} {row['step_ms']:6.1f} ms a step  losses {'equal' if row['equal'] else 'DIFFER'}  accounts / wall {row['accounts_over_wall']:.4f}  "
              f"cost {100 * row['cost']['wall']:+.1f} % wall, {100 * row['cost']['cpu']:+.1f} % CPU  findings: {', '.join(row['findings']) or '-'}", flush=True)
    return rows, lambda row: not row["equal"] or row["findings"] or abs(row["accounts_over_wall"] - 1) > 0.01


def interval_of(finding):
    """The interval that a remedy prints, in steps: every 50 steps, save_steps=200."""
    if "every_steps" in finding.get("set", {}):
        return finding["set"]["every_steps"]
    found = re.search(r"every[ =]([\d,]+)|(?:steps|every)=(\d+)", finding.get("change", "") + " " + finding.get("remedy", ""))
    return int((found[1] or found[2]).replace(",", "")) if found else None


def mended(text, fault, finding):
    try:
        return (*applied(text, finding), "as printed")
    except NotApplicable:
        if not fault.by_hand:
            raise
        return mended_by_hand(text, fault, interval_of(finding)), [], {}, "by hand"


def write(options, rows):
    """Writes the rows so far, so that a run that is stopped leaves what it has measured."""
    if options.json:
        options.json.write_text(json.dumps({"load": os.getloadavg(), "rows": rows}, indent=1))


def wanted(options):
    return [fault for fault in FAULTS if not options.faults or fault.name in options.faults]


def examine(fault, options):
    text = planted((HERE / "scripts" / f"{fault.script}.py").read_text(), fault)
    seen = watched(text)
    findings = [finding for finding in seen["doctor"].get("findings", []) if finding["id"] not in OF_THE_MACHINE]
    row = {"fault": fault.name, "script": fault.script, "cause": fault.cause, "found": [finding["id"] for finding in findings],
           "texts": [finding["text"] for finding in findings], "evidence": seen["doctor"]["evidence"]}
    right = next((finding for finding in findings if finding["id"] in (fault.cause, *fault.also)), None)
    row["first"] = bool(findings) and findings[0] is right
    if right is None or not fault.gains:
        return row
    row["predicted"] = right.get("gain")
    try:
        better, words, variables, row["how"] = mended(text, fault, right)
    except NotApplicable as error:
        row["how"] = f"not applied: {error}"
        return row
    before = [sys.executable, "-m", "headrace", *words[1:], "--"] if words else []
    runs = turns({"planted": lambda: run(text), "mended": lambda: run(better, before, variables)}, options.rounds)
    times = {name: median(each["wall"] for each in side) for name, side in runs.items()}
    row["seconds"] = {name: [each["wall"] for each in side] for name, side in runs.items()}
    row["gain"] = 1 - times["mended"] / times["planted"]
    return row


def show(row):
    def part(share):
        return f"{100 * share:5.1f} %" if share is not None else "      -"
    print(f"{row['fault']:<24} {row['cause']:<18} {'first' if row['first'] else 'NOT FIRST':<10} predicted {part(row.get('predicted'))}  measured {part(row.get('gain'))}  "
          f"{row.get('how', '')}  found: {', '.join(row['found']) or '-'}", flush=True)


def sums(rows):
    print(f"named first: {sum(row['first'] for row in rows)} of {len(rows)}")
    errors = [abs(row["predicted"] - row["gain"]) / row["gain"] for row in rows if row.get("predicted") is not None and row.get("gain", 0) > 0]
    if errors:
        print(f"gain within 25 %: {sum(error <= 0.25 for error in errors)} of {len(errors)}; median error {100 * median(errors):.0f} %")


def faults(options):
    rows = []
    for fault in wanted(options):
        rows.append(examine(fault, options))
        show(rows[-1])
        write(options, rows)
    sums(rows)
    return rows, lambda row: not row["first"]


def traceml_of_faults(options):
    """What TraceML says of the planted scripts: as they are, and with TraceML's lines in them."""
    rows = []
    for fault in wanted(options):
        text = planted((HERE / "scripts" / f"{fault.script}.py").read_text(), fault)
        row = {"fault": fault.name, "cause": fault.cause}
        for how, script in {"unchanged": text, "with its lines": traceml.with_step_lines(text, fault.script)}.items():
            with Folder(script) as folder:
                row[how] = traceml.told(folder.path, ENVIRONMENT)
            print(f"{fault.name:<24} {fault.cause:<18} {how:<15} {'; '.join(f'{key}: {said}' for key, said in row[how].items())}", flush=True)
        rows.append(row)
        write(options, rows)
    return rows, lambda row: False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["clean", "faults", "traceml"])
    parser.add_argument("--scripts", nargs="+")
    parser.add_argument("--faults", nargs="+", choices=[fault.name for fault in FAULTS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--threads", type=int, help="of torch in all runs; beside other programs two threads wait for each other most of the time")
    options = parser.parse_args()
    if options.threads:
        ENVIRONMENT["OMP_NUM_THREADS"] = str(options.threads)
    rows, is_bad = {"clean": clean, "faults": faults, "traceml": traceml_of_faults}[options.what](options)
    write(options, rows)
    return 1 if any(map(is_bad, rows)) else 0


if __name__ == "__main__":
    sys.exit(main())
