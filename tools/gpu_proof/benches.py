"""The comparisons of bench/step that a proof calls, and the figures it takes from what they write."""
import json
from dataclasses import dataclass, field

from .training import RECIPES

MODES = ("compile", "graphs")  # torch.compile without and with CUDA graphs
COMPILE_THREADS = 4  # of a peer
ENVIRONMENT = {"TORCHINDUCTOR_COMPILE_THREADS": str(COMPILE_THREADS)}
GUIDES = ["language_model", "cosmology", "autoencoder_3d", "neural_response"]  # at gpu-guide, the most important first
HUGE = ["image_pairs"]  # draws 28 GB of weights first


@dataclass
class Bench:
    script: str     # bench/step/SCRIPT, which makes both sides and lets them take turns
    peer: str       # bench/step/PEER, one way of Python
    eager: list     # Python's ways without torch.compile, by their names in the results
    compiled: dict  # those with it: {name: words of the peer}, the fastest first
    always: list = field(default_factory=list)  # of the script, in each call


BENCHES = {
    "language_model": Bench("compare.py", "gpt_step_peer.py", ["eager"], {"": ["--dropout", "0.1"]}, ["--dropout", "0.1", "--starts", "0"]),
    "cosmology": Bench("compare_unet.py", "unet_step_peer.py", ["eager", "eager_channels_last"],
                       {"cat_channels_last": ["--pad", "cat", "--channels-last"], "cat": ["--pad", "cat"]}),
    "autoencoder_3d": Bench("compare_gan.py", "gan_step_peer.py", ["frozen", "frozen_channels_last"],
                            {"frozen_channels_last": ["--frozen", "--channels-last"], "frozen": ["--frozen"]}),
    "neural_response": Bench("compare_twin.py", "twin_step_peer.py", ["joined", "stencil_joined"], {"stencil_joined": ["--stencil", "--joined"]}),
    "image_pairs": Bench("compare_pairs.py", "pairs_step_peer.py", ["packed", "shared"], {"packed": ["--packed"]}),
}
assert sorted(BENCHES) == sorted(RECIPES) == sorted(GUIDES + HUGE)


@dataclass
class Cell:
    """One call of a comparison."""
    recipe: str
    shape: str
    dtypes: list
    ways: int = 0  # of Python with torch.compile

    def name(self):
        return f"{self.recipe} {self.shape} {'/'.join(self.dtypes)}" + (" with torch.compile" if self.ways else "")

    def is_huge(self):
        return self.shape == "gpu-guide" and self.recipe in HUGE


def cells(recipes, on_gpu, quick, thorough):
    """In the order of their worth: what there is no time for is left out from the end. `thorough`: there is time to compile what counts."""
    if not on_gpu:
        return [Cell(recipe, "cpu-small", ["fp32"]) for recipe in (recipes[-1:] if quick else recipes)]
    return [*[Cell(recipe, "gpu-small", ["bf16"], 2 if thorough else 1) for recipe in recipes],
            *[Cell(recipe, "gpu-guide", ["bf16"], 1 if thorough else 0) for recipe in GUIDES if recipe in recipes],
            *[Cell(recipe, "gpu-small", ["tf32", "fp32"]) for recipe in recipes],
            *[Cell(recipe, "gpu-guide", ["bf16"]) for recipe in HUGE if recipe in recipes]]


def compiled_ways(cell):
    """{name: words of the peer} of what torch.compile is given in a cell."""
    return dict(list(BENCHES[cell.recipe].compiled.items())[:cell.ways])


def programs_of(cell, most_eager=None):
    """Python's programs in a cell, by their names in the results."""
    compiled = ["_".join(filter(None, (mode, name))) for mode in MODES for name in compiled_ways(cell)]
    return BENCHES[cell.recipe].eager[:1 if cell.is_huge() else most_eager] + compiled


def command(python, folder, program, cell, device, pace, out, most_eager=None):
    """`pace`: words about rounds, steps and threads; `most_eager`: at most so many of Python's eager ways."""
    bench = BENCHES[cell.recipe]
    words = [python, folder / "bench/step" / bench.script, program, "--device", device, "--shape", cell.shape, "--dtypes", *cell.dtypes,
             *pace, "--json", out, *bench.always, "--only", *programs_of(cell, most_eager)]
    if not cell.is_huge():
        words.append("--together")
    if bench.script == "compare.py":
        return words + ([] if cell.ways else ["--no-compile"])
    return words + (["--compile"] if cell.ways else [])


def results(out):
    """What a comparison wrote before it ended; [] where it wrote nothing."""
    return json.loads(out.read_text(encoding="utf-8"))["results"] if out.exists() else []


def figure(row):
    """"ours 3.10 ms, eager 5.20; ours / eager 0.596 (0.590..0.603), peak 812 and 1,024 MB" of one result."""
    times = row["step_ms"]
    ours = row.get("chosen", "ours")
    others = {name: ms for name, ms in times.items() if not name.startswith("ours")}
    best = min(others, key=others.get)
    by_speed = sorted(others, key=others.get)[:4]
    middle, low, high = row["ratio"] if isinstance(row["ratio"], list) else (row["ratio"], *row["interval"])
    against = row.get("rival") or row.get("fastest") or best
    text = f"ours {times[ours]:.2f} ms, " + ", ".join(f"{name} {others[name]:.2f}" for name in by_speed)
    text += f"; ours / {against} {middle:.3f} ({low:.3f}..{high:.3f})"
    peaks = row.get("peak_bytes") or {}
    counted = [value for name, value in peaks.items() if name != "ours" and not name.startswith("graphs")]  # a graph's memory is no tensor's
    if "ours" in peaks and counted:
        least = min(counted)
        text += f"; peak {peaks['ours'] / 1e6:,.0f} and at least {least / 1e6:,.0f} MB"
    return text
