"""Gradients of parity.py's decoder under DistributedDataParallel, for ddp_test.cpp to compare with.

usage: ddp.py WEIGHTS.safetensors BATCH.safetensors OUT.safetensors LAYERS HEADS RANKS
Each rank has its share of BATCH's "tokens", in order; small buckets, so that they leave during the backward pass. OUT gets grad.<name>.
"""

import os
import socket
import sys

import torch
from parity import Model, loss_of
from safetensors.torch import load_file, save_file
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel


def run(rank, ranks, port, weights_file, batch_file, out_file, layers, heads):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    weights = load_file(weights_file)
    vocabulary, width = weights["token_embeddings.embedding.weight"].shape
    model = Model(vocabulary, width, layers, heads)
    model.load_state_dict(weights)
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.02, gradient_as_bucket_view=True)
    tokens = load_file(batch_file)["tokens"].chunk(ranks)[rank]
    for _ in range(2):  # the second has its buckets in the order in which gradients come
        parallel.zero_grad()
        loss_of(parallel, tokens)[1].backward()
    if rank == 0:
        save_file({f"grad.{name}": value.grad.contiguous() for name, value in model.named_parameters()}, out_file)
    distributed.destroy_process_group()


def main():
    weights_file, batch_file, out_file, layers, heads, ranks = sys.argv[1:]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(run, (int(ranks), port, weights_file, batch_file, out_file, int(layers), int(heads)), int(ranks))


if __name__ == "__main__":
    main()
