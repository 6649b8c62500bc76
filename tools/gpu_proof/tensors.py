"""Tensors of safetensors files, and how far two sets of them are apart. Needs torch, and nothing else."""
import json
from pathlib import Path

import torch

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}


def read(path):
    """{name: tensor} of the floating-point tensors of a file."""
    content = bytearray(Path(path).read_bytes())
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] not in DTYPES:
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if end > begin:
            tensors[name] = torch.frombuffer(content[begin:end], dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def read_all(paths):
    tensors = {}
    for path in paths:
        tensors.update(read(path))
    return tensors


def moved(before, after, rate):
    """What one step of plain SGD moved, divided by its rate: the gradient. Tensors that did not move are left out.

    `before` is the state after a step that moves no weight, so that buffers, such as running means, have moved in it as well.
    """
    changes = {name: (before[name].double() - after[name].double()) / rate for name in before if name in after}
    return {name: change for name, change in changes.items() if bool((change != 0).any())}


def apart(found, reference):
    """{relative, cosine, worst, worst_cosine, tensors} of two sets of gradients; relative = |found - reference| / |reference|.

    The tensors are those of the reference; one that is not in `found` did not move.
    worst: the tensor with the least cosine among those that hold a thousandth of the whole norm at least.
    """
    pairs = {name: (found.get(name, torch.zeros_like(b)).flatten(), b.flatten()) for name, b in reference.items()}
    whole = sum(float(b.dot(b)) for _, b in pairs.values()) ** 0.5
    own = sum(float(a.dot(a)) for a, _ in pairs.values()) ** 0.5
    difference = sum(float((a - b).dot(a - b)) for a, b in pairs.values()) ** 0.5
    cosines = {name: float(a.dot(b) / (a.norm() * b.norm()).clamp_min(1e-300)) for name, (a, b) in pairs.items() if float(b.norm()) > 1e-3 * whole}
    worst = min(cosines, key=cosines.get)
    return {"relative": difference / whole, "cosine": sum(float(a.dot(b)) for a, b in pairs.values()) / (whole * own),
            "worst": worst, "worst_cosine": cosines[worst], "tensors": len(pairs)}
