"""What the Python halves of the step benches share: their options, their device, and the answers they give.

The first step runs at once and is reported as a line of JSON; then each line on stdin times `steps` steps and answers with {"ms": [...]}.
"quit" or end of input ends. On a GPU steps follow each other without a wait, as they do in a training loop, and the times are those
between the events behind them.
"""

import argparse
import json
import os
import sys
import time
from types import SimpleNamespace

import torch
from shapes import SHAPES, sized
from tensor_peak import tensor_peak
from torch.utils._python_dispatch import TorchDispatchMode


def options_parser(documentation, recipe):
    """The parser of a peer's options. sizes_of() later adds the sizes of the recipe's shape as `size`."""
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES[recipe], default="cpu-small")
    parser.add_argument("--size", nargs="+", metavar="KEY=VALUE", default=[], help="over the sizes of the shape, see shapes.py")
    parser.add_argument("--device", choices=["cpu", "cuda", "meta"], default="cpu", help="meta: tensors without memory, so a step is the host's part alone")
    parser.add_argument("--mode", choices=["eager", "compile", "graphs"], default="eager",
                        help="graphs: torch.compile with CUDA graphs, mode=\"reduce-overhead\"; on a GPU")
    parser.add_argument("--dtype", choices=["fp32", "tf32", "bf16"], default="fp32",
                        help="fp32: exact, products and convolutions; tf32: both in TF32, on a GPU; bf16: by autocast, the rest as tf32")
    parser.add_argument("--peak", action="store_true", help="also report the peak of tensor bytes of a step")
    parser.add_argument("--launches", action="store_true", help="also report how many operations a step asks a device for")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="timed steps per line of input")
    parser.add_argument("--describe", action="store_true", help="parameters and batch of the shape, on no device and without a step")
    parser.set_defaults(recipe=recipe)
    return parser


def parse(parser):
    options = parser.parse_args()
    try:
        options.size = SimpleNamespace(**sized(options.recipe, options.shape, options.size))
    except ValueError as error:
        parser.error(f"--size {error}")
    if options.device != "cuda" and (options.mode == "graphs" or options.dtype == "tf32"):
        parser.error("--mode graphs and --dtype tf32 are of a GPU: give --device cuda")
    return options


def autocast(options):
    device = "cpu" if options.device == "meta" else options.device
    return torch.autocast(device, dtype=torch.bfloat16, enabled=options.dtype == "bf16")


def compiled(options, function):
    """`function`, compiled as --mode says."""
    if options.mode == "eager":
        return function
    return torch.compile(function, mode="reduce-overhead" if options.mode == "graphs" else None)


class Launches(TorchDispatchMode):
    """Counts operations, except views and those that only make memory."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        view = any(argument.alias_info is not None and not argument.alias_info.is_write for argument in function._schema.arguments)
        self.count += not view and not function.__name__.startswith(("empty", "detach"))
        return function(*args, **(kwargs or {}))


def launches_of(step):
    with Launches() as counted:
        step.run()
    return counted.count


def value_of(loss):
    return None if loss.is_meta else loss.item()


def seconds_since_process_start():
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


class Step:
    """A step: run() makes one and returns its loss, peak() measures its peak of tensor bytes. `batch`: see describe()."""

    def __init__(self, run, model, optimizer, inputs, batch):
        self.run, self.model, self.optimizer, self.inputs, self.batch = run, model, optimizer, inputs, batch

    def peak(self):
        return tensor_peak(self.run, self.model, self.optimizer, self.inputs)


def describe(step):
    """Parameters, and the sizes of the batch in the form that ours gives: a list of {field: sizes}."""
    every = list(step.model.parameters())
    return {"parameters": sum(parameter.numel() for parameter in every),
            "trained_parameters": sum(parameter.numel() for parameter in every if parameter.requires_grad), "batch": step.batch}


def name_of(device):
    if device == "cuda":
        return torch.cuda.get_device_name()
    with open("/proc/cpuinfo") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "CPU")


def timed_on_cpu(step, steps):
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        loss = step()
        times.append(1e3 * (time.perf_counter() - begin))
    return times, loss


def timed_on_gpu(step, steps):
    """The memory of a turn is given back at its end, since the programs share the GPU; a step that is not timed takes it again."""
    step()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        loss = step()
        mark.record()
    marks[-1].synchronize()
    torch.cuda.empty_cache()
    return [first.elapsed_time(second) for first, second in zip(marks, marks[1:])], loss


def serve(options, make_step):
    """make_step(options) makes everything on the default device and gives a Step."""
    torch.set_num_threads(options.threads)
    if options.describe:
        with torch.device("meta"):
            print(json.dumps(describe(make_step(options))))
        return
    exact = options.dtype == "fp32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not exact
    if options.device == "meta":  # fused optimizers can run on it, but torch.optim does not list it
        from torch.optim import optimizer
        supported = [*optimizer._get_fused_kernels_supported_devices(), "meta"]
        optimizer._get_fused_kernels_supported_devices = lambda: supported
    with torch.device(options.device):
        step = make_step(options)
    if options.mode == "graphs":
        plain = step.run

        def run():
            torch.compiler.cudagraph_mark_step_begin()
            return plain()

        step.run = run
    first = value_of(step.run())
    answer = {"first_step_s_since_process_start": seconds_since_process_start(), "loss_first": first, **describe(step),
              "device": options.device, "device_name": name_of(options.device), "torch": torch.__version__}
    if options.launches:
        answer["launches"] = launches_of(step)
    if options.peak:
        for _ in range(2 if options.mode == "graphs" else 0):  # the second records the graph
            step.run()
        answer["tensor_peak_bytes"] = step.peak()
        if options.device == "cuda":
            answer["reserved_bytes"] = torch.cuda.max_memory_reserved()
    if options.device == "cuda":
        torch.cuda.empty_cache()
    print(json.dumps(answer), flush=True)
    timed = timed_on_gpu if options.device == "cuda" else timed_on_cpu
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        times, loss = timed(step.run, options.steps)
        print(json.dumps({"ms": times, "loss_last": value_of(loss)}), flush=True)
