"""One training step of the neural_response bench shape in Python torch, as a careful user would write it.

    tools/python-peer bench/step/twin_step_peer.py --mode eager|compile|graphs --dtype fp32|tf32|bf16 [--device cuda] [--channels-last] [--stencil] [--joined]

The model of tests/neural_response/twin.py with the predictive-coding modulator, at the sizes of shapes.py: units of each session, rows of all
sessions together, stimuli (1, 25, 51, 51); masked Poisson loss + 0.25 of the auxiliary loss, clip by norm 1, fused AdamW,
dropout as the config says; bf16 by autocast. --stencil writes blurs as shifted sums, --joined runs the core once over the rows of all
sessions, --mixed makes a forward for each row. Answers as step_peer.py says.
"""

import sys
from pathlib import Path

import torch
from step_peer import Step, autocast, compiled, options_parser, parse, serve

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "neural_response"))
from twin import Twin, loss_of, published

LAGS, GRID, BEHAVIOR = 25, 51, 42


def parameter_groups(model):
    """No decay on vectors and on the readouts' means, as the recipe has it."""
    kept, decayed = [], []
    for name, parameter in model.named_parameters():
        (kept if parameter.dim() < 2 or name.endswith(".mean") else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": 1e-4}, {"params": kept, "weight_decay": 0.0}]


def made_up(options, units):
    """A list of (session, stim, behavior) and one of (counts, valid)."""
    rows = {session: 0 for session in range(len(units))}
    for i in range(options.size.rows):
        rows[i % len(units)] += 1
    batch, targets = [], []
    for session, count in rows.items():
        pieces = [1] * count if options.mixed else [count]
        for n in pieces:
            batch.append((session, torch.rand(n, 1, LAGS, GRID, GRID) - 0.5, torch.randn(n, BEHAVIOR)))
            targets.append((torch.poisson(torch.full((n, units[session]), 0.2)), torch.ones(n, units[session])))
    return batch, targets


def make_step(options):
    torch.manual_seed(0)
    units = options.size.units
    model = Twin(published("pc"), units, stencil=options.stencil)
    if options.channels_last:
        for parameter in model.parameters():
            if parameter.dim() in (4, 5):
                layout = torch.channels_last if parameter.dim() == 4 else torch.channels_last_3d
                parameter.data = parameter.data.contiguous(memory_format=layout)
    model.train()
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=1e-3, fused=not options.describe)
    batch, targets = made_up(options, units)

    def loss_and_terms(batch, targets):
        with autocast(options):
            return loss_of(model, batch, targets, joined=options.joined)[0]

    forward = compiled(options, loss_and_terms)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(batch, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    inputs = [tensor for entry in batch for tensor in entry[1:]] + [tensor for pair in targets for tensor in pair]
    names = "stim", "behavior", "robs", "dfs"
    return Step(step, model, optimizer, inputs,
                [dict(zip(names, (list(tensor.shape) for tensor in (*entry[1:], *pair)))) for entry, pair in zip(batch, targets)])


def main():
    parser = options_parser(__doc__, "neural_response")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--stencil", action="store_true", help="blurs as shifted sums instead of convolutions of one channel")
    parser.add_argument("--joined", action="store_true", help="the core once, over the rows of all sessions")
    parser.add_argument("--mixed", action="store_true", help="one forward per sample")
    serve(parse(parser), make_step)


if __name__ == "__main__":
    main()
