"""The decoder as the Python original has it: sinusoids in a buffer, embeddings as they are. For original_test.cpp.

usage: original.py save FOLDER            checkpoint.pt, state.pt, bare.pt (without the buffer), out.safetensors with tokens and logits
       original.py load WEIGHTS.pt BATCH.safetensors OUT.safetensors LAYERS HEADS
"""

import math
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from parity import Block, TokenEmbeddings

WORDS = ["<PAD>", "<UNK>", "<BOS>", "<EOS>", " ", ".", "a", "b", "c", "é"]


class PositionEmbeddings(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        place = torch.arange(length, dtype=torch.float32)[:, None]
        rate = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
        self.register_buffer("pe", torch.stack([torch.sin(place * rate), torch.cos(place * rate)], -1).flatten(1))


class Model(nn.Module):
    def __init__(self, vocabulary, length, width, layers, heads):
        super().__init__()
        self.token_embeddings = TokenEmbeddings(vocabulary, width)
        self.position_embeddings = PositionEmbeddings(length, width)
        self.transformer_blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.token_embeddings.embedding(tokens) + self.position_embeddings.pe[: tokens.shape[1]]
        for block in self.transformer_blocks:
            x = block(x)
        return self.ln_f(x) @ self.token_embeddings.embedding.weight.T


class Config:
    def __init__(self):
        self.vocab_size, self.n_positions, self.n_embd, self.n_layer, self.n_head = len(WORDS), 24, 32, 2, 4
        self.tie_word_embeddings = True


class Tokenizer:
    def __init__(self):
        self.lowercase = True
        self.vocab = {word: i for i, word in enumerate(WORDS)}
        self.reverse_vocab = {i: word for word, i in self.vocab.items()}
        self.vocab_size = len(self.vocab)


def save(folder):
    torch.manual_seed(11)
    config = Config()
    model = Model(config.vocab_size, config.n_positions, config.n_embd, config.n_layer, config.n_head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, config.vocab_size, (3, 20))
    model(tokens).square().mean().backward()
    optimizer.step()
    state = model.state_dict()
    torch.save({"epoch": 5, "model_state_dict": state, "optimizer_state_dict": optimizer.state_dict(), "loss": 2.5, "config": config,
                "tokenizer": Tokenizer()}, folder / "checkpoint.pt")
    torch.save(state, folder / "state.pt")
    torch.save({name: value for name, value in state.items() if not name.endswith("pe")}, folder / "bare.pt")
    with torch.no_grad():
        save_file({"tokens": tokens, "logits": model(tokens)}, folder / "out.safetensors")


def load(weights, batch, out, layers, heads):
    state = torch.load(weights, weights_only=True)
    vocabulary, width = state["token_embeddings.embedding.weight"].shape
    length = state["position_embeddings.pe"].shape[0] if "position_embeddings.pe" in state else 1
    model = Model(vocabulary, length, width, int(layers), int(heads))
    model.load_state_dict(state, strict=True)
    with torch.no_grad():
        save_file({"logits": model(load_file(batch)["tokens"])}, out)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "save":
        save(Path(sys.argv[2]))
    else:
        load(*sys.argv[2:])
