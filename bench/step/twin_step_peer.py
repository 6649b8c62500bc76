"""One training step of the neural_response bench shape in Python torch, as a careful user would write it.

    tools/python-peer bench/step/twin_step_peer.py --mode eager|compile --dtype fp32|bf16 [--channels-last] [--stencil] [--joined]

The model of tests/neural_response/twin.py with the predictive-coding modulator: two sessions of 60 and 40 units, 4 rows each, stim
(4, 1, 25, 51, 51); masked Poisson loss + 0.25 of the auxiliary loss, clip by norm 1, fused AdamW,
dropout as the config says; bf16 by autocast. --stencil writes blurs as shifted sums, --joined runs the core once over the rows of all
sessions. --rows, --sessions, --units and --mixed (one forward per sample) are for the comparison of mixed batches. Answers as step_peer.py
says.
"""

import sys
from pathlib import Path

import torch
from step_peer import options_parser, serve
from tensor_peak import tensor_peak

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
    for i in range(options.rows * len(units) if options.batch is None else options.batch):
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
    units = options.units * options.sessions if len(options.units) == 1 else options.units
    model = Twin(published("pc"), units, stencil=options.stencil)
    if options.channels_last:
        for parameter in model.parameters():
            if parameter.dim() in (4, 5):
                layout = torch.channels_last if parameter.dim() == 4 else torch.channels_last_3d
                parameter.data = parameter.data.contiguous(memory_format=layout)
    model.train()
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=1e-3, fused=True)
    batch, targets = made_up(options, units)

    def loss_and_terms(batch, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
            return loss_of(model, batch, targets, joined=options.joined)[0]

    forward = torch.compile(loss_and_terms) if options.mode == "compile" else loss_and_terms

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(batch, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    inputs = [tensor for entry in batch for tensor in entry[1:]] + [tensor for pair in targets for tensor in pair]
    return step, lambda: tensor_peak(step, model, optimizer, inputs)


def main():
    parser = options_parser(__doc__)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--stencil", action="store_true", help="blurs as shifted sums instead of convolutions of one channel")
    parser.add_argument("--joined", action="store_true", help="the core once, over the rows of all sessions")
    parser.add_argument("--mixed", action="store_true", help="one forward per sample")
    parser.add_argument("--rows", type=int, default=4, help="of each session")
    parser.add_argument("--batch", type=int, help="rows of all sessions together, instead of --rows")
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--units", type=int, nargs="+", default=[60, 40], help="of each session, or one number for all")
    options = parser.parse_args()
    serve(options, make_step)


if __name__ == "__main__":
    main()
