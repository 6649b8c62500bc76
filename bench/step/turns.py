"""Programs of both sides that take turns: how they are started and asked for a round, and how their times are summarised."""

import json
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
# --cpu: what MILLRACE_CPU sets for the libraries (src/millrace/system/instructions.h), so that both sides run the same instructions.
CPU = {"portable": ("default", "SSE41", "SSE4_2"), "avx2": ("avx2", "AVX2", "AVX2"), "avx512": ("avx512", "AVX512_CORE", "AVX512"),
       "avx512_bf16": ("avx512", "AVX512_CORE_BF16", "AVX512"), "amx": ("avx512", "AVX512_CORE_AMX", "AVX512")}
LEAST_ROUNDS = 3  # however long they take
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_TOP_PAD_": str(1 << 26)}
CPU_HELP = "the instruction set of both sides (default: the best of each library); MILLRACE_CPU"


def lower_instructions(word):
    """Limits the instructions of this process's children to the --cpu `word`; None = no limit."""
    if word:
        names = ("MILLRACE_CPU", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
        os.environ.update(zip(names, (word, *CPU[word])))


class Program:
    """A child that runs a round of steps for each line it gets and answers with one line of JSON."""

    def __init__(self, command, environment=None):
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.times, self.first, self.last = [], {}, {}

    def read(self):
        line = self.child.stdout.readline()
        if not line:
            sys.exit(f"Error  {self.child.args[0]} ended without an answer\n  next     run it by hand: {' '.join(self.child.args)}")
        return json.loads(line)

    def start(self, end=None):
        """For a peer: waits for its first step, until `end` on the clock; `first` is the answer."""
        if end is not None and not select.select([self.child.stdout], [], [], max(end - time.monotonic(), 0))[0]:
            self.child.kill()
            sys.exit(f"Error  {self.child.args[0]} gave no answer in time\n  next     run it by hand: {' '.join(self.child.args)}")
        self.first = self.read()

    def round(self):
        try:
            self.child.stdin.write("go\n")
            self.child.stdin.flush()
        except BrokenPipeError:  # read() says so
            pass
        self.last = self.read()
        self.first = self.first or self.last
        self.times.append(median(self.last["ms"]))
        return self.last

    def close(self):
        self.child.stdin.close()
        self.child.wait()
        self.child.stdout.close()


def turn(program):
    """A round once the program before has come to rest: libgomp's threads spin for some 20 ms after their last loop."""
    time.sleep(0.05)
    return program.round()


def started(programs, within=None):
    """Leaves out the programs that give no first answer, or none in so many seconds, and says which: for some torch.compile makes code that does
    not compile. Programs that have answered are not asked again."""
    left_out = {}
    end = time.monotonic() + within if within else None
    for name, program in list(programs.items()):
        if program.first:
            continue
        try:
            program.start(end)
        except SystemExit as error:
            print(f"left out: {name}, {error}")
            left_out[name] = str(error)
            programs.pop(name).close()
    return left_out


def require_equal_work(programs):
    """Exits unless all programs report the same parameters and batch: otherwise two different things would be compared."""
    keys = "parameters", "trained_parameters", "batch"
    known = {name: {key: program.first[key] for key in keys} for name, program in programs.items() if "parameters" in program.first}
    for name, what in known.items():
        of, expected = next(iter(known.items()))
        if what != expected:
            sys.exit(f"Error  {name} and {of} compute different things\n  where    {name}: {what}; {of}: {expected}\n"
                     "  next     bring bench/step/shapes.py and bench_shapes in the recipe's entry.cpp together")


def close_all(programs):
    """Ends all at once: each has a device's memory to give back."""
    for program in programs:
        program.child.stdin.close()
    for program in programs:
        program.close()


def take_turns(programs, rounds, same=True, within=None):
    """Milliseconds of each program's rounds. The first round, which finds caches cold, does not count. `same`: all do the same work. `within`: no
    round but LEAST_ROUNDS begins later than so many seconds."""
    began = time.monotonic()
    for round_ in range(rounds + 1):
        if within and round_ > LEAST_ROUNDS and time.monotonic() - began > within:
            break
        for program in programs.values():
            turn(program)
            if round_ == 0:
                program.times.clear()
        if round_ == 0 and same:
            require_equal_work(programs)
    close_all(programs.values())
    return {name: program.times for name, program in programs.items()}


def interval(values):
    """Median and the order statistics that enclose it with 95 %."""
    ordered = sorted(values)
    n = len(ordered)
    reach = int(0.98 * n**0.5)
    return median(ordered), ordered[max(0, n // 2 - reach)], ordered[min(n - 1, n // 2 + reach)]


def ratios_to(times, name, others):
    """Ratios of the times of `name` to those of each other program, round by round, as an interval()."""
    return {other: interval([a / b for a, b in zip(times[name], times[other])]) for other in others}


def said_of_times(times):
    """The part of each result about times: {"step_ms", "step_ms_interval": [median, low, high], "of_the_fastest": the same for
    ratios to the fastest way of all, "round_ms"}."""
    fastest = min(times, key=lambda name: median(times[name]))
    return {"step_ms": {name: median(values) for name, values in times.items()},
            "step_ms_interval": {name: interval(values) for name, values in times.items()},
            "fastest_of_all": fastest,
            "of_the_fastest": {name: ratios_to(times, name, [fastest])[fastest] for name in times}, "round_ms": times}


def said_of_machine(programs):
    """From the programs' first answers: device, its name, torch."""
    return {key: next((program.first[key] for program in programs.values() if key in program.first), None)
            for key in ("device", "device_name", "torch", "parameters", "trained_parameters")}


def add_options(parser, rounds, steps):
    """Adds the options that all comparisons take."""
    parser.add_argument("program", help="the millrace program")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of both sides; the bars are those of a CPU")
    parser.add_argument("--shape", choices=["cpu-small", "gpu-small", "gpu-guide"], help="default: cpu-small, on a GPU gpu-small")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--steps", type=int, default=steps, help="of a turn: the first finds the caches full of what the others left there")
    parser.add_argument("--within", type=float, metavar="SECONDS", help=f"no round but the first {LEAST_ROUNDS} begins later than so long after the first")
    parser.add_argument("--start-within", type=float, metavar="SECONDS", help="leave out what of Python's has not done its first step by then")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", nargs="+", choices=["fp32", "tf32", "bf16"],
                        help="default: fp32 and bf16, on a GPU all three; tf32 is fp32 with products and convolutions in TF32, fp32 without")
    parser.add_argument("--json", metavar="FILE", help="the results, with device, versions, medians, intervals and peaks of memory")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of Python's programs these alone, by their names in the results, such as graphs_joined")
    parser.add_argument("--together", action="store_true", help="with gpu-guide too Python's programs start all at once: their first steps have to fit the GPU")
    parser.add_argument("--cpu", choices=CPU, help=CPU_HELP)


def add_other_torch(parser):
    """Adds the options of the comparisons that two torches can be in."""
    parser.add_argument("--other-torch", type=Path, metavar="SITE", help="Python's programs run on this torch too (a site-packages folder); the ratio is to the fastest of both")
    parser.add_argument("--other-program", metavar="PROGRAM", help="the millrace that was built with that torch takes turns too; it has no bar")


def settle_other_torch(parser, options):
    options.other_series = None
    if options.other_torch:
        options.other_torch = options.other_torch.resolve()
        options.other_series = series_of(parser, options.other_torch)
    if options.other_program and not options.other_torch:
        parser.error("--other-program goes with --other-torch")


def settle(parser, options):
    """Completes the options; a mistake in them ends the program."""
    gpu = options.device == "cuda"
    options.shape = options.shape or ("gpu-small" if gpu else "cpu-small")
    options.dtypes = options.dtypes or (["fp32", "tf32", "bf16"] if gpu else ["fp32", "bf16"])
    if not gpu and "tf32" in options.dtypes:
        parser.error("tf32 is of a GPU: give --device cuda")
    options.one_by_one = gpu and options.shape == "gpu-guide" and not options.together  # the first steps of all at once would not fit the GPU
    options.has_bars = not gpu and options.shape == "cpu-small"
    lower_instructions(options.cpu)


def is_wanted(options, name):
    """Whether --only leaves a program of Python's in."""
    return not options.only or name in options.only


def torches(options):
    """What the names of the torches' programs end in, and their site-packages folders: the torch at hand ("", None) and that of --other-torch."""
    return [("", None), *([(f" {options.other_series}", options.other_torch)] if options.other_torch else [])]


def python_program(words, environment=None, site=None):
    """A program of Python's, with the torch at hand or with that of the folder `site`, by tools/python-peer."""
    environment = dict(environment or os.environ)
    if site is None:
        return Program([sys.executable, *words], environment)
    for name in ("LD_LIBRARY_PATH", "PYTHONPATH"):  # stand-ins for the libraries of the torch at hand
        environment[name] = ":".join(path for path in environment.get(name, "").split(":") if path and "/.deps/stubs-" not in path)
    return Program([str(HERE.parent.parent / "tools/python-peer"), *words], {**environment, "MILLRACE_TORCH": str(site)})


def series_of(parser, site):
    """The series of torch, such as 2.15, in a site-packages folder."""
    version = site / "torch/version.py"
    found = re.search(r"^__version__ = '(\d+\.\d+)", version.read_text() if version.exists() else "", re.MULTILINE)
    if found is None:
        parser.error(f"--other-torch: no torch in {site}; name the site-packages folder, such as .deps/torch-2.15")
    return found[1]


def peer_words(options, dtype):
    return ["--device", options.device, "--shape", options.shape, "--dtype", dtype, "--threads", str(options.threads), "--steps", str(options.steps)]


def own_words(options, dtype, recipe):
    """The words of `millrace bench step`. Like Python with --dtype bf16, ours computes in TF32 whatever stays in fp32."""
    words = ["bench", "step", recipe, "--shape", options.shape, "--precision", "fp32" if dtype == "tf32" else dtype, "--threads", str(options.threads),
             "--warmup", "1", "--steps", str(options.steps), "--rounds", "stdin", "--json", f"--device.name={options.device}"]
    return words + ([f"--device.tf32={'off' if dtype == 'fp32' else 'on'}"] if options.device == "cuda" else [])


def write(options, results, **more):
    """The results as JSON, where --json asks for them."""
    if not options.json:
        return
    about = {"device": options.device, "shape": options.shape, "threads": options.threads, "rounds": options.rounds, "steps": options.steps,
             "cpu": options.cpu, "load_average": os.getloadavg(), "results": results, **more}
    with open(options.json, "w") as file:
        json.dump(about, file, indent=1)
        file.write("\n")
