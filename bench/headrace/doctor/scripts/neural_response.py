"""Predicts the spikes of neurons from a film, in turns for two recording sessions."""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FRAMES, SIDE, NEURONS, COUNT, EPOCHS, BATCH = 12, 20, (90, 60), 192, 8, 16


def session(neurons, seed):
    generator = torch.Generator().manual_seed(seed)
    films = torch.randn(COUNT, 1, FRAMES, SIDE, SIDE, generator=generator)
    filters = torch.randn(neurons, SIDE * SIDE, generator=generator) / SIDE
    rates = F.softplus(films.flatten(3)[:, 0] @ filters.T)
    return TensorDataset(films, torch.poisson(rates, generator=generator))


class Twin(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.core = nn.Sequential(nn.Conv3d(1, width, (3, 7, 7), padding=(1, 0, 0)), nn.BatchNorm3d(width), nn.ELU(),
                                  nn.Conv3d(width, width, (3, 5, 5), padding=(1, 0, 0)), nn.BatchNorm3d(width), nn.ELU())
        self.readouts = nn.ModuleList(nn.Linear(width * 10 * 10, neurons) for neurons in NEURONS)

    def forward(self, films, session):
        return F.softplus(self.readouts[session](self.core(films).movedim(2, 1).flatten(2)))


def correlations(rates, spikes):
    rates, spikes = rates.flatten(0, 1) - rates.mean((0, 1)), spikes.flatten(0, 1) - spikes.mean((0, 1))
    return (rates * spikes).sum(0) / (rates.norm(dim=0) * spikes.norm(dim=0) + 1e-6)


def main():
    torch.manual_seed(1)
    loaders = [DataLoader(session(neurons, seed), batch_size=BATCH, shuffle=True, drop_last=True) for seed, neurons in enumerate(NEURONS)]
    model = Twin()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    began, cpu, steps = time.perf_counter(), time.process_time(), 0
    for epoch in range(EPOCHS):
        losses, scores = [], []
        for batches in zip(*loaders):
            for which, (films, spikes) in enumerate(batches):
                rates = model(films, which)
                loss = F.poisson_nll_loss(rates, spikes, log_input=False)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
                scores.append(correlations(rates.detach(), spikes).mean())
                steps += 1
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.9g} correlation {torch.stack(scores).mean():.6g}")
    print(f"{steps} steps in {time.perf_counter() - began:.3f} s, CPU {time.process_time() - cpu:.3f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
