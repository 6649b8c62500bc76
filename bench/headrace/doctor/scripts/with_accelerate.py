"""Fits a network to measured curves with accelerate, with gradients of two batches to a step."""
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

POINTS, COUNT, EPOCHS, BATCH = 256, 1024, 6, 32


class Curves(Dataset):
    """Damped oscillations with noise; what is to be found are frequency and damping."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        random = np.random.default_rng(index)
        frequency, damping = random.uniform(1, 10), random.uniform(0.1, 2)
        times = np.linspace(0, 3, POINTS)
        curve = np.exp(-damping * times) * np.sin(2 * np.pi * frequency * times) + 0.05 * random.standard_normal(POINTS)
        return torch.from_numpy(curve.astype(np.float32)), torch.tensor([frequency, damping])


def main():
    set_seed(1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    loader = DataLoader(Curves(), batch_size=BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Unflatten(1, (1, POINTS)), nn.Conv1d(1, 32, 9, 2, 4), nn.GELU(), nn.Conv1d(32, 64, 9, 2, 4), nn.GELU(), nn.Conv1d(64, 64, 9, 2, 4),
                          nn.GELU(), nn.Flatten(), nn.Linear(64 * POINTS // 8, 64), nn.GELU(), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    began, cpu, steps = time.perf_counter(), time.process_time(), 0
    for epoch in range(EPOCHS):
        total = 0.0
        for curves, truth in loader:
            with accelerator.accumulate(model):
                loss = F.mse_loss(model(curves), truth)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            total += loss.detach().item()
            steps += accelerator.sync_gradients
        accelerator.print(f"epoch {epoch}: {total:.9g}")
    print(f"{steps} steps in {time.perf_counter() - began:.3f} s, CPU {time.process_time() - cpu:.3f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
