"""One step of two data-parallel ranks in Python torch, as a careful user would write it: DistributedDataParallel over gloo.

The model, the optimiser and the options of bench/step/gpt_step_peer.py, and: --bucket-mb, --views (gradients are views of their buckets), --static
(static graph), --compress (the bf16 hook). RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the environment, as under torchrun.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "step"))

import gpt_step_peer as gpt  # noqa: E402
import torch  # noqa: E402
from step_peer import Step, options_parser, parse, serve  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook  # noqa: E402
from torch.nn import functional  # noqa: E402


def make_step(options):
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    size = options.size
    plain = gpt.Model(size, options.dropout, recompute=False)
    model = nn.parallel.DistributedDataParallel(
        plain, bucket_cap_mb=options.bucket_mb, gradient_as_bucket_view=options.views, static_graph=options.static, broadcast_buffers=False)
    if options.compress:
        model.register_comm_hook(None, bf16_compress_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    torch.manual_seed(1 + int(os.environ["RANK"]))
    window = torch.randint(0, size.vocabulary, (size.batch, size.context + 1))
    tokens, targets = window[:, :-1].contiguous(), window[:, 1:].reshape(-1)
    forward = torch.compile(model) if options.mode == "compile" else model

    def step():
        optimizer.zero_grad(set_to_none=not options.views)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
            logits = forward(tokens)
        loss = functional.cross_entropy(logits.float().view(-1, size.vocabulary), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    sizes = [size.batch, size.context]
    return Step(step, model, optimizer, (tokens, targets), [{"input": sizes, "target": sizes}])


def main():
    parser = options_parser(__doc__, "language_model")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--bucket-mb", type=float, default=25)
    for name in ("views", "static", "compress"):
        parser.add_argument(f"--{name}", action="store_true")
    serve(parse(parser), make_step)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
