"""A training step of ours beside Python torch's, in turns in one call: eager, torch.compile, and that with CUDA graphs."""
from .. import benches

LEAST_SECONDS = 12  # no comparison begins with less left
LONGEST = 100  # seconds of one comparison: its peers start, compile what Inductor's cache has, and record graphs


def one(proof, cell, number):
    out = proof.scratch / f"steps-{number}.json"
    words = benches.command(proof.python, proof.folder, proof.program, cell, proof.device, 1 if proof.small else 9, 1 if proof.small else 5,
                            2 if proof.small else 8, out, 1 if proof.small else None)
    limit = proof.left() - 2 if proof.small else min(proof.left() - 2, LONGEST)
    with proof.trying(cell.name()):
        done = proof.tried(words, limit)
        found = benches.results(out)
        for row in found:
            proof.row(f"{cell.recipe} {cell.shape} {row['dtype']}", benches.figure(row), "measured",
                      "; ".join(f"left out: {name}" for name in row.get("left_out", {})), result=row)
        if done.status is None:
            proof.row(cell.name(), verdict="left out", why=f"it takes longer than {limit:.0f} s; {len(found)} of {len(cell.dtypes)} formats were there")
        elif len(found) < len(cell.dtypes):
            proof.row(cell.name(), verdict="failed", why=done.why())


def run(proof):
    for number, cell in enumerate(benches.cells(proof.recipes, proof.on_gpu, proof.quick)):
        if proof.left() < LEAST_SECONDS:
            proof.row(cell.name(), verdict="left out", why="no time was left")
        else:
            one(proof, cell, number)
    if not proof.on_gpu:
        for shape in ("gpu-small", "gpu-guide"):
            proof.skipped(f"shape {shape}, torch.compile with CUDA graphs, TF32")
