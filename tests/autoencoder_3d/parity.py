"""The same networks in plain PyTorch: outputs, loss terms, every gradient and 20 steps of both optimisers, for parity_test.cpp to compare with.

usage: parity.py CONFIG.json WEIGHTS.safetensors BATCH.safetensors OUT.safetensors STEPS
CONFIG holds the recipe's section. BATCH holds input, target and eps. OUT gets recon, mu, sigma, logits, term.<name>, loss.<network>,
grad.<name>, after STEPS steps after.<name>, and where the package monai is installed monai.recon, monai.mu, monai.sigma, monai.logits of its
own networks with the same weights.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))
from twin import Autoencoder, Discriminator, discriminator_loss, generator_loss


def monai_networks(config):
    from monai.networks.nets import AutoencoderKL, PatchDiscriminator

    keys = ["channels", "latent_channels", "num_res_blocks", "norm_num_groups", "norm_eps", "attention_levels", "with_encoder_nonlocal_attn",
            "with_decoder_nonlocal_attn"]
    image = config["image_channels"]
    return (AutoencoderKL(spatial_dims=3, in_channels=image, out_channels=image, **{key: config[key] for key in keys}),
            PatchDiscriminator(spatial_dims=3, num_layers_d=config["disc_layers"], channels=config["disc_channels"], in_channels=image,
                               out_channels=1, norm="INSTANCE"))


def compare_with_monai(config, weights, data, out):
    """The weights load strictly into MONAI's own networks, which give what ours give."""
    try:
        autoencoder, discriminator = monai_networks(config)
    except ImportError:
        return
    autoencoder.load_state_dict(weights["autoencoder"], strict=True)
    discriminator.load_state_dict(weights["discriminator"], strict=True)
    with torch.no_grad():
        out["monai.mu"], out["monai.sigma"] = autoencoder.encode(data["input"])
        out["monai.recon"] = autoencoder.decode(out["monai.mu"] + out["monai.sigma"] * data["eps"])
        out["monai.logits"] = discriminator(data["target"])[-1]


def exact_terms(config, weights, data):
    """The loss terms in fp64: how far this torch's own fp32 is from them says what a comparison can ask for."""
    autoencoder, discriminator = Autoencoder(config), Discriminator(config)
    autoencoder.load_state_dict(weights["autoencoder"])
    discriminator.load_state_dict(weights["discriminator"])
    autoencoder.double()
    discriminator.double()
    given = {name: value.double() for name, value in data.items()}
    with torch.no_grad():
        _, terms, recon = generator_loss(autoencoder, discriminator, given["input"], given["eps"], given["target"], config["kl_weight"],
                                         config["adv_weight"], config["recon_loss"] == "l2")
        _, terms_d = discriminator_loss(discriminator, recon, given["target"], config["adv_weight"])
    return terms | terms_d


def main():
    config_file, weights_file, batch_file, out_file, steps = sys.argv[1:]
    torch.set_num_threads(1)
    config = json.loads(Path(config_file).read_text())
    data, weights = load_file(batch_file), {"autoencoder": {}, "discriminator": {}}
    for name, value in load_file(weights_file).items():
        network, _, rest = name.partition("/")
        weights[network][rest] = value
    networks = {"autoencoder": Autoencoder(config), "discriminator": Discriminator(config)}
    for name, network in networks.items():
        network.load_state_dict(weights[name], strict=True)
    autoencoder, discriminator = networks.values()
    optimizers = [torch.optim.AdamW(network.parameters(), lr=1e-4, betas=(0.5, 0.9), eps=1e-8, weight_decay=1e-5)
                  for network in networks.values()]

    def step():
        """Both passes; the gradients are there afterwards, each network's of its own loss."""
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss, terms, recon = generator_loss(autoencoder, discriminator, data["input"], data["eps"], data["target"], config["kl_weight"],
                                            config["adv_weight"], config["recon_loss"] == "l2")
        loss.backward()
        discriminator.zero_grad(set_to_none=True)
        loss_d, terms_d = discriminator_loss(discriminator, recon, data["target"], config["adv_weight"])
        loss_d.backward()
        return loss, loss_d, terms | terms_d, recon

    loss, loss_d, terms, recon = step()
    out = {"loss.autoencoder": loss.detach(), "loss.discriminator": loss_d.detach(), "recon": recon.detach()}
    out |= {f"term.{name}": value.detach() for name, value in terms.items()}
    with torch.no_grad():
        _, out["mu"], out["sigma"] = autoencoder(data["input"], data["eps"])
        out["logits"] = discriminator(data["target"])
    out |= {f"grad.{name}/{key}": p.grad.clone() for name, network in networks.items() for key, p in network.named_parameters()}
    out |= {f"exact.{name}": value.double() for name, value in exact_terms(config, weights, data).items()}
    compare_with_monai(config, weights, data, out)
    for _ in range(int(steps)):
        step()
        for optimizer, network in zip(optimizers, networks.values()):
            torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
            optimizer.step()
    out |= {f"after.{name}/{key}": p.detach() for name, network in networks.items() for key, p in network.named_parameters()}
    save_file({name: value.contiguous() for name, value in out.items()}, out_file)


if __name__ == "__main__":
    main()
