"""A training step as a graph that the device replays, beside the same step launched kernel by kernel (`--off step_graph`).

First whole runs, side by side: the saved state is to be the same to the bit. Then steps of the bench shapes, timed alone, in turns.
"""
import contextlib
import json
import math
import select
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from .. import figures, processes, training
from ..proof import Failure
from .life import train

OFF = ["--off", "step_graph"]
RUN_STEPS = 40
STEPS, ROUNDS = 20, 3  # of a turn, and turns that count
# Steps after which it is known whether a step becomes a graph. `bench step` makes them before its first turn, where they are not made yet; then
# the program without a graph would have made fewer steps, and another loss.
WARMUP = 10
FIRST_LIMIT = 40  # seconds until all programs have done their first turn, in which they take up the device side by side
TURN_LIMIT = 15
TOLERANCE = {"fp32": 1e-5, "bf16": 1e-3}  # of losses, relative
SCATTERS = 4  # times what two programs without a graph are apart is allowed too
SIDE_BY_SIDE = 6


def cells(proof):
    """(recipe, precision)"""
    if not proof.on_gpu:
        return [(recipe, "fp32") for recipe in (proof.recipes[-1:] if proof.quick else proof.recipes)]
    return [(recipe, "bf16") for recipe in proof.recipes] + [(recipe, "fp32") for recipe in proof.recipes if recipe == "language_model"]


def apart(a, b):
    return abs(a - b) / max(abs(b), 1e-30)


def alike(distance):
    """"to 6 digits", of a relative distance."""
    return "to the bit" if distance == 0 else f"to {max(0, math.floor(-math.log10(distance)))} digits" if math.isfinite(distance) else "in no digit"


def good_on(proof):
    """The verdict of what is as it should be: on a CPU there is no graph, and nothing is shown."""
    return "ok" if proof.on_gpu else "measured"


def told_of(report):
    """What a report says of the graph, "" where it says nothing."""
    graph = report.get("step_graph") or {}
    return "" if not graph or graph.get("taken") else f"no graph: {graph.get('reason') or 'no reason given'}"


def told_of_run(proof, run):
    """What a run's log says of the graph, "" where it took one."""
    said = run.log("step_graph")
    return told_of({"step_graph": said[-1] if said else {"taken": False}}) if proof.on_gpu else ""


class Bench:
    """`millrace bench step`, which makes a turn of steps for each line that it gets."""

    def __init__(self, proof, recipe, precision, name, *words):
        shape, warmup, steps_ = ("gpu-small", WARMUP, STEPS) if proof.on_gpu else ("cpu-small", 1, 2)
        self.words = [proof.program, "bench", "step", recipe, "--shape", shape, "--precision", precision, "--threads", 2, "--warmup", warmup,
                      "--steps", steps_, "--rounds", "stdin", "--json", f"--device.name={proof.device}", "--device.layout=contiguous", *words]
        self.said = proof.scratch / f"graph-{recipe}-{precision}-{name}.err"
        self.rounds, self.rest = [], b""
        with open(self.said, "wb") as errors:
            self.child = subprocess.Popen([str(word) for word in self.words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                          env=proof.environment, cwd=proof.scratch)

    def ask(self):
        try:
            self.child.stdin.write(b"go\n")
            self.child.stdin.flush()
        except BrokenPipeError:  # answer() says so
            pass

    def answer(self, limit):
        """The report of the turn that was asked for."""
        end = time.monotonic() + limit
        while b"\n" not in self.rest:
            if not select.select([self.child.stdout], [], [], max(end - time.monotonic(), 0))[0]:
                raise Failure(f"{' '.join(map(str, self.words[1:4]))} gave no answer in {limit:.0f} s")
            piece = self.child.stdout.read1()
            if not piece:
                self.child.wait()
                raise Failure(f"{' '.join(map(str, self.words[1:4]))} ended: {processes.last_lines(self.said.read_text(errors='replace'))}")
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        self.rounds.append(json.loads(line))
        return self.rounds[-1]

    def end(self):
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()
        with contextlib.suppress(OSError):  # what it was asked last may still be here
            self.child.stdin.close()


def turns(proof, graph, plain):
    """Each program's milliseconds of a step, in turns."""
    for _ in range(ROUNDS if proof.on_gpu else 1):
        for bench in (graph, plain):
            time.sleep(0.05)  # the threads of the one before come to rest
            bench.ask()
            bench.answer(TURN_LIMIT * proof.stretch)
    return [[median(report["ms"]) for report in bench.rounds[1:]] for bench in (graph, plain)]


def compared(proof, recipe, precision, first, benches):
    """The row of one cell. `first`: the reports of the first turns, which began at the same weights: with a graph, and twice without."""
    graph, plain = benches[:2]
    with_ms, without_ms = turns(proof, graph, plain)
    distance, scatter = (apart(report["loss_last"], first[1]["loss_last"]) for report in (first[0], first[2]))
    allowed = max(TOLERANCE[precision], SCATTERS * scatter)
    ratio = figures.interval([b / a for a, b in zip(with_ms, without_ms)])
    peaks = [bench.rounds[-1].get("memory", {}).get("step_peak_bytes", 0) / 1e6 for bench in (graph, plain)]
    good = distance <= allowed
    text = (f"step {median(with_ms):.2f} ms as a graph, {median(without_ms):.2f} ms without, {ratio[0]:.2f} times ({ratio[1]:.2f}..{ratio[2]:.2f}); "
            f"losses equal {alike(distance)}, two without a graph {alike(scatter)}; peak {peaks[0]:,.0f} and {peaks[1]:,.0f} MB")
    why = "" if good else f"losses {first[0]['loss_last']:.8g} and {first[1]['loss_last']:.8g} are {distance:.1e} apart, {allowed:.1e} allowed"
    proof.row(f"{recipe} {graph.rounds[-1]['shape']} {precision}", text, good_on(proof) if good else "failed", "; ".join(filter(None, [why, told_of(graph.rounds[-1])])),
              graph=[report["ms"] for report in graph.rounds[1:]], without=[report["ms"] for report in plain.rounds[1:]],
              step_graph=graph.rounds[-1].get("step_graph"), losses=[report["loss_last"] for report in first])


def first_turns(proof, cell, benches):
    """The reports of the first turns, None where a program gave none."""
    first = None
    with proof.trying(" ".join(cell)):
        first = [bench.answer(min(FIRST_LIMIT * proof.stretch, proof.left() - 1)) for bench in benches]
    for bench in benches[2:] if first else benches:
        bench.end()
    return first


def steps(proof):
    """All programs start side by side and do their first turn; then each cell has the machine to itself."""
    programs = {}
    try:
        for batch in [cells(proof)] if proof.on_gpu else [[cell] for cell in cells(proof)]:
            for cell in batch:
                programs[cell] = [Bench(proof, *cell, name, *words) for name, words in (("graph", []), ("plain", OFF), ("again", OFF))]
                for bench in programs[cell]:
                    bench.ask()
            first = {cell: first_turns(proof, cell, programs[cell]) for cell in batch}
            for cell in [cell for cell in batch if first[cell]]:
                with proof.trying(" ".join(cell)):
                    compared(proof, *cell, first[cell], programs[cell])
    finally:
        for bench in [bench for benches in programs.values() for bench in benches]:
            bench.end()


def trained(proof, cell, name, *words):
    """A run of the preset `smoke`, None where it failed."""
    recipe, precision = cell
    with proof.trying(f"{recipe} {precision}: a run {name}"):
        return train(proof, recipe, f"{recipe}-{precision}-{name.replace(' ', '-')}", 6 if proof.small else RUN_STEPS, *training.FIXED, "--log.every=1", *words,
                     precision=precision, part="graph")
    return None


def same_state(proof, cell, graph, plain):
    what = f"{' '.join(cell)}: a run with and without a graph"
    with proof.trying(what):
        a, b = graph.summary(), plain.summary()
        said = f"{b['steps']} steps, last loss {a['loss']['last']:.7g} and {b['loss']['last']:.7g} without"
        if a["state_sha256"] == b["state_sha256"]:
            proof.row(what, f"state the same to the bit; {said}", good_on(proof), told_of_run(proof, graph))
            return
        distance = training.loss_distance(graph.losses(), plain.losses())
        good = distance <= TOLERANCE[cell[1]]
        proof.row(what, f"state not the same; losses equal {alike(distance)}; {said}", good_on(proof) if good else "differs", told_of_run(proof, graph), apart=distance)


def runs(proof):
    """The first of a recipe, for which the others wait, makes its data."""
    wanted = cells(proof)
    first = list({recipe: (recipe, precision) for recipe, precision in reversed(wanted)}.values())
    made = {}
    with ThreadPoolExecutor(SIDE_BY_SIDE if proof.on_gpu else 2) as pool:
        for jobs in ([(cell, True) for cell in first], [(cell, True) for cell in wanted if cell not in first] + [(cell, False) for cell in wanted]):
            ran = pool.map(lambda job: trained(proof, job[0], *(["with a graph"] if job[1] else ["without", *OFF])), jobs)
            made.update(zip(jobs, ran))
    for cell in wanted:
        if made[cell, True] and made[cell, False]:
            same_state(proof, cell, made[cell, True], made[cell, False])


def run(proof):
    if not proof.on_gpu:
        proof.skipped("a step as a graph")
    runs(proof)
    steps(proof)
