"""The network of image_pairs and its losses in plain PyTorch, as a careful user would write them: for parity.py and benches to compare with.

PairModel(config) takes the keys of the recipe's section; parameters have the names of LLaVA-1.5's files, adapters those that PEFT gives them.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Projection(nn.Linear):
    """W x + b and, with a rank, scale * B A dropout(x)."""

    def __init__(self, inputs, outputs, bias=False, rank=0, scale=1.0, dropout=0.0):
        super().__init__(inputs, outputs, bias)
        self.scale, self.rank = scale, rank
        if rank:
            self.lora_A, self.lora_B = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
            self.lora_dropout = nn.Dropout(dropout)

    def forward(self, x):
        y = super().forward(x)
        return y + self.scale * self.lora_B(self.lora_A(self.lora_dropout(x))) if self.rank else y


class Adapted:
    """Makes projections, with adapters where they are asked for."""

    def __init__(self, config):
        self.rank = config["lora_r"]
        self.more = {"scale": config["lora_alpha"] / max(self.rank, 1), "dropout": config["lora_dropout"]}

    def __call__(self, inputs, outputs, bias, adapted):
        return Projection(inputs, outputs, bias, self.rank if adapted else 0, **self.more)


def heads_of(x, heads):
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


class VisionAttention(nn.Module):
    def __init__(self, width, heads, make, adapted):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = (make(width, width, True, adapted) for _ in range(3))
        self.out_proj = make(width, width, True, False)

    def forward(self, x):
        q, k, v = (heads_of(layer(x), self.heads) for layer in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS = {"auto": quick_gelu, "quick_gelu": quick_gelu, "gelu": F.gelu, "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh")}


class VisionMlp(nn.Module):
    def __init__(self, width, hidden, activation):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x):
        return self.fc2(self.activation(self.fc1(x)))


class VisionBlock(nn.Module):
    def __init__(self, config, make):
        super().__init__()
        width = config["vision_width"]
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(width, 1e-5), nn.LayerNorm(width, 1e-5)
        self.self_attn = VisionAttention(width, config["vision_heads"], make, config["lora_vision"])
        self.mlp = VisionMlp(width, config["vision_hidden"], config.get("vision_activation", "auto"))

    def forward(self, x):
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, patch = config["vision_width"], config["patch_size"]
        self.class_embedding = nn.Parameter(torch.zeros(width))
        self.patch_embedding = nn.Conv2d(3, width, patch, patch, bias=False)
        self.position_embedding = nn.Embedding((config["image_size"] // patch) ** 2 + 1, width)

    def forward(self, pixels):
        patches = self.patch_embedding(pixels).flatten(2).transpose(1, 2)
        first = self.class_embedding.expand(len(pixels), 1, -1)
        return torch.cat([first, patches], 1) + self.position_embedding.weight


class Layers(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, *more):
        for layer in self.layers:
            x = layer(x, *more)
        return x


class VisionModel(nn.Module):
    def __init__(self, config, make):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.pre_layrnorm = nn.LayerNorm(config["vision_width"], 1e-5)
        built = config["vision_layers"] + config["vision_feature_layer"] + 1
        self.encoder = Layers(VisionBlock(config, make) for _ in range(built))

    def forward(self, pixels):
        return self.encoder(self.pre_layrnorm(self.embeddings(pixels)))[:, 1:]


class Tower(nn.Module):
    def __init__(self, config, make):
        super().__init__()
        self.vision_model = VisionModel(config, make)

    def forward(self, pixels):
        return self.vision_model(pixels)


class Projector(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(inputs, outputs), nn.Linear(outputs, outputs)

    def forward(self, x):
        return self.linear_2(F.gelu(self.linear_1(x), approximate="tanh"))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        values = x.float()
        values = values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * values.to(x.dtype)


def turned(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Attention(nn.Module):
    def __init__(self, config, make):
        super().__init__()
        self.heads, width = config["decoder_heads"], config["decoder_width"]
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, make(width, width, False, name in config["lora_targets"]))

    def forward(self, x, cos, sin):
        q, k, v = (heads_of(layer(x), self.heads) for layer in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (turned(t, cos.to(t.dtype), sin.to(t.dtype)) for t in (q, k))
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, config, make):
        super().__init__()
        width, hidden, targets = config["decoder_width"], config["decoder_hidden"], config["lora_targets"]
        self.gate_proj = make(width, hidden, False, "gate_proj" in targets)
        self.up_proj = make(width, hidden, False, "up_proj" in targets)
        self.down_proj = make(hidden, width, False, "down_proj" in targets)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, config, make):
        super().__init__()
        self.self_attn, self.mlp = Attention(config, make), Mlp(config, make)
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(config["decoder_width"]), RmsNorm(config["decoder_width"])

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, config, make):
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["decoder_width"])
        self.layers = nn.ModuleList(Block(config, make) for _ in range(config["decoder_layers"]))
        self.norm = RmsNorm(config["decoder_width"])
        self.base, self.head_width = config["rope_base"], config["decoder_width"] // config["decoder_heads"]

    def forward(self, x):
        rates = self.base ** (-torch.arange(0, self.head_width, 2, device=x.device, dtype=torch.float64) / self.head_width)
        angles = torch.arange(x.shape[1], device=x.device, dtype=torch.float64)[:, None] * rates
        angles = torch.cat([angles, angles], 1)
        cos, sin = angles.cos().float(), angles.sin().float()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class LanguageModel(nn.Module):
    def __init__(self, config, make):
        super().__init__()
        self.model = Llama(config, make)
        self.lm_head = nn.Linear(config["decoder_width"], config["vocab_size"], bias=False)


class PairModel(nn.Module):
    def __init__(self, config, answers=(259, 260, 261)):
        super().__init__()
        make = Adapted(config)
        self.vision_tower = Tower(config, make)
        self.multi_modal_projector = Projector(config["vision_width"], config["decoder_width"])
        self.language_model = LanguageModel(config, make)
        self.answers = list(answers)

    def freeze(self):
        for name, parameter in self.named_parameters():
            parameter.requires_grad_("lora_" in name or name.startswith("multi_modal_projector."))
        return self

    def forward(self, pixels, images, tokens, lengths, places):
        """pixels (n, 3, S, S); images (R, 2): which of them a row is about; tokens (R or 1, L); places: where they stand. Logits (R, 3)."""
        return self.answer(self.vision_tower(pixels), images, tokens, lengths, places)

    def answer(self, features, images, tokens, lengths, places):
        values = self.multi_modal_projector(features)
        x = self.language_model.model.embed_tokens(tokens).expand(len(images), -1, -1).to(values.dtype).clone()
        for place, which in zip(places, images.unbind(1)):
            x[:, place:place + values.shape[1]] = values[which]
        hidden = self.language_model.model(x)
        last = hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]
        return self.language_model.lm_head(last).float()[:, self.answers]


def losses(logits, labels, similar_weight=1.2, swap_weight=1.0):
    """Cross-entropy, and how far the answers to both orders of a pair are from mirror images. Rows (A, B), (B, A), ..."""
    ce = F.cross_entropy(logits, labels, reduction="none")
    ce = ce * torch.where(labels == 2, similar_weight, 1.0)
    ce = ce * torch.tensor([1.0, swap_weight], device=logits.device).repeat(len(logits) // 2)
    p, q = logits[0::2].softmax(1), logits[1::2].softmax(1)[:, [1, 0, 2]]
    log_p, log_q = p.clamp_min(1e-8).log(), q.clamp_min(1e-8).log()
    consistency = 0.5 * ((p * (log_p - log_q)).sum(1) + (q * (log_q - log_p)).sum(1))
    return ce.mean(), consistency.mean()
