"""One training step of the cosmology bench shape in Python torch, as a careful user would write it.

    tools/python-peer bench/step/unet_step_peer.py --mode eager|compile|graphs --dtype fp32|tf32|bf16 [--device cuda] [--channels-last] [--steps 3]

The U-Net of tests/cosmology/unet.py at the sizes of shapes.py, log of the mean squared error, clip by value 1, fused Adam;
bf16 by autocast. Answers as step_peer.py says.
"""

import sys
from functools import partial
from pathlib import Path

import torch
from step_peer import Step, autocast, compiled, options_parser, parse, serve
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "cosmology"))
from unet import UNet


def pad_by_cat(model):
    """Circular padding as slices joined by cat, which torch.compile fuses, instead of the module's own."""

    def forward(convolution, x):
        for axis in (2, 3, 4):
            last = x.size(axis) - 1
            x = torch.cat([x.narrow(axis, last, 1), x, x.narrow(axis, 0, 1)], axis)
        return nn.functional.conv3d(x, convolution.weight, convolution.bias, convolution.stride)

    for module in model.modules():
        if isinstance(module, nn.Conv3d) and module.padding_mode == "circular":
            module.forward = partial(forward, module)


def make_step(options):
    torch.manual_seed(0)
    layout = torch.channels_last_3d if options.channels_last else torch.contiguous_format
    size = options.size
    model = UNet(size.filters).to(memory_format=layout)
    if options.pad == "cat":
        pad_by_cat(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=not options.describe)
    target = torch.randn(size.chunks, 2, size.ra, size.frequencies, size.baselines)
    if options.recompute:
        for name in ("layer1", "layer2", "layer3", "layer4", "layer5", "layer6"):
            layer = getattr(model, name)
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    x = (target * 0.5 + torch.randn_like(target)).contiguous(memory_format=layout)

    def loss_of(x, target):
        with autocast(options):
            predicted = model(x)
        return torch.log(torch.mean((predicted.float() - target) ** 2))

    forward = compiled(options, loss_of)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(x, target)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return Step(step, model, optimizer, (x, target), [{"input": list(x.shape), "target": list(target.shape)}])


def main():
    parser = options_parser(__doc__, "cosmology")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--pad", choices=["module", "cat"], default="module", help="who pads circularly: the module, or slices and cat")
    parser.add_argument("--recompute", action="store_true", help="torch.utils.checkpoint")
    serve(parse(parser), make_step)


if __name__ == "__main__":
    main()
