"""Output, log-MSE, every gradient and the buffers after one training pass, for parity_test.cpp to compare with.

usage: parity.py WEIGHTS.safetensors BATCH.safetensors OUT.safetensors FILTERS
BATCH holds "input" and "target" (N, 2, D, H, W). OUT gets output, loss, grad.<name>, buffer.<name>.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))
from unet import UNet


def main():
    weights_file, batch_file, out_file, filters = sys.argv[1:]
    torch.set_num_threads(1)
    model = UNet(int(filters))
    model.load_state_dict(load_file(weights_file), strict=True)
    batch = load_file(batch_file)
    output = model(batch["input"])
    loss = torch.log(torch.mean((output - batch["target"]) ** 2))
    loss.backward()
    out = {"output": output.detach(), "loss": loss.detach()}
    out |= {f"grad.{name}": p.grad for name, p in model.named_parameters()}
    out |= {f"buffer.{name}": b for name, b in model.named_buffers()}
    save_file({name: value.contiguous() for name, value in out.items()}, out_file)


if __name__ == "__main__":
    main()
