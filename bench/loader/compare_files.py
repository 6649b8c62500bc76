"""The loader against PyTorch's DataLoader and the best Python where samples come from files, wait, or come in groups.

    pip install --require-hashes --no-deps --target build/loader-peers -r bench/loader/requirements.txt
    tools/python-peer bench/loader/compare_files.py build/release/bench/loader/bench_loader [--only hdf5,jpeg] [--rounds 9]

Each workload (peers_files.py says what it is) is delivered by three sides one after the other in every round; a figure is the
median of the rounds' ratios with its 95 % interval. Both sides' bytes are digested first, with the randomness off. A bar is also
met at 90 % of the rate of reading alone in the same run ("reads"), whether reading decodes, copies or sleeps. The last workload feeds
a step of convolutions (50 ms) on the same cores; its bar is a share of the ceiling, the same step on replayed batches.
--scale 0.1 makes small files and is only good for seeing that everything runs.
"""

import argparse
import json
import os
import sys
import time
import warnings

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(root, "build", "loader-peers"))

import numpy as np
import torch

import peers_files
from compare import Ours, digest_rows, median_with_interval

STEP_MS, STEP_BAR, BOUND_BAR = 50.0, 0.85, 0.9


class Step:
    """The convolutions of ConvolutionStep (src/millrace/train/loader_bench.h)."""

    def __init__(self, passes):
        self.passes, self.image, self.weight = passes, torch.rand(8, 64, 56, 56), torch.rand(64, 64, 3, 3)

    def __call__(self):
        with torch.no_grad():
            for _ in range(self.passes):
                torch.conv2d(self.image, self.weight, padding=1)


def rows_of(batch):
    if torch.is_tensor(batch):
        return len(batch)
    return sum(len(part) for part in batch) if isinstance(batch, tuple) else len(batch[0])


class Endless:
    """Repeats a peer's epochs, so that a round need not begin an epoch; the first batch is not timed."""

    def __init__(self, make, paired):
        self.make, self.paired, self.batches = make, paired, None

    def rate(self, seconds, step=None):
        rows = 0
        began = time.perf_counter()
        while True:
            if self.batches is None:
                self.batches = iter(self.make())
            batch = next(self.batches, None)
            if batch is None:
                self.batches = None
                continue
            rows += len(batch[0]) if self.paired else rows_of(batch)
            if step:
                step()
            passed = time.perf_counter() - began
            if passed >= seconds:
                return rows / passed


def fields_of(batch, paired):
    """Groups of fields: [[x, y]] for pairs, [[d0], [d1], ...] for groups."""
    if torch.is_tensor(batch):
        return [[batch]]
    return [list(batch)] if paired else [[part] for part in batch]


def peer_digest(batches, paired):
    return digest_rows(group for batch in batches for group in fields_of(batch, paired))


def best_workers(workload, paired, seconds):
    rates, loaders = {}, {}
    for workers in workload.workers:
        loader = workload.documented(workers)
        loaders[workers] = Endless(lambda l=loader: l, paired)
        loaders[workers].rate(seconds / 2)
        rates[workers] = loaders[workers].rate(seconds)
    best = max(rates, key=rates.get)
    return best, loaders[best], rates


def verdict(value, bar, bound_share):
    if value >= bar:
        return "ok"
    return f"ok: {bound_share:.0%} of reading alone" if bound_share >= BOUND_BAR else "MISSED"


def compare(workload, ours, rounds, seconds):
    paired = isinstance(workload, peers_files.Hdf5)
    fixed = workload.name + "-fixed"
    expected = ours.ask(fixed, "digest")
    for side, batches in (("documented", workload.documented(0, fixed=True)), ("best", workload.best(fixed=True)())):
        found = peer_digest(batches, paired)
        if found != expected:
            sys.exit(f"{workload.name}: the delivered bytes of {side} differ: {expected} and {found}")
    streams = ours.ask(fixed if isinstance(workload, peers_files.Stragglers) else workload.name, "streams") if rounds >= 5 else {}
    if streams and len(set(streams.values())) != 1:
        sys.exit(f"{workload.name}: the stream depends on the number of readers: {streams}")

    workers, documented, by_workers = best_workers(workload, paired, seconds)
    peers = {"documented": documented, "best": Endless(workload.best(), paired)}
    peers |= {name: Endless(make, paired) for name, make in getattr(workload, "others", dict)().items()}
    ours.ask(workload.name, "time", seconds)  # chooses its readers, fills its cache
    for peer in peers.values():
        peer.rate(seconds)
    rates = {side: [] for side in ("ours", "reads", *peers)}
    replies = []
    for _ in range(rounds):
        replies.append(ours.ask(workload.name, "time", seconds))
        rates["ours"].append(replies[-1]["rate"])
        rates["reads"].append(ours.ask(workload.name, "bound", seconds)["rate"])
        for name, peer in peers.items():
            rates[name].append(peer.rate(seconds))
    best = [max(values) for values in zip(*(rates[name] for name in peers if name != "documented"))]
    shares = [a / b for a, b in zip(rates["ours"], rates["reads"])]
    result = {
        "what": " ".join(workload.__doc__.split()),
        "rows": expected["rows"],
        "digest": expected["digest"],
        "readers": replies[-1]["readers"],
        "documented_workers": workers,
        "documented_rate_by_workers": {str(k): v for k, v in by_workers.items()},
        "rate": {side: float(np.median(values)) for side, values in rates.items()},
        "share_of_reads": float(np.median(shares)),
        "cpu_s_per_1000": float(np.median([reply["cpu_s_per_1000"] for reply in replies])),
        "ratio": {},
    }
    for name, values in (("documented", rates["documented"]), ("best", best)):
        middle, low, high = median_with_interval([a / b for a, b in zip(rates["ours"], values)])
        bar = workload.bars[name]
        result["ratio"][name] = {
            "median": middle,
            "low": low,
            "high": high,
            "bar": bar,
            "verdict": verdict(middle, bar, result["share_of_reads"]),
        }
    return result


def show(name, result):
    print(f"\n{name}: {result['what']}\n  digests equal over {result['rows']:,} samples; {result['readers']}")
    for side, value in result["rate"].items():
        label = {"documented": f"documented, {result['documented_workers']} workers", "reads": "reading alone"}.get(side, side)
        print(f"  {label:34}{value:>14,.0f} samples/s")
    for peer, ratio in result["ratio"].items():
        print(
            f"  ours / {peer:12} {ratio['median']:8.2f}   [{ratio['low']:.2f}, {ratio['high']:.2f}]"
            f"   bar {ratio['bar']:g}   {ratio['verdict']}"
        )
    print(f"  {result['share_of_reads']:.0%} of reading alone; {result['cpu_s_per_1000']:.2f} CPU seconds per 1,000 samples")


def compare_with_step(workload, ours, rounds, seconds):
    """The same workload as it feeds a step on the same cores: rates as shares of the replayed ceiling."""
    paired = isinstance(workload, peers_files.Hdf5)
    passes = ours.ask("passes", STEP_MS)["passes"]
    step = Step(passes)
    workers, documented, _ = best_workers(workload, paired, seconds)
    best = Endless(workload.best(), paired)
    rates = {side: [] for side in ("ours", "ceiling", "documented", "best")}
    ours.ask(workload.name, "time", seconds, passes)
    for _ in range(rounds):
        rates["ours"].append(ours.ask(workload.name, "time", seconds, passes)["rate"])
        rates["ceiling"].append(ours.ask(workload.name, "ceiling", seconds, passes)["rate"])
        rates["documented"].append(documented.rate(seconds, step))
        rates["best"].append(best.rate(seconds, step))
    middle, low, high = median_with_interval([a / b for a, b in zip(rates["ours"], rates["ceiling"])])
    result = {
        "workload": workload.name,
        "passes": passes,
        "documented_workers": workers,
        "rate": {side: float(np.median(values)) for side, values in rates.items()},
        "share_of_ceiling": {"median": middle, "low": low, "high": high, "bar": STEP_BAR},
    }
    print(f"\nstep: {workload.name} before {passes} convolutions ({STEP_MS:.0f} ms) on the same cores")
    for side, value in result["rate"].items():
        print(f"  {side:34}{value:>14,.1f} samples/s")
    word = "ok" if middle >= STEP_BAR else "MISSED"
    print(f"  ours / ceiling {middle:.2f}   [{low:.2f}, {high:.2f}]   bar {STEP_BAR:g}   {word}")
    return result


def missing(workload):
    return [name for name in workload.needs if getattr(peers_files, {"isal": "isal_zlib"}.get(name, name)) is None]


def main():
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the built bench_loader")
    parser.add_argument("--only", help="workloads, with commas; step is the one with convolutions")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one side in one round")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of samples")
    parser.add_argument("--folder", default=os.path.join(root, "build", "loader-data"), help="for the generated files")
    parser.add_argument("--json", help="write the figures there too")
    arguments = parser.parse_args()
    folder = f"{arguments.folder}-{arguments.scale:g}"
    os.makedirs(folder, exist_ok=True)
    names = [kind.name for kind in peers_files.ALL] + ["step"]
    wanted = arguments.only.split(",") if arguments.only else names
    if unknown := set(wanted) - set(names):
        parser.error(f"no workload {', '.join(unknown)}: they are {', '.join(names)}")
    results = {"torch": torch.__version__, "cpus": os.cpu_count(), "rounds": arguments.rounds, "load_average_before": os.getloadavg()[0]}
    step_on = "hdf5"
    ours = Ours(arguments.program, folder)
    for kind in peers_files.ALL:
        wants_step = "step" in wanted and kind.name == step_on
        if kind.name not in wanted and not wants_step:
            continue
        if lacking := missing(kind):
            sys.exit(f"{kind.name} needs {', '.join(lacking)}: see bench/loader/requirements.txt")
        workload = kind(folder, arguments.scale)
        workload.make()
        peers_files.write_descriptions(workload)
        if kind.name in wanted:
            results[kind.name] = compare(workload, ours, arguments.rounds, arguments.seconds)
            show(kind.name, results[kind.name])
        if wants_step:
            results["step"] = compare_with_step(workload, ours, arguments.rounds, arguments.seconds)
    ours.process.stdin.close()
    ours.process.wait()
    results["load_average_after"] = os.getloadavg()[0]
    print(f"\n{results['cpus']} CPUs, load average {results['load_average_before']:.1f} before, {results['load_average_after']:.1f} after")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)
    missed = [
        f"{name} against {peer}"
        for name, result in results.items()
        if isinstance(result, dict) and "ratio" in result
        for peer, ratio in result["ratio"].items()
        if ratio["verdict"] == "MISSED"
    ]
    if "step" in results and results["step"]["share_of_ceiling"]["median"] < STEP_BAR:
        missed.append("step")
    if missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
