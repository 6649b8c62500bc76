"""The training step of cosmology against Python torch: same shape, same machine, one run, interleaved.

    tools/python-peer bench/step/compare_unet.py build/release/millrace [--rounds 9] [--steps 3] [--compile] [--cpu avx2] [--json FILE]

Ours and Python (eager, with --compile also torch.compile) take turns in fp32 and bf16, each with contiguous and with channels-last volumes.
"kept" has glibc keep freed memory; "cat" pads by slices and cat, which compile fuses. The bar, 0.8, is ours in the layout that a run would
choose, the faster one, against contiguous eager, the way the original runs. Exits 1 when it is missed.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from compare import CPU, CPU_HELP, Program, interval, lower_instructions, turn

BAR = 0.8
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_TOP_PAD_": str(1 << 26)}


def measure(options, dtype):
    def peer(*words, kept=False):
        environment = {**os.environ, **KEPT} if kept else None
        return Program([sys.executable, str(HERE / "unet_step_peer.py"), "--dtype", dtype, "--threads", str(options.threads), "--steps",
                        str(options.steps), *words], environment)

    programs = {"eager": peer(), "eager_channels_last": peer("--channels-last"), "eager_kept": peer(kept=True),
                "eager_kept_channels_last": peer("--channels-last", kept=True)}
    if options.compile:
        compiled = ["--mode", "compile"]
        programs["compile"] = peer(*compiled)
        programs["compile_kept_cat"] = peer(*compiled, "--pad", "cat", kept=True)
        programs["compile_kept_cat_channels_last"] = peer(*compiled, "--pad", "cat", "--channels-last", kept=True)
    for name, program in list(programs.items()):
        try:
            program.read()
        except SystemExit as error:  # torch.compile makes code that does not compile for some formats
            print(f"left out: {name}, {error}")
            del programs[name]
    for name, layout in (("ours", "contiguous"), ("ours_channels_last", "channels_last")):
        programs[name] = Program([options.program, "bench", "step", "cosmology", "--shape", "cpu-small", "--precision", dtype, "--threads",
                                  str(options.threads), "--warmup", "1", "--steps", str(options.steps), "--rounds", "stdin", "--json",
                                  f"--device.layout={layout}"])
    assert "eager" in programs, "the bar is against eager"
    for round_ in range(options.rounds + 1):
        for program in programs.values():
            turn(program)
            if round_ == 0:
                program.times.clear()
    for program in programs.values():
        program.close()
    times = {name: program.times for name, program in programs.items()}
    chosen = min(("ours", "ours_channels_last"), key=lambda name: median(times[name]))
    ratios = {name: interval([a / b for a, b in zip(times[chosen], times[name])]) for name in times if not name.startswith("ours")}
    return {"dtype": dtype, "chosen": chosen, "step_ms": {name: median(values) for name, values in times.items()}, "ratios": ratios,
            "round_ms": times}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the millrace program")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3, help="of a turn: the first finds the caches full of what the others left there")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--compile", action="store_true", help="also torch.compile (minutes to start)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cpu", choices=CPU, help=CPU_HELP)
    options = parser.parse_args()
    lower_instructions(options.cpu)
    results = []
    for dtype in options.dtypes:
        results.append(measure(options, dtype))
        row = results[-1]
        print(dtype, "  ".join(f"{name} {ms:.1f} ms" for name, ms in row["step_ms"].items()))
        for name, (ratio, low, high) in row["ratios"].items():
            print(f"  {row['chosen']} / {name}: {ratio:.3f} ({low:.3f}..{high:.3f})")
    if options.json:
        options.json.write_text(json.dumps({"results": results, "cpu": options.cpu, "load_average": os.getloadavg()}, indent=1) + "\n")
    return 1 if any(row["ratios"]["eager"][0] > BAR for row in results) else 0


if __name__ == "__main__":
    sys.exit(main())
