"""The same network in plain PyTorch: rates, loss terms, every gradient and 20 AdamW steps, for parity_test.cpp to compare with.

usage: parity.py CONFIG.json WEIGHTS.safetensors BATCH.safetensors OUT.safetensors STEPS
CONFIG holds the recipe's section and "behavior_dim". BATCH holds stim.k, behavior.k, counts.k and valid.k of session k. OUT gets
rates.k, sum.k, count.k, error.k (modulator pc), loss, poisson.<bucket_mean>, prediction_error.<bucket_mean> (pc), grad.<name>, and
after STEPS steps after.<name>.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))
from twin import Twin, loss_of, means_of


def main():
    config_file, weights_file, batch_file, out_file, steps = sys.argv[1:]
    torch.set_num_threads(1)
    config = json.loads(Path(config_file).read_text())
    data = load_file(batch_file)
    sessions = range(sum(name.startswith("counts.") for name in data))
    model = Twin(config, [data[f"counts.{k}"].size(1) for k in sessions])
    model.load_state_dict(load_file(weights_file), strict=True)
    batch = [(k, data[f"stim.{k}"], data[f"behavior.{k}"]) for k in sessions]
    targets = [(data[f"counts.{k}"], data[f"valid.{k}"]) for k in sessions]

    def loss_and_terms():
        return loss_of(model, batch, targets, config["lambda_pred"])

    loss, terms = loss_and_terms()
    loss.backward()
    out = {"loss": loss.detach()}
    for k in sessions:
        out[f"rates.{k}"] = terms["rates"][k].detach()
        out[f"sum.{k}"], out[f"count.{k}"] = terms["sums"][k].detach().clone(), terms["counts"][k].clone()
        if terms["errors"][k] is not None:
            out[f"error.{k}"] = terms["errors"][k].detach()
    for bucket_mean in ("by_count", "unweighted"):
        poisson, error = means_of(terms, bucket_mean)
        out[f"poisson.{bucket_mean}"] = poisson.detach()
        if error is not None:
            out[f"prediction_error.{bucket_mean}"] = error.detach()
    out |= {f"grad.{name}": torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    for _ in range(int(steps)):
        optimizer.zero_grad()
        loss_and_terms()[0].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    out |= {f"after.{name}": p.detach() for name, p in model.named_parameters()}
    save_file({name: value.contiguous() for name, value in out.items()}, out_file)


if __name__ == "__main__":
    main()
