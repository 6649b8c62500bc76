"""headrace.Loader against the program's own loader, and against PyTorch's DataLoader: same files, same machine, in turns.

    ./dev bench python_loader [--rounds 5] [--seconds 2] [--scale 0.25] [--only jpeg]

For HDF5, NIfTI, JPEG and windows of arrays (bench/loader/peers_files.py describes them): samples a second of
  program      millrace bench loader, in C++
  headrace     the same description, as torch tensors in this Python; its bar is 0.95 of the program
  DataLoader   a map-style data set and the default collate, with the best of 0, 1, 2 and 4 workers; the bar is 1.5 times its rate
and for batches that cost nothing to read the microseconds of CPU that a batch takes in this Python; the bar is 20. The figures are medians
of rounds and of the rounds' ratios; where other programs run, the CPU seconds say more than the rates. The bytes of both sides of ours
are compared first. Losing figures are printed like the others.
"""
import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench/loader")]
import peers_files  # noqa: E402
from headrace import Loader, Pipeline  # noqa: E402

KINDS = [peers_files.Hdf5, peers_files.Nifti, peers_files.Jpeg, peers_files.Grouped]
BARS = {"program": 0.95, "DataLoader": 1.5}


def loader_of(description, **options):
    keys = {name: value for name, value in description.items() if name != "data"}
    return Loader(Pipeline(description["data"]), **{"shuffle": True, "seed": 1, "cache": "off", **keys, **options})


def leaves(batch):
    for value in batch.values():
        yield from leaves(value) if isinstance(value, dict) else [value]


def rows_of(batch):
    """Samples of a batch: each group's rows."""
    first = next(iter(batch.values()))
    return sum(len(next(iter(group.values()))) for group in batch.values()) if isinstance(first, dict) else len(first)


def our_rate(description, seconds):
    """Samples a second, and the CPU seconds of 1,000."""
    with loader_of(description) as loader:
        began = now = time.perf_counter()
        cpu, rows = time.process_time(), 0
        while now - began < seconds:
            for batch in loader:
                rows += rows_of(batch)
                now = time.perf_counter()
                if now - began >= seconds:
                    break
        return rows / (now - began), (time.process_time() - cpu) * 1e3 / rows


def peer_rate(loader, seconds):
    began = now = time.perf_counter()
    rows = 0
    while now - began < seconds:
        for batch in loader:
            rows += len(batch) if hasattr(batch, "shape") else sum(len(group) for group in batch) if isinstance(batch, tuple) else len(batch[0])
            now = time.perf_counter()
            if now - began >= seconds:
                break
    return rows / (now - began)


def measured(program, file, *options):
    done = subprocess.run([program, "bench", "loader", file, "--json", *options], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def program_rate(program, file, seconds):
    said = measured(program, file, "--quick", f"--seconds={seconds}")
    return said["samples_per_s"], said["cpu_s_per_1000"]


def check_bytes(program, file, description):
    """The digest of an epoch with the randomness off: the sum of the first 64 bits of the SHA-256 of each sample."""
    expected = measured(program, file, "--seconds=1")["digest"]
    total = 0
    with loader_of(description, as_="numpy") as loader:
        for batch in loader:
            groups = batch.values() if isinstance(next(iter(batch.values())), dict) else [batch]
            for group in groups:
                for row in range(len(next(iter(group.values())))):
                    sample = hashlib.sha256()
                    for array in group.values():
                        sample.update(array[row].tobytes())
                    total += int.from_bytes(sample.digest()[:8], "little")
    if str(total % 2**64) != expected:
        sys.exit(f"{file}: the bytes differ")


def batch_microseconds(fields, as_, seconds=0.5):
    """CPU time of a batch of four rows that cost nothing, all of it in this thread."""
    data = {"kind": "memory", "shapes": {f"x{i}": [4] for i in range(fields)}, "samples": 40_000}
    with loader_of({"data": data, "batch_size": 4}, readers=0, as_=as_) as loader:
        batches, began = 0, time.thread_time()
        while time.thread_time() - began < seconds:
            for _ in loader:
                batches += 1
        return (time.thread_time() - began) / batches * 1e6


def compare(workload, program, rounds, seconds):
    file = workload.path(workload.name + ".json")
    fixed = workload.name + "-fixed"
    check_bytes(program, workload.path(fixed + ".json"), workload.describe()[fixed])
    peers = {workers: workload.documented(workers) for workers in workload.workers}
    by_workers = {workers: max(peer_rate(peer, seconds / 2) for _ in range(2)) for workers, peer in peers.items()}
    workers = max(by_workers, key=by_workers.get)
    rates = {"program": [], "headrace": [], "DataLoader": []}
    cpu = {"program": [], "headrace": []}
    for _ in range(rounds):
        for side, (rate, seconds_of_cpu) in (("program", program_rate(program, file, max(1, round(seconds)))),
                                             ("headrace", our_rate(workload.description, seconds))):
            rates[side].append(rate)
            cpu[side].append(seconds_of_cpu)
        rates["DataLoader"].append(peer_rate(peers[workers], seconds))
    ratios = {peer: [ours / theirs for ours, theirs in zip(rates["headrace"], rates[peer])] for peer in BARS}
    return {"workers": workers, "by_workers": by_workers, "rates": rates, "ratios": ratios, "cpu": cpu}


def show(name, result):
    print(f"\n{name}, samples/s")
    for side, values in result["rates"].items():
        more = f", {result['workers']} workers" if side == "DataLoader" else ""
        print(f"  {side + more:28}{statistics.median(values):>12,.0f}   {', '.join(f'{value:,.0f}' for value in values)}")
    for peer, ratios in result["ratios"].items():
        median = statistics.median(ratios)
        verdict = "ok" if median >= BARS[peer] else "MISSED"
        print(f"  headrace / {peer:17}{median:>12.2f}   {min(ratios):.2f}..{max(ratios):.2f}   bar {BARS[peer]}   {verdict}")
    ours, theirs = (statistics.median(result["cpu"][side]) for side in ("headrace", "program"))
    print(f"  CPU seconds of 1,000 samples{ours:>9.3f} and {theirs:.3f} of the program")


def main():
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=os.path.abspath, help="the built millrace")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--scale", type=float, default=0.25, help="of the numbers of files")
    parser.add_argument("--only", action="append", help="hdf5, nifti, jpeg or grouped")
    parser.add_argument("--json", help="write the figures there too")
    arguments = parser.parse_args()
    os.environ.setdefault("HEADRACE_LIBRARY", str(Path(arguments.program).resolve().parent / "libheadrace.so"))
    cpu = next((line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    print(f"{cpu}, {len(os.sched_getaffinity(0))} CPUs, load average {os.getloadavg()[0]:.1f}")
    folder = ROOT / f"build/loader-data-{arguments.scale:g}"
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    results = {"cpu": cpu, "batch_us": {}}
    for fields in (1, 2):
        for as_ in ("numpy", "torch"):
            figure = results["batch_us"][f"{as_}, {fields} fields"] = min(batch_microseconds(fields, as_) for _ in range(3))
            print(f"a batch of {fields} fields as {as_:6}{figure:>8.1f} us   bar 20   {'ok' if figure <= 20 else 'MISSED'}")
    for kind in KINDS:
        if arguments.only and kind.name not in arguments.only:
            continue
        workload = kind(str(folder), arguments.scale)
        workload.make()
        peers_files.write_descriptions(workload)
        results[kind.name] = compare(workload, arguments.program, arguments.rounds, arguments.seconds)
        show(kind.name, results[kind.name])
    print(f"\nload average {os.getloadavg()[0]:.1f} after")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
