"""Trains a small language model of characters with layers of torch, and saves it from time to time."""
import random
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

WINDOW, BATCH, EPOCHS, WIDTH = 64, 16, 4, 96
SAVE_EVERY = 100  # steps


def sentences(count):
    words = random.Random(0)
    subjects, verbs, things = ["the wheel", "a river", "my neighbour", "the miller"], ["turns", "sees", "carries", "forgets"], ["stones", "flour", "water", "grain"]
    return " ".join(f"{words.choice(subjects)} {words.choice(verbs)} {words.choice(things)}." for _ in range(count))


class Windows(Dataset):
    def __init__(self, text):
        self.letters = sorted(set(text))
        self.ids = torch.tensor([self.letters.index(letter) for letter in text])

    def __len__(self):
        return (len(self.ids) - 1) // WINDOW

    def __getitem__(self, index):
        window = self.ids[index * WINDOW : index * WINDOW + WINDOW + 1]
        return window[:-1], window[1:]


class Model(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, WIDTH), nn.Embedding(WINDOW, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, letters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(WINDOW), persistent=False)

    def forward(self, ids):
        x = self.letters(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.blocks(x, mask=self.mask, is_causal=True))


def main():
    torch.manual_seed(1)
    data = Windows(sentences(1600))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True)
    model = Model(len(data.letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began, cpu, step = time.perf_counter(), time.process_time(), 0
    for epoch in range(EPOCHS):
        for ids, following in loader:
            loss = F.cross_entropy(model(ids).flatten(0, 1), following.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 10 == 0:
                print(f"step {step}: loss {loss.item():.9g}")
            if step % SAVE_EVERY == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "last.pt")
    print(f"{step} steps in {time.perf_counter() - began:.3f} s, CPU {time.process_time() - cpu:.3f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
