"""Bytes that an operation moves through a GPU's memory: the rule that counts our step and Python's eager one alike.

An operation reads each tensor that it takes once, in each of its passes, and writes each tensor that it gives once. A view moves nothing, and
nothing is found in a cache.
"""

from collections import defaultdict
from dataclasses import dataclass

# What these write over is not read first.
OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_"}
# Of a table these read only what they give.
LOOKUPS = {"index_select", "embedding", "gather", "index"}
CONVOLUTIONS = {"convolution", "convolution_backward", "cudnn_convolution", "slow_conv3d_forward"}
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot"}
# The kernels of these go twice over what they read: for sums, then for the result; the layer norm's backward also for the weights' gradients.
PASSES = {"native_batch_norm": 2, "cudnn_batch_norm": 2, "native_batch_norm_backward": 2, "cudnn_batch_norm_backward": 2, "native_group_norm": 2,
          "native_group_norm_backward": 2, "native_layer_norm_backward": 2}
KINDS = ("products", "convolutions", "attention", "update", "rest")


@dataclass
class Operand:
    address: int
    bytes: int
    read: bool
    written: bool


@dataclass
class Moved:
    """What an operation moves; `kind` is one of KINDS."""

    name: str
    kind: str
    bytes: int


def kind_of(name):
    short = name.split("::")[-1].split(".")[0]
    if short.rstrip("_") in PRODUCTS:
        return "products"
    if short in CONVOLUTIONS:
        return "convolutions"
    if "_scaled_dot_product_" in short:
        return "attention"
    if short.startswith(("_fused_adam", "_fused_sgd", "_foreach_")):
        return "update"
    return "rest"


def moved(name, operands):
    """`operands`: what the operation takes, then what it gives, each tensor once."""
    short = name.split("::")[-1].split(".")[0]
    given = sum(operand.bytes for operand in operands if operand.written and not operand.read)
    total = 0
    for operand in operands:
        if operand.written:
            total += operand.bytes
        if operand.read and not (operand.written and short in OVERWRITES):
            total += min(operand.bytes, given) if short in LOOKUPS and given else operand.bytes * PASSES.get(short, 1)
    return Moved(name, kind_of(name), total + of_the_bias(short, operands))


def of_the_bias(short, operands):
    """cuDNN's convolution leaves the bias to a second kernel, which adds it to the result, or sums the result's gradient."""
    given = [operand.bytes for operand in operands if operand.written]
    if short == "convolution" and len(operands) - len(given) == 3:
        return 2 * given[0]
    if short == "convolution_backward" and len(given) == (len(operands) - len(given)):
        return operands[0].bytes
    return 0


def sums(operations):
    """{kind: bytes}, with "all"."""
    found = dict.fromkeys(KINDS, 0)
    for operation in operations:
        found[operation.kind] += operation.bytes
    return {**found, "all": sum(found.values())}


def by_name(operations):
    """[(name, calls, bytes)], the largest first."""
    calls, total = defaultdict(int), defaultdict(int)
    for operation in operations:
        calls[operation.name] += 1
        total[operation.name] += operation.bytes
    return sorted(((name, calls[name], total[name]) for name in total), key=lambda row: -row[2])
