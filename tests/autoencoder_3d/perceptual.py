"""LPIPS's distance on SqueezeNet 1.1 in plain PyTorch, with random weights, for perceptual_test.cpp to compare with.

usage: perceptual.py OUT.safetensors
OUT gets the weights under lpips's names, recon, target, slices.<axis>, and for maps 0 and 1 distances.<maps> and grad.<maps>, the gradient
of the distances' sum.
"""

import sys

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

FIRES = {3: (64, 16, 64), 4: (128, 16, 64), 6: (128, 32, 128), 7: (256, 32, 128), 9: (256, 48, 192), 10: (384, 48, 192), 11: (384, 64, 256),
         12: (512, 64, 256)}
SLICES = [[0, 1], [2, 3, 4], [5, 6, 7], [8, 9], [10], [11], [12]]  # of torchvision's features; 1 is the first ReLU
CHANNELS = [64, 128, 256, 384, 384, 512, 512]


def random_weights():
    weights = {"net.slice1.0.weight": torch.randn(64, 3, 3, 3) * 0.3, "net.slice1.0.bias": torch.randn(64) * 0.1}
    for i, (tap, channels) in enumerate(zip(SLICES, CHANNELS)):
        for layer in tap:
            if layer not in FIRES:
                continue
            into, squeezed, each = FIRES[layer]
            for part, shape in {"squeeze": (squeezed, into, 1, 1), "expand1x1": (each, squeezed, 1, 1), "expand3x3": (each, squeezed, 3, 3)}.items():
                name = f"net.slice{i + 1}.{layer}.{part}"
                weights[name + ".weight"] = torch.randn(shape) * (2 / (shape[1] * shape[2] * shape[3])) ** 0.5
                weights[name + ".bias"] = torch.randn(shape[0]) * 0.1
        weights[f"lin{i}.model.1.weight"] = torch.rand(1, channels, 1, 1)
    return weights


def features(weights, x):
    taps = []
    for i, tap in enumerate(SLICES):
        for layer in tap:
            name = f"net.slice{i + 1}.{layer}"
            if layer == 0:
                x = F.conv2d(x, weights[name + ".weight"], weights[name + ".bias"], stride=2)
            elif layer == 1:
                x = F.relu(x)
            elif layer in FIRES:
                s = F.relu(F.conv2d(x, weights[name + ".squeeze.weight"], weights[name + ".squeeze.bias"]))
                x = F.relu(torch.cat([F.conv2d(s, weights[name + ".expand1x1.weight"], weights[name + ".expand1x1.bias"]),
                                      F.conv2d(s, weights[name + ".expand3x3.weight"], weights[name + ".expand3x3.bias"], padding=1)], 1))
            else:
                x = F.max_pool2d(x, 3, 2, ceil_mode=True)
        taps.append(x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10))
    return taps


def distance(weights, a, b):
    """One number for each pair of images in [-1, 1]."""
    shift = torch.tensor([-.030, -.088, -.188]).view(1, 3, 1, 1)
    scale = torch.tensor([.458, .448, .450]).view(1, 3, 1, 1)
    pairs = zip(features(weights, (a - shift) / scale), features(weights, (b - shift) / scale))
    return sum(F.conv2d((x - y) ** 2, weights[f"lin{i}.model.1.weight"]).mean((1, 2, 3)) for i, (x, y) in enumerate(pairs))


def distances(weights, recon, target, slices, maps):
    total = []
    for row in range(recon.shape[0]):
        axes = []
        for axis in range(3):
            images = [volume[row].select(axis + 1, int(i))[c][None, None].expand(1, 3, -1, -1) for volume in (recon, target)
                      for i in slices[axis][row] for c in range(recon.shape[1])]
            half = len(images) // 2
            a, b = torch.cat(images[:half]), torch.cat(images[half:])
            axes.append(distance(weights, 2 * a - 1 if maps else a, 2 * b - 1 if maps else b).mean())
        total.append(sum(axes))
    return torch.stack(total)


def main(path):
    torch.manual_seed(5)
    out = random_weights()
    weights = dict(out)
    recon, target = torch.rand(2, 2, 18, 24, 20), torch.rand(2, 2, 18, 24, 20)
    slices = [torch.stack([torch.randperm(size)[:n] for _ in range(2)]) for size, n in ((18, 3), (24, 4), (20, 4))]
    out.update({"recon": recon, "target": target, **{f"slices.{axis}": s for axis, s in enumerate(slices)}})
    for maps in (0, 1):
        leaf = recon.clone().requires_grad_()
        result = distances(weights, leaf, target, slices, maps)
        result.sum().backward()
        out[f"distances.{maps}"], out[f"grad.{maps}"] = result.detach(), leaf.grad
    save_file({name: value.contiguous() for name, value in out.items()}, path)


main(sys.argv[1])
