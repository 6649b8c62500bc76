"""One training step of the language_model bench shape in Python torch, as a careful user would write it.

    tools/python-peer bench/step/gpt_step_peer.py --mode eager|compile|graphs --dtype fp32|tf32|bf16 [--device cuda] [--dropout 0.1] [--steps 3]

A model with the sizes in shapes.py: scaled tied embedding, sinusoidal positions, pre-norm blocks, exact
GELU, causal scaled_dot_product_attention; fused AdamW, clip by norm 1; bf16 by autocast. Answers as step_peer.py says.
"""

import math

import torch
from step_peer import Step, autocast, compiled, options_parser, parse, serve
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        width = size.width
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(width, width) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.dropout = size.heads, dropout

    def forward(self, x):
        def heads(y):
            return y.unflatten(2, (self.heads, -1)).transpose(1, 2)

        n = self.ln1(x)
        a = functional.scaled_dot_product_attention(
            heads(self.w_q(n)), heads(self.w_k(n)), heads(self.w_v(n)), dropout_p=self.dropout, is_causal=True)
        a = self.w_o(a.transpose(1, 2).reshape(x.shape))
        x = x + functional.dropout(a, self.dropout)
        h = functional.dropout(functional.gelu(self.fc1(self.ln2(x))), self.dropout)
        return x + functional.dropout(self.fc2(h), self.dropout)


class Model(nn.Module):
    def __init__(self, size, dropout, recompute):
        super().__init__()
        self.recompute, self.scale, self.dropout = recompute, math.sqrt(size.width), dropout
        self.embedding = nn.Embedding(size.vocabulary, size.width)
        self.blocks = nn.ModuleList(Block(size, dropout) for _ in range(size.layers))
        self.ln_f = nn.LayerNorm(size.width)
        rates = torch.exp(torch.arange(0, size.width, 2) * (-math.log(10000.0) / size.width))
        angles = torch.arange(size.context).unsqueeze(1) * rates
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], 2).reshape(size.context, size.width))
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, tokens):
        x = functional.dropout(self.embedding(tokens) * self.scale, self.dropout)
        x = functional.dropout(x + self.positions, self.dropout)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return functional.linear(self.ln_f(x), self.embedding.weight)


def make_step(options):
    torch.manual_seed(0)
    size = options.size
    model = Model(size, options.dropout, options.recompute)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=not options.describe)
    window = torch.randint(0, size.vocabulary, (size.batch, size.context + 1))
    tokens, targets = window[:, :-1].contiguous(), window[:, 1:].reshape(-1)

    def loss_of(tokens, targets):
        with autocast(options):
            logits = model(tokens)
        return functional.cross_entropy(logits.float().view(-1, size.vocabulary), targets)

    forward = compiled(options, loss_of)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    sizes = [size.batch, size.context]
    return Step(step, model, optimizer, (tokens, targets), [{"input": sizes, "target": sizes}])


def main():
    parser = options_parser(__doc__, "language_model")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--recompute", action="store_true", help="torch.utils.checkpoint")
    serve(parse(parser), make_step)


if __name__ == "__main__":
    main()
