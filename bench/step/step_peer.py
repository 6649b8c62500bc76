"""What the Python halves of the step benches share: their options, and the answers they give.

The first step runs at once and is reported as a line of JSON; then each line on stdin times `steps` steps and answers with {"ms": [...]}.
"quit" or end of input ends.
"""

import argparse
import json
import os
import sys
import time

import torch


def options_parser(documentation):
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--peak", action="store_true", help="also report the peak of tensor bytes, from a profiled step")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="timed steps per line of input")
    return parser


def seconds_since_process_start():
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def serve(options, make_step):
    """make_step(options) gives a function that makes a step and returns its loss, and one that measures its peak of tensor bytes."""
    torch.set_num_threads(options.threads)
    step, peak = make_step(options)
    first = step().item()
    print(json.dumps({"first_step_s_since_process_start": seconds_since_process_start(), "loss_first": first,
                      **({"tensor_peak_bytes": peak()} if options.peak else {})}), flush=True)
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        times = []
        for _ in range(options.steps):
            begin = time.perf_counter()
            loss = step()
            times.append(1e3 * (time.perf_counter() - begin))
        print(json.dumps({"ms": times, "loss_last": loss.item()}), flush=True)
