"""The comparisons of bench/step that a proof calls, and the figures it takes from what they write."""
import json
from dataclasses import dataclass, field

from .training import RECIPES


@dataclass
class Bench:
    script: str          # bench/step/SCRIPT, which makes both sides and lets them take turns
    peer: str            # bench/step/PEER, one way of Python
    ways: list = field(default_factory=list)      # --peers of the script: the ways that count; [] = it has no such option
    words: list = field(default_factory=list)     # of the peer, in the way that torch.compile serves best
    always: list = field(default_factory=list)    # of the script, in each call
    plain: list = field(default_factory=list)     # of the script where torch.compile is left out
    compile: list = field(default_factory=lambda: ["--compile"])  # of the script where it is not


BENCHES = {
    "language_model": Bench("compare.py", "gpt_step_peer.py", words=["--dropout", "0.1", "--peak"], always=["--dropout", "0.1", "--starts", "0"], plain=["--no-compile"], compile=[]),
    "cosmology": Bench("compare_unet.py", "unet_step_peer.py", ["eager", "cat_channels_last"], ["--pad", "cat", "--channels-last"]),
    "autoencoder_3d": Bench("compare_gan.py", "gan_step_peer.py", ["frozen", "frozen_channels_last"], ["--frozen"]),
    "neural_response": Bench("compare_twin.py", "twin_step_peer.py", ["joined", "stencil_joined"], ["--stencil", "--joined"]),
    "image_pairs": Bench("compare_pairs.py", "pairs_step_peer.py", ["packed", "shared"], ["--packed"]),
}
assert sorted(BENCHES) == sorted(RECIPES)


@dataclass
class Cell:
    """One call of a comparison."""
    recipe: str
    shape: str
    dtypes: list
    compiled: bool

    def name(self):
        return f"{self.recipe} {self.shape} {'/'.join(self.dtypes)}" + (" with torch.compile" if self.compiled else "")


def cells(recipes, on_gpu, quick):
    """In the order of their worth: what there is no time for is left out from the end."""
    if not on_gpu:
        return [Cell(recipe, "cpu-small", ["fp32"], False) for recipe in (recipes[-1:] if quick else recipes)]
    guide = [Cell("language_model", "gpu-guide", ["bf16"], True)] if "language_model" in recipes else []
    return [*guide, *[Cell(recipe, "gpu-small", ["bf16"], True) for recipe in recipes],
            *[Cell(recipe, "gpu-small", ["tf32", "fp32"], False) for recipe in recipes],
            *[Cell(recipe, "gpu-guide", ["bf16"], False) for recipe in recipes if recipe != "language_model"]]


def command(python, folder, program, cell, device, rounds, steps, threads, out, ways=None):
    """`ways`: at most so many of Python's."""
    bench = BENCHES[cell.recipe]
    words = [python, folder / "bench/step" / bench.script, program, "--device", device, "--shape", cell.shape, "--dtypes", *cell.dtypes,
             "--rounds", rounds, "--steps", steps, "--threads", threads, "--json", out, *bench.always]
    return words + (bench.compile if cell.compiled else bench.plain) + (["--peers", *bench.ways[:ways]] if bench.ways else [])


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
    if "ours" in peaks and len(peaks) > 1:
        least = min(value for name, value in peaks.items() if name != "ours")
        text += f"; peak {peaks['ours'] / 1e6:,.0f} and at least {least / 1e6:,.0f} MB"
    return text
