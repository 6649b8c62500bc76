"""Spikes from stimuli, rows of NumPy files: python neuroscience.py FOLDER"""
import sys
import time
from pathlib import Path

import numpy
import torch
from torch.utils.data import DataLoader, TensorDataset

folder = Path(sys.argv[1])
torch.manual_seed(0)
stimuli, responses = (torch.from_numpy(numpy.load(folder / name)) for name in ("stimulus.npy", "spikes.npy"))
loader = DataLoader(TensorDataset(stimuli, responses), batch_size=256, shuffle=True)
model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
rows, spikes_seen, began = 0, 0.0, time.perf_counter()
for stimulus, spikes in loader:
    loss = torch.nn.functional.poisson_nll_loss(model(stimulus), spikes)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rows, spikes_seen = rows + len(stimulus), spikes_seen + float(spikes.sum())
print(f"{rows} rows, {spikes_seen:.0f} spikes")
print(f"{time.perf_counter() - began:.2f} s", file=sys.stderr)
