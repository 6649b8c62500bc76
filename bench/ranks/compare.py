"""The step of several ranks on this machine against Python's DistributedDataParallel: same model, ranks, cores; one run, interleaved.

    tools/python-peer bench/ranks/compare.py build/release/millrace [--ranks 2] [--rounds 9] [--steps 3] [--dtypes fp32] [--compile] [--rivals NAME...] [--json FILE]

Each way is a set of processes, a rank with one thread on a core of its own; the sets take turns, after heats among Python's settings. A step of a set is that of its slowest
rank. Ours: buckets that leave during the backward pass, one sum after it, bf16 on the wire. Python's: its settings (bucket size, gradients as
bucket views, static graph, bf16 hook), with glibc's malloc as it is or keeping what is freed, and with --compile torch.compile. The ratio is
to the fastest of Python's; ways with bf16 on the wire are compared with each other. Exits 1 where ours is slower.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "step"))

from turns import CPU, CPU_HELP, KEPT, interval, lower_instructions  # noqa: E402

OURS = {"ours": [], "ours, one sum": ["--distributed.bucket_bytes=0"], "ours, compressed": ["--distributed.compress=true"]}
PEERS = {"ddp": [], "ddp views": ["--views"], "ddp views static": ["--views", "--static"], "ddp 1 MB": ["--bucket-mb", "1", "--views", "--static"],
         "ddp compressed": ["--views", "--static", "--compress"]}


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Ranks:
    """Processes that step together: in a round each gets a line and gives an answer."""

    def __init__(self, name, command, options, more=None):
        self.name, self.times = name, []
        cores = sorted(os.sched_getaffinity(0))
        place = {"WORLD_SIZE": str(options.ranks), "LOCAL_WORLD_SIZE": str(options.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        self.children = []
        for rank in range(options.ranks):
            environment = {**os.environ, **(more or {}), **place, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            core = cores[rank * len(cores) // options.ranks]
            self.children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
                                                  preexec_fn=lambda core=core: os.sched_setaffinity(0, {core})))

    def read(self):
        answers = [json.loads(child.stdout.readline() or "null") for child in self.children]
        if None in answers:
            sys.exit(f"Error  a rank of \"{self.name}\" ended without an answer\n  next     run it by hand: {' '.join(self.children[0].args)}")
        return answers

    def round(self, counts=True):
        for child in self.children:
            child.stdin.write("go\n")
            child.stdin.flush()
        steps = [max(ms) for ms in zip(*(answer["ms"] for answer in self.read()))]
        if counts:
            self.times.append(median(steps))

    def close(self):
        for child in self.children:
            child.stdin.close()
        for child in self.children:
            child.wait()


def ours(name, options, dtype):
    command = [options.program, "bench", "step", "language_model", "--shape", "cpu-small", "--precision", dtype, "--threads", "1", "--warmup", "3",
               "--steps", str(options.steps), "--rounds", "stdin", "--json", *OURS[name]]
    way = Ranks(name, command, options)
    way.round(counts=False)  # with its trials and warm-up steps; alone
    return way


def peer(name, mode, kept, options, dtype):
    command = [sys.executable, str(HERE / "ddp_step_peer.py"), "--mode", mode, "--dtype", dtype, "--threads", "1", "--steps", str(options.steps),
               *PEERS[name]]
    way = Ranks(name + (" compiled" if mode == "compile" else "") + (" kept" if kept else ""), command, options, KEPT if kept else None)
    way.read()  # its first step
    return way


def fastest_peers(options, dtype):
    """The two fastest of the peers' settings of each kind. Each runs alone for two rounds: all of them at once would fill the memory."""
    heats = {}
    for mode in ["eager", "compile"] if options.compile else ["eager"]:
        for name in PEERS:
            for kept in (False, True):
                way = peer(name, mode, kept, options, dtype)
                way.round(counts=False)
                for _ in range(2):
                    way.round()
                way.close()
                heats[name, mode, kept] = min(way.times)
                print(f"  heat: {way.name} {heats[name, mode, kept]:.0f} ms", flush=True)
    chosen = []
    for compressed in (False, True):
        ways = sorted((way for way in heats if ("compressed" in way[0]) == compressed), key=heats.get)
        chosen += ways[:2]
    return chosen


def way_named(name):
    """As heats print it: "ddp views static compiled kept"."""
    kept, compiled = name.endswith(" kept"), " compiled" in name
    setting = name.removesuffix(" kept").removesuffix(" compiled")
    if setting not in PEERS:
        sys.exit(f"Error  no setting of Python's is called \"{setting}\"\n  next     one of: {', '.join(PEERS)}, with \" compiled\" and \" kept\"")
    return setting, "compile" if compiled else "eager", kept


def measure(options, dtype):
    chosen = [way_named(name) for name in options.rivals] if options.rivals else fastest_peers(options, dtype)
    ways = [ours(name, options, dtype) for name in OURS] + [peer(*way, options, dtype) for way in chosen]
    for _ in range(2):
        for way in ways:
            way.round(counts=False)
    for _ in range(options.rounds):
        for way in ways:
            way.round()
    for way in ways:
        way.close()
    times = {way.name: way.times for way in ways}
    step = {name: median(values) for name, values in times.items()}
    result = {"dtype": dtype, "step_ms": step}
    print(dtype, "  ".join(f"{name} {ms:.0f} ms" for name, ms in step.items()))
    for own, compressed in (("ours", False), ("ours, one sum", False), ("ours, compressed", True)):
        rivals = [name for name in step if name.startswith("ddp") and ("compressed" in name) == compressed]
        rival = min(rivals, key=step.get)
        ratio, low, high = interval([a / b for a, b in zip(times[own], times[rival])])
        result[own] = {"rival": rival, "ratio": ratio, "interval": [low, high]}
        print(f"  {own} / {rival}: {ratio:.3f} ({low:.3f}..{high:.3f})", flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the millrace program")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--compile", action="store_true", help="also torch.compile (minutes to start)")
    parser.add_argument("--rivals", nargs="+", metavar="NAME", help="settings of Python's, as heats print them; without heats")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cpu", choices=CPU, help=CPU_HELP)
    options = parser.parse_args()
    lower_instructions(options.cpu)
    results = [measure(options, dtype) for dtype in options.dtypes]
    if options.json:
        options.json.write_text(json.dumps({"results": results, "cpu": options.cpu, "load_average": os.getloadavg()}, indent=1) + "\n")
    return 1 if any(row["ours"]["ratio"] > 1 for row in results) else 0


if __name__ == "__main__":
    sys.exit(main())
