"""Trains a U-Net that finds a faint signal below smooth foregrounds, which a PCA over frequencies removes first."""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BANDS, SIDE, COUNT, EPOCHS, BATCH, FOREGROUNDS = 16, 32, 160, 12, 8, 3
VALIDATE_EVERY = 80  # steps


def skies(count, seed):
    generator = torch.Generator().manual_seed(seed)
    frequency = torch.linspace(1, 2, BANDS)[None, :, None, None]
    slope = -2.7 + 0.1 * torch.randn(count, 1, SIDE, SIDE, generator=generator)
    foreground = 100 * torch.rand(count, 1, SIDE, SIDE, generator=generator) * frequency**slope
    signal = F.avg_pool2d(torch.randn(count, BANDS, SIDE, SIDE, generator=generator), 3, 1, 1)
    return foreground + signal, signal


def components_of(sky):
    spectra = sky.movedim(1, -1).reshape(-1, BANDS)
    spectra = spectra - spectra.mean(0)
    return torch.linalg.eigh(spectra.T @ spectra / len(spectra)).eigenvectors[:, -FOREGROUNDS:]


def without_foregrounds(sky, components):
    return sky - torch.einsum("bfxy,fk,gk->bgxy", sky, components, components)


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        block = lambda inputs, outputs: nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.GELU())
        self.first, self.down, self.middle = block(BANDS, width), block(width, 2 * width), block(2 * width, 2 * width)
        self.up, self.last = block(3 * width, width), nn.Conv2d(width, BANDS, 1)

    def forward(self, x):
        first = self.first(x)
        low = self.middle(self.down(F.max_pool2d(first, 2)))
        return self.last(self.up(torch.cat([first, F.interpolate(low, scale_factor=2)], 1)))


def validate(model, loader, components):
    model.eval()
    with torch.no_grad():
        losses = [F.mse_loss(model(without_foregrounds(sky, components)), signal).item() for sky, signal in loader]
    model.train()
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(1)
    sky, signal = skies(COUNT, 2)
    loader = DataLoader(TensorDataset(sky, signal), batch_size=BATCH, shuffle=True)
    held_out = DataLoader(TensorDataset(*skies(48, 3)), batch_size=BATCH)
    components = components_of(sky)
    model = UNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began, cpu, step = time.perf_counter(), time.process_time(), 0
    for epoch in range(EPOCHS):
        total = 0.0
        for batch, truth in loader:
            loss = F.mse_loss(model(without_foregrounds(batch, components)), truth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            step += 1
            if step % VALIDATE_EVERY == 0:
                print(f"step {step}: validation {validate(model, held_out, components):.9g}")
        print(f"epoch {epoch}: {total:.9g}")
    print(f"{step} steps in {time.perf_counter() - began:.3f} s, CPU {time.process_time() - cpu:.3f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
