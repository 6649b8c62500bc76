"""A training step of ours beside Python torch's, in turns in one call: eager, torch.compile, and that with CUDA graphs."""
from .. import benches, processes

SMALL = ["--rounds", 1, "--steps", 1, "--threads", 2]
# Five rounds: the least and the greatest of them enclose the median with 94 %. A turn begins with a step that is not counted.
PACE = {"gpu-small": ["--rounds", 5, "--steps", 6, "--threads", 8, "--within", 20],
        "gpu-guide": ["--rounds", 5, "--steps", 3, "--threads", 8, "--within", 25]}
START = {"gpu-small": 40, "gpu-guide": 55}  # seconds until Python's ways have done their first step, or are left out
# Seconds of one comparison: its peers start, load what Inductor's cache has, and record graphs; with less left none begins.
LONGEST = {"gpu-small": 70, "gpu-guide": 90}
LEAST = {"gpu-small": 20, "gpu-guide": 30}
HUGE = 150  # both, of the cell that draws 28 GB of weights first


def least_of(cell):
    return HUGE if cell.is_huge() else LEAST.get(cell.shape, 12)


def longest_of(cell):
    return HUGE if cell.is_huge() else LONGEST[cell.shape]


def why_left_out(row, done):
    """Python's ways that gave no answer, and what they said last."""
    names = ", ".join(row.get("left_out", {}))
    return f"left out: {names}; {processes.last_lines(done.err, 2)}" if names else ""


def pace_of(proof, cell):
    if proof.small:
        return SMALL
    return PACE[cell.shape] + ([] if cell.is_huge() else ["--start-within", START[cell.shape]])


def one(proof, cell, number):
    out = proof.scratch / f"steps-{number}.json"
    words = benches.command(proof.python, proof.folder, proof.program, cell, proof.device, pace_of(proof, cell), out, 1 if proof.small else None)
    limit = proof.left() - 2 if proof.small else min(proof.left() - 2, longest_of(cell))
    with proof.trying(cell.name()):
        done = proof.tried(words, limit, benches.ENVIRONMENT)
        found = benches.results(out)
        for row in found:
            proof.row(f"{cell.recipe} {cell.shape} {row['dtype']}", benches.figure(row), "measured",
                      why_left_out(row, done), result=row, seconds=round(done.seconds, 1))
        if done.status is None:
            proof.row(cell.name(), verdict="left out", why=f"it takes longer than {limit:.0f} s; {len(found)} of {len(cell.dtypes)} formats were there")
        elif len(found) < len(cell.dtypes):
            proof.row(cell.name(), verdict="failed", why=done.why())


def run(proof):
    for number, cell in enumerate(benches.cells(proof.recipes, proof.on_gpu, proof.quick, proof.thorough)):
        if proof.left() < least_of(cell):
            proof.row(cell.name(), verdict="left out", why="no time was left")
        else:
            one(proof, cell, number)
    if not proof.on_gpu:
        for shape in ("gpu-small", "gpu-guide"):
            proof.skipped(f"shape {shape}, torch.compile with CUDA graphs, TF32")
