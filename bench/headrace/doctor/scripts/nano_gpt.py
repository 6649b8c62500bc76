"""A decoder of one's own over bytes in one array, without a DataLoader: batches are drawn by a function."""
import math
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WINDOW, BATCH, ACCUMULATE, STEPS, WARM, BEST, WIDTH, HEADS, BLOCKS = 64, 8, 2, 150, 20, 1e-3, 96, 4, 3


def tokens():
    random = np.random.default_rng(0)
    following = random.integers(0, 64, (64, 4))
    found = [0]
    for choice in random.integers(0, 4, 20_000):
        found.append(following[found[-1], choice])
    return np.array(found, np.uint16)


def batch_of(data, random):
    starts = random.integers(0, len(data) - WINDOW - 1, BATCH)
    windows = torch.from_numpy(np.stack([data[start : start + WINDOW + 1].astype(np.int64) for start in starts]))
    return windows[:, :-1], windows[:, 1:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(64, WIDTH), nn.Embedding(WINDOW, WIDTH)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(BLOCKS))), nn.LayerNorm(WIDTH)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        logits = self.norm(self.blocks(x)) @ self.tokens.weight.T
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rate_at(step):
    if step < WARM:
        return BEST * (step + 1) / WARM
    return BEST * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARM) / (STEPS - WARM))))


def main():
    torch.manual_seed(1)
    data, random = tokens(), np.random.default_rng(1)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=BEST, betas=(0.9, 0.95), weight_decay=0.1)
    began, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        for _ in range(ACCUMULATE):
            loss = model(*batch_of(data, random)) / ACCUMULATE
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item() * ACCUMULATE:.9g}")
    print(f"{STEPS} steps in {time.perf_counter() - began:.3f} s, CPU {time.process_time() - cpu:.3f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
