"""headrace.Loader against the program's own loader, and against PyTorch's DataLoader, torchdata and SPDL: same files, same machine, in turns.

    ./dev bench python_loader [--rounds 5] [--seconds 2] [--scale 0.25] [--only jpeg]

For HDF5, NIfTI, JPEG and windows of arrays (bench/loader/peers_files.py describes them): samples a second of
  program      millrace bench loader, in C++
  headrace     the same description, as torch tensors in this Python; its bar is 0.95 of the program
  the peers    a map-style data set, each with its best number of workers or threads (peers.py says how); the bar is 1.5 times the fastest
and, with a step of 20 ms that uses all cores, the time of a step; the bar is 0.7 of DataLoader's. For batches that cost nothing to read
the microseconds of CPU that a batch takes in this Python; the bar is 20. The figures are medians of rounds and of the rounds' ratios;
where other programs run, the CPU seconds say more than the rates. The bytes of both sides of ours are compared first. Losing figures are
printed like the others. torchdata and SPDL are peers where they are installed: bench/loader/requirements.txt.
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
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench/loader"), str(ROOT / "build/loader-peers")]
import peers  # noqa: E402
import peers_files  # noqa: E402
import torch  # noqa: E402
from headrace import Loader, Pipeline  # noqa: E402

KINDS = [peers_files.Hdf5, peers_files.Nifti, peers_files.Jpeg, peers_files.Grouped]
BARS = {"program": 0.95, "the fastest peer": 1.5}
STEP_MS, STEP_BAR = 20, 0.7


def loader_of(description, **options):
    keys = {name: value for name, value in description.items() if name != "data"}
    return Loader(Pipeline(description["data"]), **{"shuffle": True, "seed": 1, "cache": "off", **keys, **options})


def leaves(batch):
    for value in batch.values():
        yield from leaves(value) if isinstance(value, dict) else [value]


def rows_of(batch):
    """Samples of a peer's batch."""
    if hasattr(batch, "shape"):
        return len(batch)
    return sum(len(group) for group in batch) if isinstance(batch, tuple) else len(batch[0])


def our_rate(description, seconds):
    """Samples a second, and the CPU seconds of 1,000."""
    with loader_of(description) as loader:
        began = now = time.perf_counter()
        cpu = time.process_time()
        while now - began < seconds:
            for _ in loader:
                now = time.perf_counter()
                if now - began >= seconds:
                    break
        spent = time.process_time() - cpu
        rows = loader.counters()["samples"]
        return rows / (now - began), spent * 1e3 / rows


def peer_rate(loader, seconds):
    began = now = time.perf_counter()
    rows = 0
    while now - began < seconds:
        for batch in loader:
            rows += rows_of(batch)
            now = time.perf_counter()
            if now - began >= seconds:
                break
    return rows / (now - began)


class Step:
    """Convolutions that take about STEP_MS when they have the machine to themselves."""

    def __init__(self):
        self.image, self.weight = torch.rand(8, 64, 56, 56), torch.rand(64, 64, 3, 3)
        self.passes = 1
        times = []
        for _ in range(20):
            began = time.perf_counter()
            self()
            times.append(time.perf_counter() - began)
        self.passes = max(1, round(STEP_MS / 1e3 / min(times)))

    @torch.no_grad()
    def __call__(self):
        for _ in range(self.passes):
            torch.conv2d(self.image, self.weight, padding=1)


def cpu_seconds():
    """Of this process and of those below it that live."""
    ticks, wanted = 0, [os.getpid()]
    while wanted:
        process = Path(f"/proc/{wanted.pop()}")
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            wanted += [int(child) for task in (process / "task").iterdir() for child in (task / "children").read_text().split()]
        except OSError:  # it has ended
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def step_seconds(loader, step, seconds):
    """Seconds and CPU seconds of a step with its batch; the seconds without the first ones, whose batches may have been prepared before."""
    times, began, cpu = [], time.perf_counter(), cpu_seconds()
    while time.perf_counter() - began < seconds or len(times) < 8:
        last = time.perf_counter()
        for _ in loader:
            step()
            now = time.perf_counter()
            times.append(now - last)
            last = now
            if now - began >= seconds and len(times) >= 8:
                break
    return sum(times[4:]) / len(times[4:]), (cpu_seconds() - cpu) / len(times)


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


def best_of(family, measure, best=max):
    """The name and the loader of a library's best set-up."""
    figures = {name: measure(loader) for name, loader in family.items()}
    name = best(figures, key=figures.get)
    return name, family[name]


def compare(workload, program, rounds, seconds):
    file = workload.path(workload.name + ".json")
    fixed = workload.name + "-fixed"
    check_bytes(program, workload.path(fixed + ".json"), workload.describe()[fixed])
    chosen = {library: best_of(family, lambda loader: max(peer_rate(loader, seconds / 3) for _ in range(2)))
              for library, family in peers.families(workload).items()}
    rates = {side: [] for side in ("program", "headrace", *chosen)}
    cpu = {"program": [], "headrace": []}
    for _ in range(rounds):
        for side, (rate, seconds_of_cpu) in (("program", program_rate(program, file, max(1, round(seconds)))),
                                             ("headrace", our_rate(workload.description, seconds))):
            rates[side].append(rate)
            cpu[side].append(seconds_of_cpu)
        for library, (_, loader) in chosen.items():
            rates[library].append(peer_rate(loader, seconds))
    fastest = [max(values) for values in zip(*(rates[library] for library in chosen))]
    ratios = {peer: [ours / theirs for ours, theirs in zip(rates["headrace"], values)]
              for peer, values in (("program", rates["program"]), ("the fastest peer", fastest))}
    return {"set_up": {library: name for library, (name, _) in chosen.items()}, "rates": rates, "ratios": ratios, "cpu": cpu}


def compare_steps(workload, step, rounds, seconds):
    """Seconds of a step of ours and of the best DataLoader, in turns."""
    name, peer = best_of({f"{n} workers": workload.documented(n) for n in workload.workers}, lambda loader: step_seconds(loader, step, seconds / 2)[0], min)
    times, cpu = {"headrace": [], "DataLoader": []}, {"headrace": [], "DataLoader": []}
    with loader_of(workload.description) as ours:
        for _ in range(rounds):
            for side, loader in (("headrace", ours), ("DataLoader", peer)):
                of_wall, of_cpu = step_seconds(loader, step, seconds)
                times[side].append(of_wall)
                cpu[side].append(of_cpu)
    return {"set_up": name, "seconds": times, "cpu": cpu}


def show(name, result):
    print(f"\n{name}, samples/s")
    for side, values in result["rates"].items():
        more = ", " + result["set_up"][side] if side in result["set_up"] else ""
        print(f"  {side + more:28}{statistics.median(values):>12,.0f}   {', '.join(f'{value:,.0f}' for value in values)}")
    for peer, ratios in result["ratios"].items():
        median = statistics.median(ratios)
        verdict = "ok" if median >= BARS[peer] else "MISSED"
        print(f"  headrace / {peer:17}{median:>12.2f}   {min(ratios):.2f}..{max(ratios):.2f}   bar {BARS[peer]}   {verdict}")
    ours, theirs = (statistics.median(result["cpu"][side]) for side in ("headrace", "program"))
    print(f"  CPU seconds of 1,000 samples{ours:>11.5f} and {theirs:.5f} of the program")


def show_steps(result):
    for side, values in result["seconds"].items():
        more = ", " + result["set_up"] if side == "DataLoader" else ""
        print(f"  ms of a step, {side + more:24}{statistics.median(values) * 1e3:>8.1f}   {', '.join(f'{value * 1e3:.1f}' for value in values)}")
    ratios = [ours / theirs for ours, theirs in zip(result["seconds"]["headrace"], result["seconds"]["DataLoader"])]
    median = statistics.median(ratios)
    verdict = "ok" if median <= STEP_BAR else "MISSED"
    print(f"  of DataLoader's time         {median:>11.2f}   {min(ratios):.2f}..{max(ratios):.2f}   bar {STEP_BAR}   {verdict}")
    ours, theirs = (statistics.median(result["cpu"][side]) * 1e3 for side in ("headrace", "DataLoader"))
    print(f"  CPU ms of a step             {ours:>11.1f} and {theirs:.1f} of DataLoader: {ours / theirs:.2f}")


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
    for name in peers.MISSING:
        print(f"{name} is not installed: not a peer here")
    results = {"cpu": cpu, "batch_us": {}}
    step = Step()
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
        if kind is peers_files.Grouped:  # a batch takes microseconds: next to a step of 20 ms all loaders are equal
            continue
        results[kind.name]["steps"] = compare_steps(workload, step, arguments.rounds, arguments.seconds)
        show_steps(results[kind.name]["steps"])
    print(f"\nload average {os.getloadavg()[0]:.1f} after")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
