"""One training step of the language_model bench shape in Python torch, as a careful user would write it.

    tools/python-peer bench/step/gpt_step_peer.py --mode eager|compile --dtype fp32|bf16 [--dropout 0.1] [--steps 3]

384 wide, 6 layers, 6 heads, context 256, batch 8, 70 tokens; scaled tied embedding, sinusoidal positions, pre-norm blocks, exact
GELU, causal scaled_dot_product_attention; fused AdamW, clip by norm 1; bf16 by autocast. Answers as step_peer.py says.
"""

import math

import torch
from step_peer import options_parser, serve
from tensor_peak import tensor_peak
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY = 70
WIDTH, LAYERS, HEADS, CONTEXT, BATCH = 384, 6, 6, 256, 8  # or --size


class Block(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = dropout

    def forward(self, x):
        def heads(y):
            return y.view(BATCH, CONTEXT, HEADS, WIDTH // HEADS).transpose(1, 2)

        n = self.ln1(x)
        a = functional.scaled_dot_product_attention(
            heads(self.w_q(n)), heads(self.w_k(n)), heads(self.w_v(n)), dropout_p=self.dropout, is_causal=True)
        a = self.w_o(a.transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH))
        x = x + functional.dropout(a, self.dropout)
        h = functional.dropout(functional.gelu(self.fc1(self.ln2(x))), self.dropout)
        return x + functional.dropout(self.fc2(h), self.dropout)


class Model(nn.Module):
    def __init__(self, dropout, recompute):
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.dropout = dropout
        rates = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000.0) / WIDTH))
        angles = torch.arange(CONTEXT).unsqueeze(1) * rates
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], 2).reshape(CONTEXT, WIDTH))
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, tokens):
        x = functional.dropout(self.embedding(tokens) * math.sqrt(WIDTH), self.dropout)
        x = functional.dropout(x + self.positions, self.dropout)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return functional.linear(self.ln_f(x), self.embedding.weight)


def make_step(options):
    torch.manual_seed(0)
    model = Model(options.dropout, options.recompute)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    window = torch.randint(0, VOCABULARY, (BATCH, CONTEXT + 1))
    tokens, targets = window[:, :-1].contiguous(), window[:, 1:].reshape(-1)
    inputs = (tokens, targets)

    def loss_of(tokens, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
            logits = model(tokens)
        return functional.cross_entropy(logits.float().view(-1, VOCABULARY), targets)

    forward = torch.compile(loss_of) if options.mode == "compile" else loss_of

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step, lambda: tensor_peak(step, model, optimizer, inputs)


def main():
    parser = options_parser(__doc__)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--size", type=int, nargs=5, metavar=("WIDTH", "LAYERS", "HEADS", "CONTEXT", "BATCH"))
    parser.add_argument("--recompute", action="store_true", help="torch.utils.checkpoint")
    options = parser.parse_args()
    if options.size:
        globals().update(zip(("WIDTH", "LAYERS", "HEADS", "CONTEXT", "BATCH"), options.size))
    serve(options, make_step)


if __name__ == "__main__":
    main()
