"""What the step benches of several Python ways share: both sides as programs that take turns, what is printed, and the bars."""

import argparse
import os
import sys
from pathlib import Path
from statistics import median

from turns import (KEPT, Program, add_options, add_other_torch, is_wanted, own_words, peer_words, python_program, ratios_to, said_of_machine,
                   said_of_times, settle, settle_other_torch, started, take_turns, torches, write)

HERE = Path(__file__).resolve().parent


def refuse_unknown(wanted, known, flag):
    unknown = sorted(set(wanted or []) - set(known))
    if unknown:
        sys.exit(f"Error  no way of Python is called {', '.join(unknown)}\n  where    {flag}\n  next     names: {', '.join(known)}")


class Sides:
    """Makes the programs of both sides, for one number format."""

    def __init__(self, options, dtype, script, recipe):
        self.options, self.dtype, self.script, self.recipe = options, dtype, script, recipe
        self.on_gpu = options.device == "cuda"

    def peer(self, *words, kept=False, site=None):
        """A program of Python's; `kept`: glibc keeps freed memory; `site`: see turns.torches()."""
        environment = {**os.environ, **KEPT} if kept else None
        return python_program([str(HERE / self.script), *peer_words(self.options, self.dtype), *words], environment, site)

    def pythons(self, ways, compiled):
        """The programs of the wanted ways, and the ways that gave no answer. `ways` run in eager torch; with --compile `compiled` run under
        torch.compile, on a GPU without and with CUDA graphs. On a CPU each way runs with glibc's own malloc and with one that keeps freed memory."""
        modes = {"": ways}
        if self.options.compile:
            modes["compile_"] = compiled
            if self.on_gpu:
                modes["graphs_"] = compiled
        refuse_unknown(self.options.peers, {**ways, **compiled}, "--peers")
        refuse_unknown(self.options.only, [prefix + name for prefix, those in modes.items() for name in those], "--only")
        wanted = [(name, prefix, words) for prefix, those in modes.items() for name, words in those.items()
                  if (not self.options.peers or name in self.options.peers) and is_wanted(self.options, prefix + name)]
        programs, left_out = {}, {}
        for torch, site in torches(self.options):
            for name, prefix, words in wanted:
                words = [*(["--mode", prefix[:-1]] if prefix else []), *words]
                if self.on_gpu:
                    programs[prefix + name + torch] = self.peer(*words, "--peak", site=site)
                    if self.options.one_by_one:
                        left_out.update(started(programs, self.options.start_within))
                else:
                    programs[prefix + name + torch] = self.peer(*words, site=site)
                    programs[f"{prefix}{name}_kept{torch}"] = self.peer(*words, kept=True, site=site)
        left_out.update(started(programs, self.options.start_within))
        return programs, left_out

    def ours(self, *words, program=None):
        return Program([program or self.options.program, *own_words(self.options, self.dtype, self.recipe), *words])

    def peaks(self, ways, programs):
        """Peak bytes of tensors of each way to write the step in Python. On a CPU a profiler counts them in separate programs, whose time is
        ignored; a GPU's allocator counts anyway."""
        if self.on_gpu:
            return {name: program.first["tensor_peak_bytes"] for name, program in programs.items()}
        peaks = {}
        for name, words in ways.items():
            program = self.peer(*words, "--peak")
            peaks[name] = program.read()["tensor_peak_bytes"]
            program.close()
        return peaks


def compared(sides, ways, compiled, ours, against=None):
    """Ours beside Python's `ways` and `compiled`, for one number format. All are {name: words}; the fastest of ours counts. `against`: the way
    of Python that the bar refers to; None = the fastest."""
    wanted = {name: words for name, words in ways.items() if (not sides.options.peers or name in sides.options.peers) and is_wanted(sides.options, name)}
    peaks = {} if sides.on_gpu else sides.peaks(wanted, {})
    programs, left_out = sides.pythons(ways, compiled)
    if not programs:
        sys.exit("Error  no way of Python gave an answer\n  next     run one of them by hand, see the lines above")
    if sides.on_gpu:
        peaks = sides.peaks(wanted, programs)
    rivals = list(programs)
    programs.update({name: sides.ours(*words) for name, words in ours.items()})
    if sides.options.other_program:
        programs.update({f"{name} {sides.options.other_series}": sides.ours(*words, program=sides.options.other_program) for name, words in ours.items()})
    times = take_turns(programs, sides.options.rounds, within=sides.options.within)
    chosen = min(ours, key=lambda name: median(times[name]))
    fastest = against if against in rivals else min(rivals, key=lambda name: median(times[name]))
    ratios = ratios_to(times, chosen, rivals)
    least = min(peaks.values(), default=None)
    peaks["ours"] = programs[chosen].last["memory"]["step_peak_bytes"]
    return {"recipe": sides.recipe, "dtype": sides.dtype, **said_of_machine(programs), "chosen": chosen, **said_of_times(times), "fastest": fastest,
            "ratio": ratios[fastest], "ratios": ratios, "peak_bytes": peaks, "memory_ratio": peaks["ours"] / least if least else None, "left_out": left_out,
            "first_step_s": {name: program.first["first_step_s_since_process_start"] for name, program in programs.items()}}


def bar_of(time_bar, dtype):
    return time_bar.get(dtype) if isinstance(time_bar, dict) else time_bar


def show(row, time_bar, memory_bar):
    print(row["dtype"], "  ".join(f"{name} {ms:.1f} ms" for name, ms in row["step_ms"].items()))
    if "speedup" in row:
        for name, (ratio, low, high) in row["speedup"].items():
            print(f"  {row['against']} / {name}: {ratio:.3f} ({low:.3f}..{high:.3f})")
        return
    for name, (ratio, low, high) in row["ratios"].items():
        print(f"  {row['chosen']} / {name}: {ratio:.3f} ({low:.3f}..{high:.3f})")
    bar = bar_of(time_bar, row["dtype"])
    print(f"  against {row['fastest']}: {row['ratio'][0]:.3f}" + (f", bar {bar}" if bar else ""))
    print("  peak MB", "  ".join(f"{name} {value / 1e6:.0f}" for name, value in row["peak_bytes"].items()))
    if row["memory_ratio"]:
        print(f"  memory, ours / least: {row['memory_ratio']:.3f}" + (f", bar {memory_bar}" if memory_bar else ""), flush=True)


def misses(row, time_bar, memory_bar):
    bar = bar_of(time_bar, row["dtype"])
    return (bar and row["ratio"][0] > bar) or (memory_bar and row["memory_ratio"] and row["memory_ratio"] > memory_bar)


def main(documentation, measure, time_bar, memory_bar=None, more=None, add_more=None, steps=5):
    """Exit code. The time's bar is a number or one for each number format; there is no bar on a GPU and for shapes other than cpu-small. `more`, a
    switch's name and what it measures instead, has no bar."""
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, rounds=9, steps=steps)
    add_other_torch(parser)
    parser.add_argument("--compile", action="store_true", help="also torch.compile, on a GPU without and with CUDA graphs (minutes to start)")
    parser.add_argument("--peers", nargs="+", metavar="NAME", help="only these ways of Python: all at once may not fit the memory")
    if more:
        parser.add_argument(f"--{more[0]}", dest="more", action="store_true", help=more[1].__doc__)
    if add_more:
        add_more(parser)
    options = parser.parse_args()
    settle(parser, options)
    settle_other_torch(parser, options)
    instead = more and options.more
    if instead and options.other_torch:
        parser.error(f"--{more[0]} runs on one torch: leave --other-torch out")
    if instead or not options.has_bars:
        time_bar, memory_bar = None, None
    results = []
    for dtype in options.dtypes:
        results.append((more[1] if instead else measure)(options, dtype))
        show(results[-1], time_bar, memory_bar)
        write(options, results)  # kept even if a later comparison fails
    return 1 if not instead and any(misses(row, time_bar, memory_bar) for row in results) else 0
