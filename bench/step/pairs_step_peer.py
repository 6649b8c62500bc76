"""One training step of the image_pairs bench shape in Python torch, as a careful user would write it.

    tools/python-peer bench/step/pairs_step_peer.py --mode eager|compile|graphs --dtype fp32|tf32|bf16 [--device cuda] [--unshared] [--packed] [--narrow]

Pairs in both orders, of the sizes in shapes.py: a vision tower without gradients, a trained projector, a decoder whose weights are frozen beside trained adapters of rank 8 on q, k, v and o with a dropout of 0.05;
cross-entropy of three words at the last position and consistency of both orders; clipped by norm 1 and updated by a fused AdamW. Frozen weights
require no gradient and with bf16 are cast once; bf16 by autocast. Both orders of a pair use one pass of each image through the tower, except with
--unshared. --packed multiplies q, k and v (gate and up) as one product, and their adapters' first halves too. --narrow keeps the residuals of the
decoder in bf16. Answers as step_peer.py says.
"""

import math

import torch
import torch.nn.functional as F
from step_peer import Step, autocast, compiled, options_parser, parse, serve
from torch import nn

RANK, ALPHA, DROPOUT = 8, 32, 0.05
ANSWERS = [259, 260, 261]


def patches_of(size):
    return (size.side // size.patch) ** 2


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


class VisionBlock(nn.Module):
    def __init__(self, size):
        super().__init__()
        width, self.heads = size.vision, size.vision_heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, size.vision_hidden), nn.Linear(size.vision_hidden, width)

    def forward(self, x):
        q, k, v = (split(part, self.heads) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(joined(F.scaled_dot_product_attention(q, k, v)))
        hidden = self.fc1(self.norm2(x))
        return x + self.fc2(hidden * torch.sigmoid(1.702 * hidden))


class Tower(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.patches = nn.Conv2d(3, size.vision, size.patch, size.patch, bias=False)
        self.first = nn.Parameter(torch.randn(size.vision) * 0.02)
        self.positions = nn.Parameter(torch.randn(patches_of(size) + 1, size.vision) * 0.02)
        self.norm = nn.LayerNorm(size.vision)
        self.blocks = nn.ModuleList(VisionBlock(size) for _ in range(size.vision_blocks))

    def forward(self, pixels):
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.to(x.dtype).expand(len(x), 1, -1), x], 1) + self.positions
        x = self.norm(x)
        for block in self.blocks:
            x = block(x)
        return x[:, 1:]


class Adapted(nn.Module):
    """Projections of one input: frozen weights, adapters where there is a rank."""

    def __init__(self, inputs, outputs, rank, packed):
        super().__init__()
        self.packed, self.outputs, self.rank = packed, outputs, rank
        self.frozen = nn.ParameterList(torch.randn(size, inputs) / math.sqrt(inputs) for size in ([sum(outputs)] if packed else outputs))
        if rank:
            bound = 1 / math.sqrt(inputs)
            down = [len(outputs) * rank] if packed else [rank] * len(outputs)
            self.a = nn.ParameterList(torch.empty(rows, inputs).uniform_(-bound, bound) for rows in down)
            self.b = nn.ParameterList(torch.randn(size, rank) * 0.02 for size in outputs)

    def forward(self, x):
        results = [F.linear(x, weight) for weight in self.frozen]
        if self.packed:
            results = list(results[0].split(self.outputs, -1))
        if not self.rank:
            return results
        if self.packed:
            narrow = F.linear(F.dropout(x, DROPOUT, self.training), self.a[0]).split(self.rank, -1)
        else:
            narrow = [F.linear(F.dropout(x, DROPOUT, self.training), a) for a in self.a]
        return [y + F.linear(part, b) * (ALPHA / RANK) for y, part, b in zip(results, narrow, self.b)]


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class DecoderBlock(nn.Module):
    def __init__(self, size, packed):
        super().__init__()
        width, hidden, self.heads = size.width, size.hidden, size.heads
        self.norm1, self.norm2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.qkv, self.o = Adapted(width, [width] * 3, RANK, packed), Adapted(width, [width], RANK, packed)
        self.gate_up, self.down = Adapted(width, [hidden] * 2, 0, packed), Adapted(hidden, [width], 0, packed)

    def forward(self, x, cos, sin):
        q, k, v = (split(part, self.heads) for part in self.qkv(self.norm1(x)))
        mixed = F.scaled_dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True)
        x = x + self.o(joined(mixed))[0]
        gate, up = self.gate_up(self.norm2(x))
        return x + self.down(F.silu(gate) * up)[0]


class Model(nn.Module):
    def __init__(self, options):
        super().__init__()
        size = options.size
        prompt = [257, *[258] * (2 * patches_of(size)), *f", {size.question}".encode()]
        self.tower = Tower(size).requires_grad_(False)
        self.projector = nn.Sequential(nn.Linear(size.vision, size.width), nn.GELU("tanh"), nn.Linear(size.width, size.width))
        self.words = nn.Embedding(size.words, size.width)
        self.blocks = nn.ModuleList(DecoderBlock(size, options.packed) for _ in range(size.blocks))
        self.norm, self.head = nn.RMSNorm(size.width, 1e-5), nn.Linear(size.width, size.words, bias=False)
        for module in (self.words, self.norm, self.head, *(part for block in self.blocks for part in (block.norm1, block.norm2))):
            module.requires_grad_(False)
        for module in self.modules():
            if isinstance(module, Adapted):
                module.frozen.requires_grad_(False)
        if options.dtype == "bf16":
            for parameter in self.parameters():
                if not parameter.requires_grad:
                    parameter.data = parameter.data.bfloat16()
        self.kept_type = torch.bfloat16 if options.narrow else torch.float32
        width = size.width // size.heads
        angles = torch.outer(torch.arange(len(prompt)), 10000.0 ** (-torch.arange(0, width, 2) / width)).repeat(1, 2)
        narrow = torch.bfloat16 if options.dtype == "bf16" else torch.float32
        self.register_buffer("cos", angles.cos().to(narrow))
        self.register_buffer("sin", angles.sin().to(narrow))
        self.register_buffer("prompt", torch.tensor(prompt))

    def features(self, pixels):
        with torch.no_grad():
            return self.tower(pixels)

    def forward(self, features, first, second):
        images = self.projector(features).to(self.kept_type)
        patches, rows = images.shape[1], len(first)
        words = self.words(self.prompt).to(self.kept_type)
        begin, question = words[:1].expand(rows, -1, -1), words[1 + 2 * patches:].expand(rows, -1, -1)
        x = torch.cat([begin, images[first], images[second], question], 1)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.linear(self.norm(x[:, -1]).float(), self.head.weight[ANSWERS].float()).float()


def mirrored(x):
    return x[:, [1, 0, 2]]


def loss_of(logits, labels, similar):
    cross_entropy = (F.cross_entropy(logits, labels, reduction="none") * similar).mean()
    p, q = logits[0::2].softmax(1), mirrored(logits[1::2].softmax(1))
    apart = p.clamp_min(1e-8).log() - q.clamp_min(1e-8).log()
    return cross_entropy + 5.0 * 0.5 * ((p - q) * apart).sum() / len(p)


def make_step(options):
    torch.manual_seed(0)
    model, pairs, side = Model(options), options.size.pairs, options.size.side
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.1, fused=not options.describe)
    pixels = torch.randn(2 * pairs, 3, side, side)
    first = torch.arange(2 * pairs)  # rows (A, B), (B, A) of each pair
    second = first + 1 - 2 * (first % 2)
    if options.unshared:
        pixels = pixels[torch.stack([first, second], 1).flatten()]
        first, second = torch.arange(0, 4 * pairs, 2), torch.arange(1, 4 * pairs, 2)
    labels = torch.tensor([0, 1, 1, 0, 2, 2, 0, 1]).repeat(pairs)[:2 * pairs]
    similar = torch.where(labels == 2, 1.2, 1.0)

    def forward(pixels):
        with autocast(options):
            logits = model(model.features(pixels), first, second)
        return loss_of(logits, labels, similar)

    forward = compiled(options, forward)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(pixels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        return loss

    return Step(step, model, optimizer, (pixels, first, second, labels), [{"pixels": [pairs, 2, 3, side, side], "label": [pairs]}])


def main():
    parser = options_parser(__doc__, "image_pairs")
    parser.add_argument("--unshared", action="store_true", help="the tower looks at an image once for each order")
    parser.add_argument("--packed", action="store_true", help="projections of one input as one product")
    parser.add_argument("--narrow", action="store_true", help="residuals in bf16")
    serve(parse(parser), make_step)


if __name__ == "__main__":
    main()
