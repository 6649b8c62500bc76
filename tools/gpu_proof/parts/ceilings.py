"""What the card gives a program that does one thing, by Python torch: products, copies, launches.

On a CPU the same loops run in small; what only a GPU has is skipped there.
"""
import time

from .. import figures

ROUNDS = 7
# On a GPU, and on a CPU: where the loops are tried and no more.
SIDE = {True: 8192, False: 512}          # of matrices
BLOCK = {True: 1 << 30, False: 1 << 24}  # bytes
HOST_BYTES = (64 << 10, 1 << 20, 16 << 20, 400_000_000)


class Timer:
    """Seconds of a function's calls: by CUDA's events on a GPU, else by the clock."""

    def __init__(self, torch, on_gpu):
        self.torch, self.on_gpu = torch, on_gpu

    def rounds(self, function, calls):
        """Seconds of one call, for each round; the first calls are not counted."""
        for _ in range(3):
            function()
        return [self.one(function, calls) for _ in range(ROUNDS)]

    def one(self, function, calls):
        if not self.on_gpu:
            began = time.perf_counter()
            for _ in range(calls):
                function()
            return (time.perf_counter() - began) / calls
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            function()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / calls


def products(proof, torch, timer):
    n = SIDE[proof.on_gpu]
    for name, dtype, tf32 in (("bf16", torch.bfloat16, False), ("fp16", torch.float16, False), ("fp32", torch.float32, False), ("TF32", torch.float32, True)):
        what = f"matrix product {name}, {n} x {n}"
        if name in ("TF32", "fp16") and not proof.on_gpu:
            proof.skipped(what)
            continue
        with proof.trying(what):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            a, b = (torch.randn(n, n, device=proof.device).to(dtype) for _ in range(2))
            seconds = timer.rounds(lambda a=a, b=b: torch.mm(a, b), 10 if proof.on_gpu else 2)
            proof.row(what, figures.text([2 * n**3 / s / 1e12 for s in seconds], "TFLOP/s"), seconds=seconds)
    torch.backends.cuda.matmul.allow_tf32 = False


def copies(proof, torch, timer):
    size = BLOCK[proof.on_gpu]
    with proof.trying("copy within the device"):
        a = torch.empty(size, dtype=torch.uint8, device=proof.device)
        b = torch.empty_like(a)
        seconds = timer.rounds(lambda: b.copy_(a), 10 if proof.on_gpu else 2)
        proof.row(f"copy within the device, {size >> 20} MiB (read and written)", figures.text([2 * size / s / 1e9 for s in seconds], "GB/s"), seconds=seconds)
        del a, b
    for pinned in (False, True):
        for size in HOST_BYTES:
            what = f"copy to the device, {'pinned' if pinned else 'pageable'}, " + (f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB")
            if not proof.on_gpu:
                proof.skipped(what)
                continue
            with proof.trying(what):
                host = torch.ones(size, dtype=torch.uint8, pin_memory=pinned)
                there = torch.empty(size, dtype=torch.uint8, device=proof.device)
                seconds = timer.rounds(lambda h=host, t=there: t.copy_(h, non_blocking=True), max(2, min(200, (1 << 28) // size)))
                proof.row(what, figures.text([size / s / 1e9 for s in seconds], "GB/s"), seconds=seconds)


def launches(proof, torch, timer):
    x = torch.zeros(1, device=proof.device)
    calls = 1000

    def hundred():
        for _ in range(100):
            x.add_(1)

    with proof.trying("launch of a small kernel"):
        seconds = timer.rounds(lambda: x.add_(1), calls)
        proof.row("launch of a small kernel, one after the other", figures.text([s * 1e6 for s in seconds], "µs"), seconds=seconds)
    what = "the same, 100 in a graph that is replayed"
    if not proof.on_gpu:
        proof.skipped(what)
        return
    with proof.trying(what):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            hundred()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            hundred()
        seconds = timer.rounds(graph.replay, 100)
        proof.row(what, figures.text([s * 1e6 / 100 for s in seconds], "µs"), seconds=seconds)


def run(proof):
    import torch
    timer = Timer(torch, proof.on_gpu)
    with proof.trying("products"):
        products(proof, torch, timer)
    with proof.trying("copies"):
        copies(proof, torch, timer)
    with proof.trying("launches"):
        launches(proof, torch, timer)
