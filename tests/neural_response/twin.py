"""The digital twin in plain PyTorch, as a careful user would write it: for parity.py and bench/step to compare with.

Twin(config, units) takes the keys of the recipe's section ("adapter", "frontend", "convnet", "modulator", "readout"); what they
leave out is as published(). stencil=True writes blurs as shifted sums instead of convolutions with one channel; joined=True, in
forward, runs the core once over the rows of all sessions instead of once per session.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


def published(modulator="convgru"):
    """The model of the recipe's full preset."""
    stage = {"stride": 1, "dilation": 1, "dropout": 0.0, "pool_stride": 0, "squeeze": 8}
    wide = {"kernel_size": (3, 5, 5), "padding": (1, 3, 3)}
    config = {
        "adapter": {"type": "adapter", "grid_size": 51, "init_sigma": 1.0, "init_scale": math.log(2), "sigma_max": 3.0},
        "frontend": {"type": "learnable_temporal", "kernel_size": 16, "num_channels": 4},
        "convnet": {
            "type": "resnet",
            "stages": [
                stage | wide | {"channels": 8, "stride": 2},
                stage | wide | {"channels": 256, "dropout": 0.1, "pool_stride": 2},
                stage
                | {"kernel_size": (3, 3, 3), "padding": (2, 2, 2), "channels": 128}
                | {"dilation": 2, "dropout": 0.2, "pool_stride": 1, "squeeze": 16},
            ],
            "final_activation": "none",
        },
        "modulator": {
            "type": modulator,
            "hidden_dim": 128,
            "beh_emb_dim": 32,
            "kernel_size": 3,
            "encoder_params": {
                "dims": (64, 64),
                "activation": "gelu",
                "residual": True,
                "dropout": 0.0,
                "last_layer_activation": False,
            },
        },
        "readout": {"type": "gaussian", "bias": True, "initial_std": 5.0, "initial_mean_scale": 0.1},
        "output_activation": "none",
        "behavior_dim": 42,
    }
    if modulator == "pc":
        config["convnet"]["final_activation"] = "softplus"
    return config


def blur3(x):
    """[1, 2, 1] x [1, 2, 1] / 16 over the last two axes, as shifted sums."""
    x = F.pad(x, (0, 0, 1, 1))
    x = x[..., :-2, :] + 2 * x[..., 1:-1, :] + x[..., 2:, :]
    x = F.pad(x, (1, 1))
    return (x[..., :-2] + 2 * x[..., 1:-1] + x[..., 2:]) * (1 / 16)


def shifted_sum(x, kernel, dim):
    """A correlation of axis `dim` with a short kernel, zeros outside, as a sum of shifted products."""
    half = kernel.numel() // 2
    pad = [0, 0] * (x.dim() - 1 - dim % x.dim()) + [half, half]
    padded, size = F.pad(x, pad), x.size(dim)
    out = kernel[0] * padded.narrow(dim, 0, size)
    for k in range(1, kernel.numel()):
        out = torch.addcmul(out, kernel[k], padded.narrow(dim, k, size))
    return out


class Adapter(nn.Module):
    def __init__(self, config, stencil):
        super().__init__()
        self.log_sigma = nn.Parameter(torch.tensor(math.log(math.expm1(config["init_sigma"]))))
        self.log_scale = nn.Parameter(torch.full((2,), math.log(math.expm1(config["init_scale"]))))
        self.grid_size = config["grid_size"]
        self.half = math.ceil(3 * config["sigma_max"])
        self.stencil = stencil

    def forward(self, x):
        scale = F.softplus(self.log_scale)
        least = F.relu(0.44 * (1 / scale.min() - 1))
        sigma = torch.sqrt(least**2 + F.softplus(self.log_sigma) ** 2)
        d = torch.arange(-self.half, self.half + 1, device=x.device)
        kernel = torch.exp(-0.5 * (d / sigma) ** 2)
        kernel = kernel / kernel.sum()
        n, _, lags, height, width = x.shape
        if self.stencil:
            x = shifted_sum(shifted_sum(x, kernel, -2), kernel, -1).view(n, lags, height, width)
        else:
            x = x.reshape(n * lags, 1, height, width)
            x = F.conv2d(x, kernel.view(1, 1, -1, 1), padding=(self.half, 0))
            x = F.conv2d(x, kernel.view(1, 1, 1, -1), padding=(0, self.half)).view(n, lags, height, width)
        line = torch.linspace(-1, 1, self.grid_size, device=x.device)
        grid_y, grid_x = torch.meshgrid(line, line, indexing="ij")
        grid = torch.stack((grid_x, grid_y), dim=-1) * scale
        x = F.grid_sample(x, grid.expand(n, -1, -1, -1), mode="bilinear", padding_mode="zeros", align_corners=True)
        return x.unsqueeze(1)


class Frontend(nn.Module):
    def __init__(self, config):
        super().__init__()
        channels, size = config["num_channels"], config["kernel_size"]
        self.temporal_conv = nn.Conv1d(1, channels, size, bias=False)
        t = torch.linspace(-(size - 1) / 2, (size - 1) / 2, size)
        sigma = size / 6
        bell = torch.exp(-0.5 * (t / sigma) ** 2)
        filters = [bell, -t / sigma**2 * bell, (t**2 / sigma**2 - 1) / sigma**2 * bell]
        filters += [torch.randn(size) * bell for _ in range(channels - 3)]
        with torch.no_grad():
            self.temporal_conv.weight.copy_(torch.stack([f / f.norm() for f in filters[:channels]]).unsqueeze(1))

    def forward(self, x):
        n, _, lags, height, width = x.shape
        y = self.temporal_conv(x.permute(0, 1, 3, 4, 2).reshape(-1, 1, lags))
        return y.view(n, height, width, *y.shape[1:]).permute(0, 3, 4, 1, 2).contiguous()


class BlurredSoftPool(nn.Module):
    def __init__(self, channels, stride, squeeze, stencil):
        super().__init__()
        taps = torch.tensor([1.0, 2.0, 1.0])
        self.register_buffer("blur", (taps[:, None] * taps[None, :] / 16)[None, None])
        self.stride = stride
        self.stencil = stencil
        width = max(channels // squeeze, 1)
        self.se = nn.Sequential(
            nn.AdaptiveAvgPool3d((None, 1, 1)),
            nn.Conv3d(channels, width, 1),
            nn.SiLU(),
            nn.Conv3d(width, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        n, channels, frames, height, width = x.shape
        if self.stencil:
            x = blur3(x).reshape(n * channels * frames, 1, height, width)
        else:
            x = F.conv2d(x.reshape(n * channels * frames, 1, height, width), self.blur, padding=1)
        weight = torch.exp(x.clamp(max=30))
        x = F.avg_pool2d(x * weight, 2, self.stride) / (F.avg_pool2d(weight, 2, self.stride) + 1e-6)
        x = x.view(n, channels, frames, *x.shape[-2:])
        return x * self.se(x)


def rms_norm(x):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(1, keepdim=True) + 1e-5)).to(x.dtype)


class Block(nn.Module):
    def __init__(self, stage, inputs, stencil):
        super().__init__()
        channels, kernel = stage["channels"], stage["kernel_size"]
        self.components = nn.ModuleDict()
        conv = nn.Module()
        conv.conv = nn.Conv3d(inputs, channels, kernel, stride=stage["stride"], dilation=stage["dilation"], bias=False)
        self.components["conv"] = conv
        if stage["pool_stride"]:
            self.components["pool"] = BlurredSoftPool(channels, stage["pool_stride"], stage["squeeze"], stencil)
        _, high, wide = stage["padding"]
        self.pad = (wide, wide, high, high, stage["dilation"] * (kernel[0] - 1), 0)
        self.dropout = stage["dropout"]

    def forward(self, x):
        x = self.components["conv"].conv(F.pad(x, self.pad, mode="replicate"))
        x = F.dropout(F.silu(rms_norm(x)), self.dropout, self.training)
        return self.components["pool"](x) if "pool" in self.components else x


class Stage(nn.Module):
    def __init__(self, stage, inputs, stencil):
        super().__init__()
        self.main_block = Block(stage, inputs, stencil)
        stride = stage["stride"] * max(stage["pool_stride"], 1)
        projects = stride > 1 or stage["channels"] != inputs
        self.shortcut = (
            nn.Sequential(nn.Conv3d(inputs, stage["channels"], 1, stride=stride, bias=False)) if projects else nn.Identity()
        )

    def forward(self, x):
        skip, x = self.shortcut(x), self.main_block(x)
        frames, height, width = (min(a, b) for a, b in zip(x.shape[2:], skip.shape[2:]))

        def cropped(y):
            top, left = (y.size(3) - height) // 2, (y.size(4) - width) // 2
            return y[:, :, -frames:, top : top + height, left : left + width]

        return cropped(x) + cropped(skip)


class Convnet(nn.Module):
    def __init__(self, config, inputs, stencil):
        super().__init__()
        self.layers = nn.ModuleList()
        for stage in config["stages"]:
            self.layers.append(Stage(stage, inputs, stencil))
            inputs = stage["channels"]
        self.softplus = config["final_activation"] == "softplus"

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return F.softplus(x) if self.softplus else x


class GruCell(nn.Module):
    def __init__(self, inputs, hidden, kernel):
        super().__init__()
        self.conv_x = nn.Conv2d(inputs, 3 * hidden, kernel, padding=kernel // 2)
        self.conv_h = nn.Conv2d(hidden, 3 * hidden, kernel, padding=kernel // 2, bias=False)
        nn.init.orthogonal_(self.conv_h.weight)


class Gru(nn.Module):
    def __init__(self, inputs, hidden, kernel):
        super().__init__()
        self.cell = GruCell(inputs, hidden, kernel)
        self.hidden = hidden

    def forward(self, x):
        n, channels, frames, height, width = x.shape
        gates = self.cell.conv_x(x.transpose(1, 2).reshape(n * frames, channels, height, width))
        gates = gates.view(n, frames, 3 * self.hidden, height, width)
        h = x.new_zeros(n, self.hidden, height, width)
        for t in range(frames):
            z, _, candidate = (gates[:, t] + self.cell.conv_h(h)).chunk(3, dim=1)
            z = torch.sigmoid(z)
            h = (1 - z) * h + z * torch.tanh(candidate)
        return h


class Recurrent(nn.Module):
    def __init__(self, config, channels, behavior):
        super().__init__()
        self.predicts = config["type"] == "pc"
        hidden, embedded, kernel = config["hidden_dim"], config["beh_emb_dim"], config["kernel_size"]
        self.beh_emb = nn.Linear(behavior, embedded)
        gru = Gru(channels + embedded, hidden, kernel)
        if self.predicts:
            self.predictor = gru
            self.channels = 2 * channels
        else:
            self.gru = gru
            self.output_proj = nn.Conv2d(hidden, hidden, 1)
            self.channels = hidden

    def forward(self, x, behavior):
        past = x[:, :, :-1] if self.predicts else x
        n, _, frames, height, width = past.shape
        embedded = self.beh_emb(behavior)[:, :, None, None, None].expand(-1, -1, frames, height, width)
        past = torch.cat((past, embedded), dim=1)
        if not self.predicts:
            return self.output_proj(self.gru(past)), None
        last = x[:, :, -1]
        error = last - self.predictor(past)
        return torch.cat((last, error), dim=1), error if self.training else None


class Active(nn.Module):
    def __init__(self, inputs, outputs, dropout, activation):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.activation = {"gelu": F.gelu, "silu": F.silu}[activation]
        self.dropout = dropout

    def forward(self, x):
        return F.dropout(self.activation(self.linear(x)), self.dropout, self.training)


class Encoder(nn.Module):
    def __init__(self, config, inputs):
        super().__init__()
        widths, activation = [inputs, *config["dims"]], config["activation"]
        layers = [Active(i, o, config["dropout"], activation) for i, o in zip(widths[:-2], widths[1:-1])]
        active = config["last_layer_activation"]
        last = Active(widths[-2], widths[-1], 0.0, activation) if active else nn.Linear(widths[-2], widths[-1])
        self.mlp = nn.Sequential(*layers, last)
        self.residual = config["residual"] and widths[0] == widths[-1]

    def forward(self, x):
        return self.mlp(x) + x if self.residual else self.mlp(x)


class Film(nn.Module):
    def __init__(self, config, channels, behavior):
        super().__init__()
        self.encoder = Encoder(config["encoder_params"], behavior)
        self.scale_layer = nn.Linear(config["encoder_params"]["dims"][-1], channels)
        self.shift_layer = nn.Linear(config["encoder_params"]["dims"][-1], channels)
        self.channels = channels
        nn.init.ones_(self.scale_layer.weight)
        for zero in (self.scale_layer.bias, self.shift_layer.weight, self.shift_layer.bias):
            nn.init.zeros_(zero)

    def forward(self, x, behavior):
        encoded = self.encoder(behavior)
        return self.scale_layer(encoded)[:, :, None, None] * x[:, :, -1] + self.shift_layer(encoded)[:, :, None, None], None


class Concat(nn.Module):
    def __init__(self, config, channels, behavior):
        super().__init__()
        self.encoder = Encoder(config["encoder_params"], behavior)
        self.channels = channels + config["encoder_params"]["dims"][-1]

    def forward(self, x, behavior):
        last = x[:, :, -1]
        encoded = self.encoder(behavior)[:, :, None, None].expand(-1, -1, *last.shape[-2:])
        return torch.cat((last, encoded), dim=1), None


class SpatialTransformer(nn.Module):
    def __init__(self, config, channels, behavior):
        super().__init__()
        self.encoder = Encoder(config["encoder_params"], behavior)
        self.theta_head = nn.Linear(config["encoder_params"]["dims"][-1], 6)
        self.alpha_head = nn.Linear(config["encoder_params"]["dims"][-1], channels)
        self.channels = channels
        for head in (self.theta_head, self.alpha_head):
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
        with torch.no_grad():
            self.theta_head.bias.copy_(torch.tensor([1.0, 0, 0, 0, 1, 0]))

    def forward(self, x, behavior):
        last, encoded = x[:, :, -1], self.encoder(behavior)
        grid = F.affine_grid(self.theta_head(encoded).view(-1, 2, 3), last.shape, align_corners=False)
        moved = F.grid_sample(last, grid, align_corners=False)
        alpha = torch.sigmoid(self.alpha_head(encoded))[:, :, None, None]
        return alpha * moved + (1 - alpha) * last, None


MODULATORS = {"convgru": Recurrent, "pc": Recurrent, "film": Film, "concat": Concat, "stn": SpatialTransformer}


class GaussianReadout(nn.Module):
    def __init__(self, config, channels, units):
        super().__init__()
        self.features = nn.Conv2d(channels, units, 1, bias=False)
        self.mean = nn.Parameter(config["initial_mean_scale"] * torch.randn(units, 2))
        self.std = nn.Parameter(torch.full((units, 2), config["initial_std"]))
        self.theta = nn.Parameter(torch.zeros(units))
        self.bias = nn.Parameter(torch.zeros(units)) if config["bias"] else None

    def mask(self, height, width):
        y = torch.arange(height, device=self.mean.device) - (height - 1) / 2
        x = torch.arange(width, device=self.mean.device) - (width - 1) / 2
        places = torch.stack(torch.meshgrid(y, x, indexing="ij"), dim=-1)
        d = places - self.mean[:, None, None, :]
        cosine, sine = torch.cos(self.theta), torch.sin(self.theta)
        rotation = torch.stack((torch.stack((cosine, -sine), -1), torch.stack((sine, cosine), -1)), dim=-2)
        d = torch.einsum("nhwi,nij->nhwj", d, rotation) / self.std.clamp(min=1e-3)[:, None, None, :]
        mask = torch.exp(-0.5 * (d**2).sum(-1))
        return mask / (mask.sum((-1, -2), keepdim=True) + 1e-8)

    def forward(self, x):
        with torch.autocast("cuda" if x.is_cuda else "cpu", enabled=False):
            mask = self.mask(*x.shape[-2:])
        out = (self.features(x) * mask).sum((-2, -1))
        return out if self.bias is None else out + self.bias


class LinearReadout(nn.Module):
    def __init__(self, config, channels, units):
        super().__init__()
        self.fc = nn.Linear(channels, units, bias=config["bias"])

    def forward(self, x):
        return self.fc(x.mean((-2, -1)))


class Twin(nn.Module):
    def __init__(self, config, units, stencil=False):
        super().__init__()
        config = published(config.get("modulator", {}).get("type", "convgru")) | config
        self.adapters, self.readouts = nn.ModuleList(), nn.ModuleList()
        channels = 1
        self.frontend = self.convnet = self.modulator = None
        if config["frontend"]["type"] != "none":
            self.frontend = Frontend(config["frontend"])
            channels = config["frontend"]["num_channels"]
        if config["convnet"]["type"] != "none":
            self.convnet = Convnet(config["convnet"], channels, stencil)
            channels = config["convnet"]["stages"][-1]["channels"]
        kind = config["modulator"]["type"]
        if kind != "none":
            self.modulator = MODULATORS[kind](config["modulator"], channels, config["behavior_dim"])
            channels = self.modulator.channels
        self.has_adapters = config["adapter"]["type"] != "none"
        readout = GaussianReadout if config["readout"]["type"] == "gaussian" else LinearReadout
        for n in units:
            if self.has_adapters:
                self.adapters.append(Adapter(config["adapter"], stencil))
            self.readouts.append(readout(config["readout"], channels, n))
        self.gives_rates = config["output_activation"] == "softplus"
        self.modulator_only = not self.has_adapters and self.frontend is None and self.convnet is None

    def core(self, x, behavior):
        if self.modulator_only:
            x = torch.ones(x.size(0), 1, 1, 1, 1, device=x.device)
        if self.frontend is not None:
            x = self.frontend(x)
        if self.convnet is not None:
            x = self.convnet(x)
        return (x[:, :, -1], None) if self.modulator is None else self.modulator(x, behavior)

    def forward(self, batch, joined=False):
        """batch: a list of (session, stim (N,1,L,H,W), behavior (N,B)). Returns the rates of each, and the squared errors."""
        adapted = [self.adapters[k](stim) if self.has_adapters else stim for k, stim, _ in batch]
        if joined:
            sizes = [x.size(0) for x in adapted]
            features, error = self.core(torch.cat(adapted), torch.cat([behavior for _, _, behavior in batch]))
            features = features.split(sizes)
            errors = [None] * len(sizes) if error is None else error.split(sizes)
        else:
            features, errors = zip(*(self.core(x, behavior) for x, (_, _, behavior) in zip(adapted, batch)))
        rates = []
        for (k, _, _), x in zip(batch, features):
            out = self.readouts[k](x).float()
            rates.append(F.softplus(out).clamp(min=1e-8) if self.gives_rates else out.clamp(min=-20))
        return rates, [None if e is None else e.float().square().mean() for e in errors]


def poisson_sum_and_count(rate, counts, valid, gives_rates=False):
    """The masked Poisson loss of a session, as a sum over valid (row, unit) pairs and their number."""
    loss = rate - counts * torch.log(rate + 1e-8) if gives_rates else torch.exp(rate) - counts * rate
    return (loss * valid).sum(), valid.sum()


def loss_of(model, batch, targets, lambda_pred=0.25, joined=False):
    """targets: a list of (counts, valid). Returns the loss of a step and its terms."""
    rates, errors = model(batch, joined)
    terms = [poisson_sum_and_count(r, y, d, model.gives_rates) for r, (y, d) in zip(rates, targets)]
    sums, counts = (torch.stack(column) for column in zip(*terms))
    loss = sums.sum() / counts.sum()
    if errors[0] is not None:
        loss = loss + lambda_pred * torch.stack(errors).mean()
    return loss, {"sums": sums, "counts": counts, "errors": errors, "rates": rates}


def means_of(terms, bucket_mean):
    """The Poisson loss and the squared error (or None) of a step, from the terms of loss_of. by_count: all valid (row, unit) pairs
    weigh the same; unweighted: all sessions do."""
    counts = terms["counts"]
    weights = counts if bucket_mean == "by_count" else torch.ones_like(counts)

    def mean(values):
        return (weights * values).sum() / weights.sum()

    error = None if terms["errors"][0] is None else mean(torch.stack(terms["errors"]))
    return mean(terms["sums"] / counts), error
