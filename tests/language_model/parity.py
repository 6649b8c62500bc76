"""The same decoder in plain PyTorch: logits, loss, every gradient and 20 AdamW steps, for parity_test.cpp to compare with.

usage: parity.py WEIGHTS.safetensors BATCH.safetensors OUT.safetensors LAYERS HEADS
BATCH holds "tokens" (B, T+1) int64; PAD = 0 among the targets counts nothing. OUT gets logits, loss, grad.<name>, after.<name>.
"""

import math
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (w(x).view(batch, length, self.heads, -1).transpose(1, 2) for w in (self.w_q, self.w_k, self.w_v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return self.w_o((weights @ v).transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.ln2 = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width)

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.feed_forward(self.ln2(x))


class TokenEmbeddings(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)


class Model(nn.Module):
    def __init__(self, vocabulary, width, layers, heads):
        super().__init__()
        self.token_embeddings = TokenEmbeddings(vocabulary, width)
        self.transformer_blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        width = self.ln_f.weight.numel()
        x = self.token_embeddings.embedding(tokens) * math.sqrt(width)
        place = torch.arange(tokens.shape[1], dtype=torch.float64)[:, None]
        rate = torch.pow(10000.0, -torch.arange(0, width, 2, dtype=torch.float64) / width)
        sinusoids = torch.stack([torch.sin(place * rate), torch.cos(place * rate)], -1).flatten(1).float()
        x = x + sinusoids
        for block in self.transformer_blocks:
            x = block(x)
        return self.ln_f(x) @ self.token_embeddings.embedding.weight.T


def loss_of(model, tokens):
    logits = model(tokens[:, :-1])
    return logits, F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)


def main():
    weights_file, batch_file, out_file, layers, heads = sys.argv[1:]
    torch.set_num_threads(1)
    weights = load_file(weights_file)
    tokens = load_file(batch_file)["tokens"]
    vocabulary, width = weights["token_embeddings.embedding.weight"].shape
    model = Model(vocabulary, width, int(layers), int(heads))
    model.load_state_dict(weights, strict=True)

    logits, loss = loss_of(model, tokens)
    loss.backward()
    out = {"logits": logits.detach(), "loss": loss.detach()}
    out |= {f"grad.{name}": p.grad.clone() for name, p in model.named_parameters()}

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        loss_of(model, tokens)[1].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    out |= {f"after.{name}": p.detach() for name, p in model.named_parameters()}
    save_file({name: value.contiguous() for name, value in out.items()}, out_file)


if __name__ == "__main__":
    main()
