"""One training step of the autoencoder_3d bench shape in Python torch, as a careful user would write it.

    tools/python-peer bench/step/gan_step_peer.py --mode eager|compile|graphs --dtype fp32|tf32|bf16 [--device cuda] [--channels-last] [--frozen]

The networks of tests/autoencoder_3d/twin.py at the sizes of shapes.py, which name a published config: L1, divergence and the
discriminator's judgement, then the discriminator's own loss; both clipped by norm 0.5 and updated by a fused AdamW; bf16 by autocast. --frozen
keeps the discriminator's weights from collecting the gradients of the generator's pass, which nobody uses. Answers as step_peer.py says.
"""

import sys
from pathlib import Path

import torch
from step_peer import Step, autocast, compiled, options_parser, parse, serve

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "autoencoder_3d"))
from twin import Autoencoder, Discriminator, discriminator_loss, generator_loss, published

KL_WEIGHT, ADV_WEIGHT = 1e-9, 0.01


class Both:
    """The two optimisers in the form that tensor_peak() takes, with their state at that time."""

    def __init__(self, optimizers):
        self.optimizers = optimizers

    def zero_grad(self, set_to_none):
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=set_to_none)

    @property
    def state(self):
        return {key: value for optimizer in self.optimizers for key, value in optimizer.state.items()}


def make_step(options):
    torch.manual_seed(0)
    layout = torch.channels_last_3d if options.channels_last else torch.contiguous_format
    size = options.size
    config = published(size.config)
    networks = torch.nn.ModuleList([Autoencoder(config), Discriminator(config)]).to(memory_format=layout)
    autoencoder, discriminator = networks
    optimizers = [torch.optim.AdamW(network.parameters(), lr=1e-4, betas=(0.5, 0.9), weight_decay=1e-5, fused=not options.describe) for network in networks]
    x = torch.rand(size.rows, config["image_channels"], *[size.side] * 3).contiguous(memory_format=layout)
    eps = torch.randn(size.rows, config["latent_channels"], *[size.side >> (len(config["channels"]) - 1)] * 3)

    def generate(x, eps):
        with autocast(options):
            loss, _, recon = generator_loss(autoencoder, discriminator, x, eps, x, KL_WEIGHT, ADV_WEIGHT)
        return loss, recon

    def judge(recon, x):
        with autocast(options):
            return discriminator_loss(discriminator, recon, x, ADV_WEIGHT)[0]

    generate, judge = compiled(options, generate), compiled(options, judge)

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

    batch = {"input": list(x.shape), "target": list(x.shape), "eps": list(eps.shape)}
    return Step(step, networks, Both(optimizers), (x, eps), [batch])


def main():
    parser = options_parser(__doc__, "autoencoder_3d")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--frozen", action="store_true", help="no gradients for the discriminator in the generator's pass")
    serve(parse(parser), make_step)


if __name__ == "__main__":
    main()
