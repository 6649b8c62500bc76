"""Learns from pairs of compressed pictures which of the two is the better one."""
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, COUNT, EPOCHS, BATCH = 48, 192, 16, 16


def write_pictures(folder):
    random = np.random.default_rng(0)
    for index in range(COUNT):
        clean = random.integers(0, 255, (3, 1, 1)) + 40 * np.sin(np.arange(SIDE) * random.uniform(0.1, 1))[None, None, :] + np.zeros((3, SIDE, SIDE))
        names = ("good", "bad") if random.random() < 0.8 else ("bad", "good")  # judges differ
        for name, noise in zip(names, (16, 20)):
            picture = np.clip(clean + noise * random.standard_normal((3, SIDE, SIDE)), 0, 255).astype(np.uint8)
            (folder / f"{index:04}.{name}").write_bytes(zlib.compress(picture.tobytes()))


class Pairs(Dataset):
    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return COUNT

    def read(self, name):
        picture = np.frombuffer(zlib.decompress((self.folder / name).read_bytes()), np.uint8)
        return torch.from_numpy(picture.reshape(3, SIDE, SIDE).astype(np.float32) / 255)

    def __getitem__(self, index):
        return self.read(f"{index:04}.good"), self.read(f"{index:04}.bad")


class Judge(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, width, 5, 2, 2), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(),
                                    nn.Conv2d(2 * width, 2 * width, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)


def main():
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(Path(folder))
        loader = DataLoader(Pairs(Path(folder)), batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True)
        model = Judge()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        began, cpu, steps = time.perf_counter(), time.process_time(), 0
        for epoch in range(EPOCHS):
            losses = []
            for good, bad in loader:
                loss = F.margin_ranking_loss(model(good), model(bad), torch.ones(len(good)), margin=1.0)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
                steps += 1
            print(f"epoch {epoch}:", " ".join(f"{loss:.9g}" for loss in torch.stack(losses).tolist()))
        print(f"{steps} steps in {time.perf_counter() - began:.3f} s, CPU {time.process_time() - cpu:.3f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
