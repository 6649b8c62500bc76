"""One training step of the image_pairs bench shape in Python torch, as a careful user would write it.

    tools/python-peer bench/step/pairs_step_peer.py --mode eager|compile --dtype fp32|bf16 [--unshared] [--packed] [--narrow]

Four pairs in both orders: a vision tower (192 wide, 6 blocks, 3 heads, 64 px in patches of 8) without gradients, a trained projector, a decoder
(256 wide, 4 blocks, 4 heads, 688 hidden) whose weights are frozen beside trained adapters of rank 8 on q, k, v and o with a dropout of 0.05;
cross-entropy of three words at the last position and consistency of both orders; clipped by norm 1 and updated by a fused AdamW. Frozen weights
require no gradient and with bf16 are cast once; bf16 by autocast. Both orders of a pair use one pass of each image through the tower, but for
--unshared. --packed multiplies q, k and v (gate and up) as one product, and their adapters' first halves too. --narrow keeps the residuals of the
decoder in bf16. Answers as step_peer.py says.
"""

import math

import torch
import torch.nn.functional as F
from step_peer import options_parser, serve
from tensor_peak import tensor_peak
from torch import nn

PAIRS, SIDE, PATCH = 4, 64, 8
VISION, VISION_BLOCKS, VISION_HEADS, VISION_HIDDEN = 192, 6, 3, 768
WIDTH, BLOCKS, HEADS, HIDDEN, WORDS = 256, 4, 4, 688, 262
RANK, ALPHA, DROPOUT = 8, 32, 0.05
PROMPT = [257, *[258] * (2 * (SIDE // PATCH) ** 2), *b", Cleaner?"]
ANSWERS = [259, 260, 261]


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


class VisionBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(VISION), nn.LayerNorm(VISION)
        self.qkv, self.out = nn.Linear(VISION, 3 * VISION), nn.Linear(VISION, VISION)
        self.fc1, self.fc2 = nn.Linear(VISION, VISION_HIDDEN), nn.Linear(VISION_HIDDEN, VISION)

    def forward(self, x):
        q, k, v = (split(part, VISION_HEADS) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(joined(F.scaled_dot_product_attention(q, k, v)))
        hidden = self.fc1(self.norm2(x))
        return x + self.fc2(hidden * torch.sigmoid(1.702 * hidden))


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, VISION, PATCH, PATCH, bias=False)
        self.first = nn.Parameter(torch.randn(VISION) * 0.02)
        self.positions = nn.Parameter(torch.randn((SIDE // PATCH) ** 2 + 1, VISION) * 0.02)
        self.norm = nn.LayerNorm(VISION)
        self.blocks = nn.ModuleList(VisionBlock() for _ in range(VISION_BLOCKS))

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
    def __init__(self, packed):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH, 1e-5), nn.RMSNorm(WIDTH, 1e-5)
        self.qkv, self.o = Adapted(WIDTH, [WIDTH] * 3, RANK, packed), Adapted(WIDTH, [WIDTH], RANK, packed)
        self.gate_up, self.down = Adapted(WIDTH, [HIDDEN] * 2, 0, packed), Adapted(HIDDEN, [WIDTH], 0, packed)

    def forward(self, x, cos, sin):
        q, k, v = (split(part, HEADS) for part in self.qkv(self.norm1(x)))
        mixed = F.scaled_dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True)
        x = x + self.o(joined(mixed))[0]
        gate, up = self.gate_up(self.norm2(x))
        return x + self.down(F.silu(gate) * up)[0]


class Model(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.tower = Tower().requires_grad_(False)
        self.projector = nn.Sequential(nn.Linear(VISION, WIDTH), nn.GELU("tanh"), nn.Linear(WIDTH, WIDTH))
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(DecoderBlock(options.packed) for _ in range(BLOCKS))
        self.norm, self.head = nn.RMSNorm(WIDTH, 1e-5), nn.Linear(WIDTH, WORDS, bias=False)
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
        width = WIDTH // HEADS
        angles = torch.outer(torch.arange(len(PROMPT)), 10000.0 ** (-torch.arange(0, width, 2) / width)).repeat(1, 2)
        narrow = torch.bfloat16 if options.dtype == "bf16" else torch.float32
        self.register_buffer("cos", angles.cos().to(narrow))
        self.register_buffer("sin", angles.sin().to(narrow))
        self.register_buffer("prompt", torch.tensor(PROMPT))

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
    model = Model(options)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.1, fused=True)
    pixels = torch.randn(2 * PAIRS, 3, SIDE, SIDE)
    first = torch.arange(2 * PAIRS)  # rows (A, B), (B, A) of each pair
    second = first + 1 - 2 * (first % 2)
    if options.unshared:
        pixels = pixels[torch.stack([first, second], 1).flatten()]
        first, second = torch.arange(0, 4 * PAIRS, 2), torch.arange(1, 4 * PAIRS, 2)
    labels = torch.tensor([0, 1, 1, 0, 2, 2, 0, 1])
    similar = torch.where(labels == 2, 1.2, 1.0)

    def forward(pixels):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
            logits = model(model.features(pixels), first, second)
        return loss_of(logits, labels, similar)

    if options.mode == "compile":
        forward = torch.compile(forward)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(pixels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        return loss

    return step, lambda: tensor_peak(step, model, optimizer, (pixels, first, second, labels))


def main():
    parser = options_parser(__doc__)
    parser.add_argument("--unshared", action="store_true", help="the tower looks at an image once for each order")
    parser.add_argument("--packed", action="store_true", help="projections of one input as one product")
    parser.add_argument("--narrow", action="store_true", help="residuals in bf16")
    serve(parser.parse_args(), make_step)


if __name__ == "__main__":
    main()
