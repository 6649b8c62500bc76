"""A generator and a discriminator that learn to draw small shapes from each other."""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE, COUNT, EPOCHS, BATCH, NOISE = 16, 512, 20, 32, 32


def shapes():
    generator = torch.Generator().manual_seed(0)
    centres, radii = 4 + 8 * torch.rand(COUNT, 2, generator=generator), 2 + 3 * torch.rand(COUNT, generator=generator)
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    distance = ((x - centres[:, 0, None, None]) ** 2 + (y - centres[:, 1, None, None]) ** 2).sqrt()
    return torch.tanh(radii[:, None, None] - distance)[:, None]


def main():
    torch.manual_seed(1)
    loader = DataLoader(TensorDataset(shapes()), batch_size=BATCH, shuffle=True)
    draw = nn.Sequential(nn.Linear(NOISE, 64 * 16), nn.Unflatten(1, (64, 4, 4)), nn.BatchNorm2d(64), nn.ReLU(), nn.ConvTranspose2d(64, 32, 4, 2, 1),
                         nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Tanh())
    judge = nn.Sequential(nn.Conv2d(1, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64 * 16, 1))
    draw_optimizer = torch.optim.Adam(draw.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judge_optimizer = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    ones, zeros = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    began, cpu, steps = time.perf_counter(), time.process_time(), 0
    for epoch in range(EPOCHS):
        losses = []
        for (real,) in loader:
            made = draw(torch.randn(len(real), NOISE))
            judge_loss = F.binary_cross_entropy_with_logits(judge(real), ones) + F.binary_cross_entropy_with_logits(judge(made.detach()), zeros)
            judge_optimizer.zero_grad()
            judge_loss.backward()
            judge_optimizer.step()
            draw_loss = F.binary_cross_entropy_with_logits(judge(made), ones)
            draw_optimizer.zero_grad()
            draw_loss.backward()
            draw_optimizer.step()
            losses.append((judge_loss.item(), draw_loss.item()))
            steps += 1
        print(f"epoch {epoch}:", " ".join(f"{judged:.9g}/{drawn:.9g}" for judged, drawn in losses))
    print(f"{steps} steps in {time.perf_counter() - began:.3f} s, CPU {time.process_time() - cpu:.3f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
