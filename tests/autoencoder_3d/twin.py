"""The KL autoencoder and its discriminator in plain PyTorch, as a careful user would write them: for parity.py and bench/step to compare with.

Autoencoder(config) and Discriminator(config) take the keys of the recipe's section; parameters have the names of MONAI's AutoencoderKL and
PatchDiscriminator. losses() gives what the two objectives make smaller.
"""

import torch
import torch.nn.functional as F
from torch import nn


def published(name):
    """The networks of the published configs."""
    sizes = {
        "stable": {"channels": [32, 64, 128], "latent_channels": 8, "num_res_blocks": 1, "norm_num_groups": 16},
        "32g": {"channels": [64, 128, 256], "latent_channels": 16, "num_res_blocks": 2, "norm_num_groups": 32},
        "multigpu": {"channels": [64, 128, 256], "latent_channels": 16, "num_res_blocks": 2, "norm_num_groups": 32,
                     "attention_levels": [False, True, True], "with_decoder_nonlocal_attn": True},
    }
    shared = {"image_channels": 1, "norm_eps": 1e-6, "attention_levels": [False, False, True], "with_encoder_nonlocal_attn": False,
              "with_decoder_nonlocal_attn": False, "disc_channels": 32, "disc_layers": 3}
    return shared | sizes[name]


class Conv(nn.Module):
    """A convolution under the name "conv"."""

    def __init__(self, inputs, outputs, kernel=3, stride=1, padding=1, bias=True):
        super().__init__()
        self.conv = nn.Conv3d(inputs, outputs, kernel, stride, padding, bias=bias)

    def forward(self, x):
        return self.conv(x)


class Residual(nn.Module):
    def __init__(self, inputs, outputs, groups, eps):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, inputs, eps), Conv(inputs, outputs)
        self.norm2, self.conv2 = nn.GroupNorm(groups, outputs, eps), Conv(outputs, outputs)
        self.nin_shortcut = Conv(inputs, outputs, kernel=1, padding=0) if inputs != outputs else nn.Identity()

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return self.nin_shortcut(x) + h


class Projections(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.to_q, self.to_k, self.to_v, self.out_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, tokens):
        q, k, v = (layer(tokens).unsqueeze(1) for layer in (self.to_q, self.to_k, self.to_v))
        return self.out_proj(F.scaled_dot_product_attention(q, k, v).squeeze(1))


class Attention(nn.Module):
    def __init__(self, width, groups, eps):
        super().__init__()
        self.norm, self.attn = nn.GroupNorm(groups, width, eps), Projections(width)

    def forward(self, x):
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        return x + self.attn(tokens).transpose(1, 2).reshape(x.shape)


class Down(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = Conv(width, width, stride=2, padding=0)

    def forward(self, x):
        return self.conv(F.pad(x, (0, 1, 0, 1, 0, 1)))


class Up(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.postconv = Conv(width, width)

    def forward(self, x):
        return self.postconv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Blocks(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def level(config, inputs, outputs, attends):
    norm = config["norm_num_groups"], config["norm_eps"]
    blocks = []
    for i in range(config["num_res_blocks"]):
        blocks.append(Residual(inputs if i == 0 else outputs, outputs, *norm))
        if attends:
            blocks.append(Attention(outputs, *norm))
    return blocks


def nonlocal_attention(config, width):
    norm = config["norm_num_groups"], config["norm_eps"]
    return [Residual(width, width, *norm), Attention(width, *norm), Residual(width, width, *norm)]


class Autoencoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        channels, attention, z = config["channels"], config["attention_levels"], config["latent_channels"]
        groups, eps = config["norm_num_groups"], config["norm_eps"]
        down = [Conv(config["image_channels"], channels[0])]
        for i, width in enumerate(channels):
            down += level(config, channels[max(i - 1, 0)], width, attention[i])
            if i + 1 < len(channels):
                down.append(Down(width))
        if config["with_encoder_nonlocal_attn"]:
            down += nonlocal_attention(config, channels[-1])
        self.encoder = Blocks(down + [nn.GroupNorm(groups, channels[-1], eps), Conv(channels[-1], z)])
        up, inputs = [Conv(z, channels[-1])], channels[-1]
        if config["with_decoder_nonlocal_attn"]:
            up += nonlocal_attention(config, channels[-1])
        for i in reversed(range(len(channels))):
            up += level(config, inputs, channels[i], attention[i])
            inputs = channels[i]
            if i > 0:
                up.append(Up(inputs))
        self.decoder = Blocks(up + [nn.GroupNorm(groups, inputs, eps), Conv(inputs, config["image_channels"])])
        self.quant_conv_mu, self.quant_conv_log_sigma, self.post_quant_conv = (Conv(z, z, kernel=1, padding=0) for _ in range(3))

    def forward(self, x, eps):
        h = self.encoder(x)
        mu = self.quant_conv_mu(h)
        sigma = torch.exp(self.quant_conv_log_sigma(h).float().clamp(-30, 20) / 2)
        return self.decoder(self.post_quant_conv(mu + sigma * eps)), mu, sigma


class Layer(nn.Module):
    def __init__(self, inputs, outputs, stride, normed):
        super().__init__()
        self.conv = nn.Conv3d(inputs, outputs, 4, stride, 1, bias=not normed)
        self.normed = normed

    def forward(self, x):
        x = self.conv(x)
        return F.leaky_relu(F.instance_norm(x) if self.normed else x, 0.2)


class Discriminator(nn.Sequential):
    def __init__(self, config):
        super().__init__()
        width, layers = config["disc_channels"], config["disc_layers"]
        self.add_module("initial_conv", Layer(config["image_channels"], width, 2, normed=False))
        for i in range(layers):
            self.add_module(str(i), Layer(width, 2 * width, 2 if i + 1 < layers else 1, normed=True))
            width *= 2
        self.add_module("final_conv", Conv(width, 1, kernel=4))


def divergence(mu, sigma):
    mu, sigma = mu.float(), sigma.float().clamp_min(1e-8)
    return (0.5 * (mu**2 + sigma**2 - torch.log(sigma**2 + 1e-8) - 1).flatten(1).sum(1)).mean()


def judgement(logits, goal):
    return ((F.leaky_relu(logits.float(), 0.05) - goal) ** 2).mean()


def generator_loss(autoencoder, discriminator, x, eps, target, kl_weight, adv_weight, l2=False):
    """The autoencoder's loss, its terms by name, and the reconstruction."""
    recon, mu, sigma = autoencoder(x, eps)
    error = recon.float() - target
    terms = {"recon": (error**2).mean() if l2 else error.abs().mean(), "kl": divergence(mu, sigma),
             "adv": judgement(discriminator(recon), 1.0)}
    return terms["recon"] + kl_weight * terms["kl"] + adv_weight * terms["adv"], terms, recon


def discriminator_loss(discriminator, recon, target, adv_weight):
    terms = {"fake": judgement(discriminator(recon.detach()), 0.0), "real": judgement(discriminator(target), 1.0)}
    return adv_weight * 0.5 * (terms["fake"] + terms["real"]), terms
