"""The same network in plain PyTorch: features, logits, both losses, every gradient and STEPS steps, for parity_test.cpp to compare with.

usage: parity.py CONFIG.json WEIGHTS.safetensors BATCH.safetensors OUT.safetensors STEPS
CONFIG holds the recipe's section, "frozen" and "places". BATCH holds pixels, images, tokens, lengths and labels. OUT gets features, logits,
ce, consistency, grad.<name> and after STEPS steps after.<name> of every parameter that is trained.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))
from twin import PairModel, losses

CONSISTENCY = 5.0


def main():
    config_file, weights_file, batch_file, out_file, steps = sys.argv[1:]
    torch.set_num_threads(1)
    config = json.loads(Path(config_file).read_text())
    recipe, batch = config["recipe"], load_file(batch_file)
    model = PairModel(recipe)
    model.load_state_dict(load_file(weights_file), strict=True)
    model.eval()  # no dropout
    if config["frozen"]:
        model.freeze()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    groups = [{"params": [p for name, p in trained.items() if ("projector" in name) == projector], "lr": lr}
              for projector, lr in ((True, 1e-4), (False, 1e-3))]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = model(batch["pixels"], batch["images"], batch["tokens"], batch["lengths"], config["places"])
        ce, consistency = losses(logits, batch["labels"], recipe["similar_weight"], recipe["swap_ce_weight"])
        (ce + CONSISTENCY * consistency).backward()
        return {"logits": logits, "ce": ce, "consistency": consistency}

    out = {name: value.detach().clone() for name, value in step().items()}
    with torch.no_grad():
        out["features"] = model.vision_tower(batch["pixels"])
    out |= {f"grad.{name}": p.grad.clone() for name, p in trained.items()}
    for _ in range(int(steps)):
        step()
        torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
        optimizer.step()
    out |= {f"after.{name}": p.detach() for name, p in trained.items()}
    save_file({name: value.contiguous() for name, value in out.items()}, out_file)


if __name__ == "__main__":
    main()
