"""headrace.Loader(device="cuda") in a training loop on a GPU: nothing is torn, and the copies cost no time.

    python bench/python_loader/device.py [--batches 10000] [--steps 200] [--seconds N] [--json FILE]

torn        batches whose rows hold their own numbers are checked on the device, and their order with a loader in host memory
exposed     what a training step takes longer with the loader than with a batch that lies on the device already; the bar is 2 %
DataLoader  the same step with pinned memory, non_blocking copies and the best of 2, 4 and 8 workers; one that fails, as where /dev/shm is
            small, is left out

Needs libheadrace.so (HEADRACE_LIBRARY, or an installed headrace) and torch with CUDA. With --device cpu it rehearses all but the copies.
"""
import argparse
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
if (ROOT / "python/headrace").is_dir():
    sys.path.insert(0, str(ROOT / "python"))
from headrace import Loader, Pipeline  # noqa: E402

EXPOSED_BAR = 0.02


def numbered(samples, width):
    """Samples that hold their own number everywhere."""
    return Pipeline({"kind": "sleeping", "samples": samples, "shape": [width], "sleep_ms": 0, "slow_ms": 0})


def torn(device, batches, until, width=16384, rows=32, per_epoch=500):
    """No epoch begins after `until` (time.monotonic()), but the first. (batches, how many rows were torn, how many batches were not those of a loader in host memory)."""
    data, options = numbered(rows * per_epoch, width), {"shuffle": True, "seed": 3}
    wrong, seen = 0, 0
    with Loader(data, rows, device=device, **options) as loader, Loader(numbered(rows * per_epoch, 1), rows, as_="torch", **options) as host:
        bad = torch.zeros((), dtype=torch.int64, device=device)
        while seen < batches and (seen == 0 or time.monotonic() < until):
            firsts = []
            for batch in loader:
                x = batch["x"]
                bad += (x != x[:, :1]).any(dim=1).sum()
                firsts.append(x[:, 0].clone())
                torch.mm(x, x.T)  # the device is behind the loop, as in training
                seen += 1
            expected = [batch["x"][:, 0].clone() for batch in host]
            wrong += sum(not torch.equal(one.cpu(), other) for one, other in zip(firsts, expected))
        return seen, int(bad), wrong


class Training:
    """A step of a small convolution net on pictures."""

    def __init__(self, device, shape):
        torch.manual_seed(0)
        layers, width = [], shape[0]
        for _ in range(4):
            layers += [torch.nn.Conv2d(width, 64, 3, padding=1), torch.nn.ReLU()]
            width = 64
        self.net = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1)).to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 1e-3)

    def __call__(self, x):
        self.optimizer.zero_grad()
        self.net(x).square().mean().backward()
        self.optimizer.step()


def seconds_of(step, batches, steps, device, warm=10):
    """Seconds of a step over `steps` of them, the device's work included."""
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    for number, x in enumerate(batches):
        if number == warm:
            wait()
            began = time.perf_counter()
        step(x)
        if number == warm + steps - 1:
            break
    wait()
    return (time.perf_counter() - began) / steps


class Pictures(torch.utils.data.Dataset):
    def __init__(self, samples, shape):
        self.pictures = torch.rand(samples, *shape)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.pictures[index]


def forever(loader, take):
    while True:
        for batch in loader:
            yield take(batch)


def compare(device, steps, rounds, small, until):
    """No round begins after `until` (time.monotonic()), but the first."""
    shape, rows, samples = ((3, 32, 32), 4, 64) if small else ((3, 224, 224), 64, 512)
    step = Training(device, shape)
    data = Pipeline({"kind": "memory", "shapes": {"x": list(shape)}, "samples": samples})
    on_device = torch.rand(rows, *shape, device=device)
    pictures = Pictures(samples, shape)
    peers = {}
    for workers in (0,) if small else (2, 4, 8):
        peer = torch.utils.data.DataLoader(pictures, rows, shuffle=True, num_workers=workers, pin_memory=device != "cpu",
                                           persistent_workers=workers > 0)
        peers[f"DataLoader, {workers} workers"] = forever(peer, lambda x: x.to(device, non_blocking=True))
    with Loader(data, rows, shuffle=True, device=device) as loader:
        sides = {"resident": forever([on_device], lambda x: x), "headrace": forever(loader, lambda batch: batch["x"]), **peers}
        times, left_out = {name: [] for name in sides}, {}
        for number in range(rounds):
            if number > 0 and time.monotonic() > until:
                break
            for name, batches in sides.items():
                if name in left_out:
                    continue
                try:
                    times[name].append(seconds_of(step, batches, steps, device))
                except RuntimeError as error:
                    if name not in peers:
                        raise
                    left_out[name] = str(error).splitlines()[0]
        plan = loader.plan()
    exposed = [ours / alone - 1 for ours, alone in zip(times["headrace"], times["resident"])]
    measured = {name: statistics.median(values) for name, values in times.items() if values and name not in left_out}
    best = min((name for name in peers if name in measured), key=measured.get, default=None)
    return {"ms": {name: value * 1e3 for name, value in measured.items()}, "exposed": statistics.median(exposed), "exposed_rounds": exposed,
            "best_peer": best, "left_out": left_out, "bar": EXPOSED_BAR, "batch_bytes": on_device.numel() * 4, "plan": plan}


def write(file, found):
    """Whole or not at all, as this program may be stopped."""
    if file:
        new = Path(f"{file}.new")
        new.write_text(json.dumps(found, indent=1))
        os.replace(new, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="sizes of a rehearsal")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing further after this time")
    parser.add_argument("--json", help="write the figures there too, those of each part when it is done")
    options = parser.parse_args()
    began = time.monotonic()
    seen, rows, batches = torn(options.device, options.batches, began + options.seconds / 3, 256 if options.small else 16384)
    print(f"{seen:,} batches: {rows} rows torn, {batches} batches wrong", flush=True)
    found = {"batches": seen, "torn_rows": rows, "wrong_batches": batches}
    write(options.json, found)
    found.update(compare(options.device, options.steps, options.rounds, options.small, began + options.seconds))
    write(options.json, found)
    for name, value in found["ms"].items():
        print(f"  ms of a step, {name:24}{value:>8.3f}")
    for name, why in found["left_out"].items():
        print(f"  left out: {name}: {why}")
    print(f"  exposed                               {found['exposed']:>8.1%}   bar {EXPOSED_BAR:.0%}   "
          f"{'ok' if found['exposed'] <= EXPOSED_BAR else 'MISSED'}\n{found['plan']}")


if __name__ == "__main__":
    main()
