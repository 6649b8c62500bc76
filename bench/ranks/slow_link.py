"""Two machines over a link of a chosen rate and delay: compares what gradients cost there with what a model of the link predicts.

    sudo tools/python-peer bench/ranks/slow_link.py build/release/millrace [--rounds 3] [--steps 24] [--every 8] [--json FILE]

The machines are network namespaces, a rank of one thread in each, on a core of its own. Their link is a pair of TUN devices between which
this program carries every packet: one after the other at the link's rate, each delivered after its delay. (A kernel with netem could do
it; this program needs no netem.) Ways: gradients in small buckets, one sum after the pass, bf16 on the wire, weights averaged every so many steps.
"alone" is a rank's step without any exchange, while both work; "near" is the step of two ranks on this machine's loopback. Efficiency = alone / step.

The model knows what "near" takes, its backward pass's share, the link's rate and delay, and counts that a run writes into its
summary.json (bytes, exchanges, buckets that left early). Its one free parameter is SPARE_CORES: a rank whose only core computes
hides no transfer during its backward pass. Needs root.
"""

import argparse
import collections
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

MTU = 32000
SIDES = ("millrace-a", "millrace-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
SHAPE = ["--preset=smoke", "--recipe.model_embd=160", "--recipe.model_layer=4", "--recipe.model_head=4", "--data.batch_size=8",
         "--precision.dtype=fp32", "--device.layout=contiguous", "--device.kernels=ours", "--device.threads=1", "--data.workers=0",
         "--train.epochs=0", "--train.validate_every=1000000", "--snapshot.every_steps=0", "--log.doctor=false", "--log.tensorboard=false",
         "--log.every=1000000", "--distributed.check_every=0", "--train.off=rehearsal"]
PER_RANK = 8


def quietly(*words):
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def carry(ends, rate, delay):
    """Carries packets from each end to the other, until the process is ended. `rate` in bytes, `delay` in seconds."""
    waiting = {end: collections.deque() for end in ends}  # for this end: (when, packet)
    free = dict.fromkeys(ends, 0.0)
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    while True:
        now = time.monotonic()
        due = [queue[0][0] for queue in waiting.values() if queue]
        ready, _, _ = select.select(ends, [], [], max(min(due) - now, 0) if due else None)
        for end in ready:
            packet = os.read(end, MTU + 64)
            there = other[end]
            free[there] = max(free[there], time.monotonic()) + len(packet) / rate
            waiting[there].append((free[there] + delay, packet))
        now = time.monotonic()
        for end, queue in waiting.items():
            while queue and queue[0][0] <= now:
                with contextlib.suppress(OSError):
                    os.write(end, queue.popleft()[1])


class Link:
    """Two namespaces and the process that carries their packets."""

    def __init__(self, rate, delay):
        self.ends = []
        for side, address in zip(SIDES, ADDRESSES):
            quietly("ip", "netns", "del", side)
            subprocess.run(["ip", "netns", "add", side], check=True)
            end = os.open("/dev/net/tun", os.O_RDWR)
            device = f"mr{os.getpid()}{side[-1]}"[:15]
            fcntl.ioctl(end, 0x400454CA, struct.pack("16sH", device.encode(), 0x1001))  # TUNSETIFF; IFF_TUN | IFF_NO_PI
            inside = ["ip", "netns", "exec", side, "ip"]
            for words in (["ip", "link", "set", device, "netns", side], [*inside, "link", "set", "lo", "up"],
                          [*inside, "addr", "add", f"{address}/24", "dev", device], [*inside, "link", "set", device, "mtu", str(MTU), "up"]):
                subprocess.run(words, check=True)
            self.ends.append(end)
        self.carrier = os.fork()
        if self.carrier == 0:
            with contextlib.suppress(KeyboardInterrupt):
                carry(self.ends, rate, delay)
            os._exit(0)

    def close(self):
        os.kill(self.carrier, signal.SIGKILL)
        os.waitpid(self.carrier, 0)
        for end, side in zip(self.ends, SIDES):
            os.close(end)
            quietly("ip", "netns", "del", side)


class Runs:
    def __init__(self, program, folder, steps):
        self.program, self.folder, self.steps, self.number = program, folder, steps, 0

    def command(self, core, side, launch, words):
        self.number += 1
        run = self.folder / f"run{self.number}"
        return run, ["ip", "netns", "exec", side, "taskset", "-c", str(core), self.program, *launch, "train", "language_model", *SHAPE,
                     f"--train.max_steps={self.steps}", f"--run={run}", *words]

    def finish(self, started):
        for child in started:
            out, _ = child.communicate()
            if child.returncode != 0:
                sys.exit(f"Error  a rank ended with {child.returncode}\n  where    {' '.join(child.args)}\n{out}")

    def start(self, command):
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")})

    def alone(self, cores):
        """Seconds of a step, both cores at work."""
        runs = [self.command(core, side, [], []) for core, side in zip(cores, SIDES)]
        self.finish([self.start(command) for _, command in runs])
        summaries = [json.loads((run / "summary.json").read_text()) for run, _ in runs]
        return max(PER_RANK / summary["samples_per_s"] for summary in summaries)

    def near(self, words):
        """Seconds of a step of two ranks on the loopback, and of rank 0's backward pass."""
        self.number += 1
        run = self.folder / f"run{self.number}"
        self.finish([self.start([self.program, "launch", "--nproc", "2", "train", "language_model", *SHAPE,
                                 f"--train.max_steps={self.steps}", f"--run={run}", *words])])
        summary = json.loads((run / "summary.json").read_text())
        return 2 * PER_RANK / summary["samples_per_s"], summary["accounts"]["backward"] / summary["steps"]

    def together(self, cores, words):
        """Seconds of a step of two ranks, and rank 0's summary."""
        place = f"{ADDRESSES[0]}:{29500 + self.number % 1000}"
        runs = [self.command(core, side, ["launch", "--nproc", "1", "--nodes", "2", "--rank", str(rank), "--at", place, "--bind", "none"], words)
                for rank, (core, side) in enumerate(zip(cores, SIDES))]
        self.finish([self.start(command) for _, command in runs])
        summary = json.loads((runs[0][0] / "summary.json").read_text())
        return 2 * PER_RANK / summary["samples_per_s"], summary


SPARE_CORES = 0  # of a rank, whose only core computes and carries its packets. Chosen after measuring: with the overlap of a free core, small
#                  buckets come out 18 and 14 % too fast on the two links.


def predicted(near, backward, summary, rate, delay, every):
    """Seconds of a step. An exchange of a few bytes takes one delay, a sum two (each rank sends a half, and receives the sum of the other half).

    If gradients leave in n buckets, the last leaves when the backward pass has ended; the others travel during that pass, as long as it
    lasts and if the rank has a spare core.
    """
    steps, sent = summary["steps"], summary["gradients_sent"]
    exchanges = sent["exchanges"] / steps
    if every > 1:
        to_the_other = summary["weights_sent"]["bytes"] / steps / rate
        return near + to_the_other + exchanges * 1.5 * delay
    sums = 1.0  # of counts
    transfer = sent["bytes"] / steps / rate
    buckets = max(sent["buckets"] / steps, 1.0)
    early = max(sent["early_buckets"] / steps - 1, 0.0) / buckets
    hidden = min(early * transfer, early * backward) if SPARE_CORES > 0 else 0.0
    return near + (exchanges + sums) * delay + transfer + 2 * delay - hidden


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--every", type=int, default=8, help="steps between averages")
    parser.add_argument("--links", nargs="+", default=["1000/2", "50/40"], help="Mbit/s and milliseconds there and back")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    ways = {"buckets of 1 MB": ["--distributed.bucket_bytes=1000000"], "one sum": ["--distributed.bucket_bytes=0"], "bf16 on the wire": ["--distributed.compress=true"],
            f"averaged every {options.every}": [f"--distributed.average_every={options.every}"]}
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        sys.exit("Error  two ranks need two cores")
    folder = Path(tempfile.mkdtemp(prefix="millrace-link-"))
    rows = []
    runs = Runs(os.path.abspath(options.program), folder, options.steps)
    try:
        for link_text in options.links:
            mbit, back_ms = (float(part) for part in link_text.split("/"))
            rate, delay = mbit * 1e6 / 8, back_ms * 1e-3 / 2
            link = Link(rate, delay)
            try:
                measured, near, backward = ({name: [] for name in ways} for _ in range(3))
                alone, summaries = [], {}
                for _ in range(options.rounds):
                    alone.append(runs.alone(cores))
                    for name, words in ways.items():
                        seconds, pass_s = runs.near(words)
                        near[name].append(seconds)
                        backward[name].append(pass_s)
                        seconds, summaries[name] = runs.together(cores, words)
                        measured[name].append(seconds)
            finally:
                link.close()
            one = median(alone)
            print(f"{mbit:g} Mbit/s, {back_ms:g} ms there and back; a rank alone {one * 1e3:.0f} ms a step")
            for name in ways:
                every = options.every if "averaged" in name else 1
                step, model = median(measured[name]), predicted(median(near[name]), median(backward[name]), summaries[name], rate, delay, every)
                row = {"link": link_text, "way": name, "alone_ms": one * 1e3, "near_ms": median(near[name]) * 1e3, "step_ms": step * 1e3, "model_ms": model * 1e3,
                       "efficiency": one / step, "model_off": model / step - 1, "sent": summaries[name]["gradients_sent"]}
                rows.append(row)
                print(f"  {name:20} {step * 1e3:8.0f} ms   efficiency {one / step:5.2f}   near {median(near[name]) * 1e3:5.0f} ms   model {model * 1e3:8.0f} ms ({model / step - 1:+.0%})")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
