"""Determines which part of the data this process reads."""
from __future__ import annotations

import os
import sys

from headrace.errors import MomentError, UsageError


def world_now() -> tuple[int, int]:
    """(rank, ranks) of torch.distributed. If that is not initialised, from torchrun's variables; (0, 1) if both are missing."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return (int(rank), int(world)) if rank.isdigit() and world.isdigit() and int(rank) < int(world) else (0, 1)


def of_loader(rank: int | None, ranks: int | None) -> tuple[int, int, int]:
    """(rank, ranks, number of ranks on this machine): the given values, or the present ones of the process."""
    if (rank is None) != (ranks is None):
        raise UsageError("rank and ranks belong together", "headrace.Loader()", "give both, or none of them")
    if ranks is not None:
        return rank, ranks, 1
    rank, ranks = world_now()
    return rank, ranks, min(ranks, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def check(rank: int, ranks: int) -> None:
    """Raises an error if the loader was made for another number of ranks, because each rank would read the wrong part of the data."""
    now = world_now()
    if now[1] > 1 and now != (rank, ranks):
        raise MomentError(f"the loader was made for rank {rank} of {ranks}, and this process is rank {now[0]} of {now[1]} now", "headrace.Loader",
                          "make the loader after torch.distributed.init_process_group(), or give rank= and ranks=")
