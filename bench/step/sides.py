"""What the step benches of several Python ways share: both sides as programs that take turns, what is printed, and the bars."""

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median

from compare import CPU, CPU_HELP, KEPT, Program, lower_instructions, turn

HERE = Path(__file__).resolve().parent


class Sides:
    """Makes the programs of both sides, for one number format."""

    def __init__(self, options, dtype, script, recipe):
        self.options, self.dtype, self.script, self.recipe = options, dtype, script, recipe

    def peer(self, *words, kept=False):
        """Python's; kept: glibc keeps freed memory."""
        environment = {**os.environ, **KEPT} if kept else None
        return Program([sys.executable, str(HERE / self.script), "--dtype", self.dtype, "--threads", str(self.options.threads), "--steps",
                        str(self.options.steps), *words], environment)

    def pythons(self, ways, compiled):
        """Each way that is wanted, with glibc's malloc as it is and kept; those named in `compiled` with --compile also by torch.compile."""
        unknown = sorted(set(self.options.peers or []) - set(ways))
        if unknown:
            sys.exit(f"Error  no way of Python is called {', '.join(unknown)}\n  where    --peers\n  next     names: {', '.join(ways)}")
        programs = {}
        for name, words in ways.items():
            if self.options.peers and name not in self.options.peers:
                continue
            modes = {"": [], "compile_": ["--mode", "compile"]} if self.options.compile and name in compiled else {"": []}
            for prefix, mode in modes.items():
                programs[prefix + name] = self.peer(*mode, *words)
                programs[f"{prefix}{name}_kept"] = self.peer(*mode, *words, kept=True)
        started(programs)
        return programs

    def ours(self, *words):
        return Program([self.options.program, "bench", "step", self.recipe, "--shape", "cpu-small", "--precision", self.dtype, "--threads",
                        str(self.options.threads), "--warmup", "1", "--steps", str(self.options.steps), "--rounds", "stdin", "--json", *words])

    def peaks(self, ways):
        """Peak bytes of tensors of each way that Python can write the step; time is not looked at."""
        peaks = {}
        for name, words in ways.items():
            program = self.peer(*words, "--peak")
            peaks[name] = program.read()["tensor_peak_bytes"]
            program.close()
        return peaks


def started(programs):
    """Leaves out the programs that give no first answer: torch.compile makes code that does not compile for some."""
    for name, program in list(programs.items()):
        try:
            program.read()
        except SystemExit as error:
            print(f"left out: {name}, {error}")
            del programs[name]


def take_turns(programs, rounds):
    """Milliseconds of each program's rounds, and its last answer."""
    last = {}
    for round_ in range(rounds + 1):
        for name, program in programs.items():
            last[name] = turn(program)
            if round_ == 0:
                program.times.clear()
    for program in programs.values():
        program.close()
    return {name: program.times for name, program in programs.items()}, last


def bar_of(time_bar, dtype):
    return time_bar[dtype] if isinstance(time_bar, dict) else time_bar


def show(row, time_bar, memory_bar):
    print(row["dtype"], "  ".join(f"{name} {ms:.0f} ms" for name, ms in row["step_ms"].items()))
    if "speedup" in row:
        for name, (ratio, low, high) in row["speedup"].items():
            print(f"  {row['against']} / {name}: {ratio:.3f} ({low:.3f}..{high:.3f})")
        return
    for name, (ratio, low, high) in row["ratios"].items():
        print(f"  {row.get('chosen', 'ours')} / {name}: {ratio:.3f} ({low:.3f}..{high:.3f})")
    print(f"  fastest peer: {row['fastest']}, {row['ratio'][0]:.3f}, bar {bar_of(time_bar, row['dtype'])}")
    print("  peak MB", "  ".join(f"{name} {value / 1e6:.0f}" for name, value in row["peak_bytes"].items()))
    print(f"  memory, ours / least: {row['memory_ratio']:.3f}, bar {memory_bar}", flush=True)


def main(documentation, measure, time_bar, memory_bar, more=None, add_options=None):
    """Exit code. The time's bar is a number or one for each number format. `more`, a switch's name and what it measures instead, has no bar."""
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the millrace program")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=5, help="of a turn: the first finds the caches full of what the others left there")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--compile", action="store_true", help="also torch.compile (minutes to start)")
    parser.add_argument("--peers", nargs="+", metavar="NAME", help="only these ways of Python: all at once may not fit the memory")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cpu", choices=CPU, help=CPU_HELP)
    if more:
        parser.add_argument(f"--{more[0]}", dest="more", action="store_true", help=more[1].__doc__)
    if add_options:
        add_options(parser)
    options = parser.parse_args()
    lower_instructions(options.cpu)
    instead = more and options.more
    results = []
    for dtype in options.dtypes:
        results.append((more[1] if instead else measure)(options, dtype))
        show(results[-1], time_bar, memory_bar)
    if options.json:
        options.json.write_text(json.dumps({"results": results, "cpu": options.cpu, "load_average": os.getloadavg()}, indent=1) + "\n")
    missed = not instead and any(row["ratio"][0] > bar_of(time_bar, row["dtype"]) or row["memory_ratio"] > memory_bar for row in results)
    return 1 if missed else 0
