"""The loader against PyTorch's DataLoader: same bytes, same machine, one run, side by side.

    tools/python-peer bench/loader/compare.py build/release/bench/loader/bench_loader [--rounds 15] [--json FILE]

Two workloads, each delivered as the tensors a training step takes, shuffled:
  rows     20,000 x 20 and 20,000 x 5 floats in memory, batch 256
  tokens   windows of 256 + 1 from a u16 file, batch 16, as int64 input and target
against two peers, each with the number of threads inside torch operations that suits it better:
  documented   a map-style data set and the default collate, the best of 0, 1, 2 and 4 workers
  best         the best Python we know how to write: batched __getitems__, or slices with batch_size=None, whichever is faster
Every round times all of them one after the other; a figure is the median of the rounds' ratios with its 95 % interval.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

ROWS = 20_000
CONTEXT = 256
ALL_THREADS = torch.get_num_threads()
BARS = {"rows": {"documented": 50.0, "best": 1.5}, "tokens": {"documented": 5.0, "best": 2.0}}
TURN_ROUND_US = 1000.0


class Pairs(Dataset):
    """Rows as the documentation shows it: one sample per index."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class BatchedPairs(Pairs):
    def __getitems__(self, indices):
        indices = torch.tensor(indices)
        return self.x[indices], self.y[indices]


class SlicedPairs(Dataset):
    """Shuffled once per epoch, then whole batches by slicing."""

    def __init__(self, x, y, batch_size):
        order = torch.randperm(len(x))
        self.x, self.y, self.batch_size = x[order], y[order], batch_size

    def __len__(self):
        return -(-len(self.x) // self.batch_size)

    def __getitem__(self, batch):
        part = slice(batch * self.batch_size, (batch + 1) * self.batch_size)
        return self.x[part], self.y[part]


class Windows(Dataset):
    """Token windows as small GPT projects read them: a memory map, one window per index."""

    def __init__(self, path):
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")

    def __len__(self):
        return (len(self.tokens) - 1) // CONTEXT

    def __getitem__(self, index):
        window = torch.from_numpy(self.tokens[index * CONTEXT : index * CONTEXT + CONTEXT + 1].astype(np.int64))
        return window[:-1], window[1:]


class BatchedWindows(Windows):
    """All windows as a strided view, so that a batch is one gather of u16 and one widening."""

    def __init__(self, path):
        super().__init__(path)
        self.view = np.lib.stride_tricks.as_strided(
            self.tokens, (len(self), CONTEXT + 1), (CONTEXT * 2, 2), writeable=False
        )

    def __getitems__(self, indices):
        windows = torch.from_numpy(self.view[indices].astype(np.int64))
        return windows[:, :-1], windows[:, 1:]


class IndexedWindows(BatchedWindows):
    """The same with batch_size=None: the sampler's list of indices is the index."""

    def __getitem__(self, indices):
        return self.__getitems__(indices)


def as_is(batch):
    return batch


def peers(folder):
    """name -> function that makes an iterable over one epoch, by workload; and the documented ones by number of workers."""
    x = torch.from_numpy(np.fromfile(f"{folder}/x.bin", dtype=np.float32).reshape(ROWS, 20))
    y = torch.from_numpy(np.fromfile(f"{folder}/y.bin", dtype=np.float32).reshape(ROWS, 5))
    path = f"{folder}/tokens.bin"
    pairs, batched_pairs = Pairs(x, y), BatchedPairs(x, y)
    windows, batched_windows, indexed = Windows(path), BatchedWindows(path), IndexedWindows(path)

    def documented(dataset, batch_size):
        made = {}
        for workers in (0, 1, 2, 4):
            made[workers] = DataLoader(
                dataset, batch_size=batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0
            )
        return made

    best_rows = {
        "__getitems__": lambda l=DataLoader(batched_pairs, 256, shuffle=True, collate_fn=as_is): l,
        "slices, batch_size=None": lambda: DataLoader(SlicedPairs(x, y, 256), batch_size=None),
    }
    best_tokens = {
        "__getitems__": lambda l=DataLoader(batched_windows, 16, shuffle=True, collate_fn=as_is): l,
        "indices, batch_size=None": lambda l=DataLoader(
            indexed, batch_size=None, sampler=BatchSampler(RandomSampler(indexed), 16, False)
        ): l,
    }
    return {
        "rows": (documented(pairs, 256), best_rows),
        "tokens": (documented(windows, 16), best_tokens),
    }


def rate(make, seconds, threads):
    """Samples per second over whole epochs, for at least `seconds`, with `threads` threads inside a torch operation."""
    torch.set_num_threads(threads)
    rows = 0
    began = time.perf_counter()
    while True:
        for first, _ in make():
            rows += len(first)
        passed = time.perf_counter() - began
        if passed >= seconds:
            return rows / passed


def digest_rows(groups):
    """A digest of groups of fields: the sum over rows of the first 64 bits of the SHA-256 of the row's bytes, field after field."""
    total = rows = 0
    for fields in groups:
        for row in zip(*fields):
            value = b"".join(field.contiguous().numpy().tobytes() for field in row)
            total += int.from_bytes(hashlib.sha256(value).digest()[:8], "little")
            rows += 1
    return {"digest": str(total % 2**64), "rows": rows}


def digest(loader):
    return digest_rows(loader)


class Ours:
    def __init__(self, program, folder):
        self.process = subprocess.Popen([program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"bench_loader ended at \"{' '.join(map(str, words))}\"")
        return json.loads(line)


def median_with_interval(values):
    """Median and the order statistics that enclose it with a probability of 95 % or more (binomial)."""
    values = sorted(values)
    n = len(values)
    low, probability, term = 0, 0.0, 0.5**n
    for k in range(n // 2):
        probability += term
        if 2 * probability > 0.05:
            break
        low = k
        term = term * (n - k) / (k + 1)
    return float(np.median(values)), values[low], values[n - 1 - low]


def make_data(folder):
    random = np.random.default_rng(0)
    random.random((ROWS, 20), dtype=np.float32).tofile(f"{folder}/x.bin")
    random.random((ROWS, 5), dtype=np.float32).tofile(f"{folder}/y.bin")
    random.integers(0, 50_257, 2_000_001, dtype=np.uint16).tofile(f"{folder}/tokens.bin")


def faster_threads(make):
    """The better of one thread and all threads: with batches this small, more threads in an operation often only cost time."""
    choices = {1, ALL_THREADS}
    rates = {threads: max(rate(make, 0.2, threads) for _ in range(2)) for threads in choices}
    return max(rates, key=rates.get)


def compare(name, ours, documented, best, rounds):
    """One workload: digests, the choice of workers and threads, then the interleaved rounds."""
    expected = ours.ask(name, "digest")
    for make in [lambda: documented[0], *best.values()]:
        found = digest(make())
        if found != expected:
            sys.exit(f"{name}: the delivered bytes differ: {expected} and {found}")
    streams = ours.ask(name, "streams")
    if len(set(streams.values())) != 1:
        sys.exit(f"{name}: the stream depends on the number of readers: {streams}")

    by_workers = {workers: rate(lambda l=loader: l, 0.5, 1) for workers, loader in documented.items()}
    workers = max(by_workers, key=by_workers.get)
    makes = {"documented": lambda: documented[workers], **best}
    threads = {kind: faster_threads(make) for kind, make in makes.items()}
    rates = {"ours": [], **{kind: [] for kind in makes}}
    replies = []
    for _ in range(rounds):
        replies.append(ours.ask(name, "time", 0.15))
        rates["ours"].append(replies[-1]["rate"])
        for kind, make in makes.items():
            rates[kind].append(rate(make, 0.15, threads[kind]))
    best_rates = [max(rates[kind][i] for kind in best) for i in range(rounds)]
    result = {
        "rows": expected["rows"],
        "digest": expected["digest"],
        "stream_sha256": streams["0"],
        "readers": replies[0]["readers"],
        "batch_us": float(np.median([reply["batch_us"] for reply in replies])),
        "turn_round_us_p50": float(np.median([reply["turn_us_p50"] for reply in replies])),
        "turn_round_us_max": max(reply["turn_us_max"] for reply in replies),
        "documented_rate_by_workers": {str(k): v for k, v in by_workers.items()},
        "documented_workers": workers,
        "threads_inside_operations": threads,
        "rate": {kind: float(np.median(values)) for kind, values in rates.items()},
        "ratio": {},
    }
    for peer, values in (("documented", rates["documented"]), ("best", best_rates)):
        middle, low, high = median_with_interval([a / b for a, b in zip(rates["ours"], values)])
        result["ratio"][peer] = {"median": middle, "low": low, "high": high, "bar": BARS[name][peer]}
    return result


def show(name, result):
    unit = "rows" if name == "rows" else "windows"
    print(f"\n{name}: {result['rows']:,} {unit}, digests equal, one stream for 0, 1, 2, 8 readers; {result['readers']}")
    print(f"  {'':34}{unit + '/s':>14}")
    for kind, value in result["rate"].items():
        label = f"documented, {result['documented_workers']} workers" if kind == "documented" else kind
        print(f"  {label:34}{value:>14,.0f}")
    for peer, ratio in result["ratio"].items():
        verdict = "ok" if ratio["median"] >= ratio["bar"] else "MISSED"
        print(
            f"  ours / {peer:12} {ratio['median']:8.2f}   [{ratio['low']:.2f}, {ratio['high']:.2f}]"
            f"   bar {ratio['bar']:g}   {verdict}"
        )
    print(
        f"  a batch {result['batch_us']:.1f} us; epoch turn-round {result['turn_round_us_p50']:.0f} us"
        f" (longest {result['turn_round_us_max']:.0f} us)"
    )


def main():
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # four workers on two cores are meant
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the built bench_loader")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="write the figures there too")
    arguments = parser.parse_args()
    if arguments.rounds < 9:
        parser.error("fewer than 9 rounds give no interval worth the name")

    results = {
        "torch": torch.__version__,
        "cpus": os.cpu_count(),
        "rounds": arguments.rounds,
        "load_average_before": os.getloadavg()[0],
    }
    with tempfile.TemporaryDirectory() as folder:
        make_data(folder)
        ours = Ours(arguments.program, folder)
        for name, (documented, best) in peers(folder).items():
            results[name] = compare(name, ours, documented, best, arguments.rounds)
            show(name, results[name])
            del documented  # ends its workers before the next workload
        ours.process.stdin.close()
        ours.process.wait()
    results["load_average_after"] = os.getloadavg()[0]
    print(f"\n{results['cpus']} CPUs, load average {results['load_average_before']:.1f} before, {results['load_average_after']:.1f} after")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)
    missed = [
        f"{name} against {peer}"
        for name in BARS
        for peer, ratio in results[name]["ratio"].items()
        if ratio["median"] < ratio["bar"]
    ]
    missed += [f"{name} epoch turn-round" for name in BARS if results[name]["turn_round_us_p50"] >= TURN_ROUND_US]
    if missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
