"""Windows of tokens with masked ones, by accelerate: python language.py FOLDER STEPS WORKERS. Started again, it goes on from FOLDER/saved."""
import sys
from pathlib import Path

import headrace
import numpy
import torch
from accelerate import Accelerator

folder, steps, workers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


class Windows:
    def __init__(self, file):
        self.tokens = numpy.fromfile(file, numpy.uint16).reshape(-1, 32).astype(numpy.int64)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        seen = numpy.where(numpy.random.rand(32) < 0.15, 50, self.tokens[index])  # 50: the mask
        return seen, self.tokens[index]


class Step(torch.nn.Module):
    """How many steps were made, saved with the model."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
model = Step(torch.nn.Sequential(torch.nn.Embedding(51, 16), torch.nn.Linear(16, 50)))
loader = headrace.exact(Windows(folder / "text.bin"), batch_size=8, shuffle=True, num_workers=workers)
model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters()), loader)
accelerator.register_for_checkpointing(loader)
if (folder / "saved").exists():
    accelerator.load_state(str(folder / "saved"))
while model.count < steps:
    for seen, tokens in loader:
        loss = torch.nn.functional.cross_entropy(model.net(seen).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        model.count += 1
        if model.count == steps:
            break
accelerator.save_state(str(folder / "saved"))
print(f"step {model.count}, weights {model.net[1].weight.double().square().sum():.12f}")
