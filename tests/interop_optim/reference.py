"""What Python torch computes for optim_test.cpp: runs of optimisers on made-up gradients, and schedules step by step.

Writes one JSON object to the file named by its argument. The made-up numbers are formulas, repeated in the test.
Ends with status 77 where torch can't be imported.
"""
import json
import math
import sys

try:
    import torch
    from torch.optim import lr_scheduler
except (ImportError, OSError) as error:
    print(error, file=sys.stderr)
    sys.exit(77)

STEPS = 20
SHAPES = {"w": (4, 3), "b": (5,)}


def numbers(shape, offset, slope):
    count = math.prod(shape)
    return torch.tensor([math.sin(offset + slope * i) for i in range(count)], dtype=torch.float32).reshape(shape)


def run(make, fused, clip_norm=0.0, clip_value=0.0, scale=1.0):
    parameters = {name: torch.nn.Parameter(numbers(shape, len(name), 0.7)) for name, shape in SHAPES.items()}
    optimizer = make([{"params": [parameters["w"]]}, {"params": [parameters["b"]], "lr": 0.05, "weight_decay": 0.0}], fused)
    for step in range(STEPS):
        for index, (name, parameter) in enumerate(parameters.items()):
            parameter.grad = numbers(parameter.shape, 0.3 * step + index, 1.3) * scale
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(list(parameters.values()), clip_norm)
        if clip_value:
            torch.nn.utils.clip_grad_value_(list(parameters.values()), clip_value)
        optimizer.step()
    result = {name: parameter.detach().flatten().tolist() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        for key, value in optimizer.state[parameter].items():
            result[f"{name}.{key}"] = torch.as_tensor(value).flatten().tolist()
    return result


def adamw(groups, fused):
    return torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, fused=fused)


def adam(groups, fused):
    return torch.optim.Adam(groups, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, fused=fused)


def sgd(groups, fused):
    return torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=0.1, fused=fused)


def rates(make, steps=30):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
    scheduler = make(optimizer)
    values = []
    for _ in range(steps):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return values


def warm(optimizer, after):
    rise = lr_scheduler.LinearLR(optimizer, start_factor=1 / 6, end_factor=1.0, total_iters=5)
    return lr_scheduler.SequentialLR(optimizer, [rise, after], milestones=[6])


def plateau(metrics):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=0.1, min_lr=0.1)
    values = []
    for metric in metrics:
        scheduler.step(metric)
        values.append(optimizer.param_groups[0]["lr"])
    return values


def grad_scaler(clip_norm=0.0):
    """A product in half precision overflows by itself where the scale is too large; some steps are spoilt besides."""
    w = torch.nn.Parameter(numbers((4, 3), 1, 0.7))
    optimizer = torch.optim.SGD([w], lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", growth_interval=4)
    rows = []
    for step in range(60):
        x = numbers((4, 3), 0.3 * step, 1.3) * 300
        optimizer.zero_grad()
        scaler.scale((w.half() * x.half()).float().sum()).backward()
        if step in (20, 21, 40):
            w.grad[1, 2] = math.nan if step == 21 else -math.inf
        if clip_norm:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_([w], clip_norm)
        scaler.step(optimizer)
        scaler.update()
        rows.append([scaler.get_scale(), scaler._get_growth_tracker(), *w.detach().flatten().tolist()])
    return rows


result = {
    "grad_scaler": grad_scaler(),
    "grad_scaler clipped": grad_scaler(clip_norm=50.0),
    "adamw": run(adamw, True),
    "adam": run(adam, True),
    "sgd": run(sgd, True),
    "adamw loop": run(adamw, False),
    "adam loop": run(adam, False),
    "sgd loop": run(sgd, False),
    "clip_norm": run(adamw, True, clip_norm=0.5, scale=3.0),
    "clip_value": run(sgd, True, clip_value=0.25, scale=3.0),
    "constant": rates(lambda o: lr_scheduler.ConstantLR(o, factor=1.0)),
    "linear": rates(lambda o: lr_scheduler.LinearLR(o, start_factor=1.0, end_factor=0.25, total_iters=30)),
    "cosine": rates(lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=30, eta_min=0.1)),
    "warmup_cosine": rates(lambda o: warm(o, lr_scheduler.CosineAnnealingLR(o, T_max=24, eta_min=0.1))),
    "step": rates(lambda o: lr_scheduler.StepLR(o, step_size=4, gamma=0.5), steps=12),
    "one_cycle": rates(
        lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.4, total_steps=31, final_div_factor=1e3, cycle_momentum=False)
    ),
    "plateau": plateau([1.0, 0.95, 0.8, 0.79, 0.78, 0.77, 0.6, 0.6, 0.6, 0.1, 0.1, 0.1]),
}
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(result, file)
