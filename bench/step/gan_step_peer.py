"""One training step of the autoencoder_3d bench shape in Python torch, as a careful user would write it.

    tools/python-peer bench/step/gan_step_peer.py --mode eager|compile --dtype fp32|bf16 [--channels-last] [--frozen]

The networks of tests/autoencoder_3d/twin.py at the size of the published config "stable" on one crop of 32^3: L1, divergence and the
discriminator's judgement, then the discriminator's own loss; both clipped by norm 0.5 and updated by a fused AdamW; bf16 by autocast. --frozen
keeps the discriminator's weights from collecting the gradients of the generator's pass, which nobody uses. Answers as step_peer.py says.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from step_peer import options_parser, serve
from tensor_peak import tensor_peak

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "autoencoder_3d"))
from twin import Autoencoder, Discriminator, discriminator_loss, generator_loss, published

SIDE, KL_WEIGHT, ADV_WEIGHT = 32, 1e-9, 0.01


def both(optimizers):
    """The two optimisers as tensor_peak() wants to see them."""
    def zero_grad(set_to_none):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=set_to_none)

    return SimpleNamespace(zero_grad=zero_grad, state={key: value for optimizer in optimizers for key, value in optimizer.state.items()})


def make_step(options):
    torch.manual_seed(0)
    layout = torch.channels_last_3d if options.channels_last else torch.contiguous_format
    config = published("stable")
    networks = torch.nn.ModuleList([Autoencoder(config), Discriminator(config)]).to(memory_format=layout)
    autoencoder, discriminator = networks
    optimizers = [torch.optim.AdamW(network.parameters(), lr=1e-4, betas=(0.5, 0.9), weight_decay=1e-5, fused=True) for network in networks]
    x = torch.rand(options.rows, 1, SIDE, SIDE, SIDE).contiguous(memory_format=layout)
    eps = torch.randn(options.rows, config["latent_channels"], SIDE // 4, SIDE // 4, SIDE // 4)

    def generate(x, eps):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
            loss, _, recon = generator_loss(autoencoder, discriminator, x, eps, x, KL_WEIGHT, ADV_WEIGHT)
        return loss, recon

    def judge(recon, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
            return discriminator_loss(discriminator, recon, x, ADV_WEIGHT)[0]

    if options.mode == "compile":
        generate, judge = torch.compile(generate), torch.compile(judge)

    def step():
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        if options.frozen:
            discriminator.requires_grad_(False)
        loss, recon = generate(x, eps)
        loss.backward()
        discriminator.requires_grad_(True)
        torch.nn.utils.clip_grad_norm_(autoencoder.parameters(), 0.5)
        optimizers[0].step()
        optimizers[1].zero_grad(set_to_none=True)
        judge(recon.detach(), x).backward()
        torch.nn.utils.clip_grad_norm_(discriminator.parameters(), 0.5)
        optimizers[1].step()
        return loss

    return step, lambda: tensor_peak(step, networks, both(optimizers), (x, eps))


def main():
    parser = options_parser(__doc__)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--frozen", action="store_true", help="no gradients for the discriminator in the generator's pass")
    parser.add_argument("--rows", type=int, default=1)
    serve(parser.parse_args(), make_step)


if __name__ == "__main__":
    main()
