"""Trains a 3-D autoencoder on volumes in .npy files."""
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, COUNT, EPOCHS, BATCH = 20, 160, 10, 8


def write_volumes(folder):
    random = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, SIDE)] * 3, indexing="ij"))
    for index in range(COUNT):
        centre, width = random.uniform(-0.5, 0.5, (3, 1, 1, 1)), random.uniform(0.1, 0.4)
        np.save(folder / f"{index:04}.npy", np.exp(-((grid - centre) ** 2).sum(0) / width).astype(np.float32))


class Volumes(Dataset):
    def __init__(self, folder):
        self.files = sorted(folder.glob("*.npy"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return torch.from_numpy(np.load(self.files[index]))[None]


class Autoencoder(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv3d(1, width, 3, 2, 1), nn.GroupNorm(4, width), nn.SiLU(), nn.Conv3d(width, 2 * width, 3, 2, 1), nn.SiLU())
        self.decoder = nn.Sequential(nn.ConvTranspose3d(2 * width, width, 4, 2, 1), nn.SiLU(), nn.ConvTranspose3d(width, width, 4, 2, 1), nn.SiLU(),
                                     nn.Conv3d(width, 1, 3, padding=1))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main():
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        write_volumes(Path(folder))
        loader = DataLoader(Volumes(Path(folder)), batch_size=BATCH, shuffle=True, num_workers=1, persistent_workers=True)
        model = Autoencoder()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
        began, cpu, steps = time.perf_counter(), time.process_time(), 0
        for epoch in range(EPOCHS):
            losses = []
            for volumes in loader:
                optimizer.zero_grad()
                loss = F.l1_loss(model(volumes), volumes)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                steps += 1
            schedule.step()
            print(f"epoch {epoch}:", " ".join(f"{loss:.9g}" for loss in losses))
            if epoch == EPOCHS - 1:
                torch.save(model.state_dict(), "autoencoder.pt")
        print(f"{steps} steps in {time.perf_counter() - began:.3f} s, CPU {time.process_time() - cpu:.3f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
