"""Checks the arguments of `headrace.exact` before the first batch."""
from __future__ import annotations

import difflib
from typing import Any

from headrace.errors import KindError, PackageError, StateError, UsageError

PASSED_ON = ("pin_memory", "prefetch_factor", "persistent_workers", "timeout", "worker_init_fn", "multiprocessing_context", "pin_memory_device")
TAKEN = ("shuffle", "seed", "num_workers", "drop_last", "collate_fn", "rank", "ranks", *PASSED_ON)
WHERE = "headrace.exact"
# Arguments of DataLoader that this loader can't accept: the reason, and what to do instead.
REFUSED = {
    "sampler": ("the order is a function of seed and epoch, a sampler is not", "put the selection into the dataset (torch.utils.data.Subset), or shuffle=True"),
    "batch_sampler": ("batches are a function of seed and epoch, a sampler is not", "give batch_size, shuffle and drop_last"),
    "generator": ("random numbers are a function of seed, epoch and position", "give seed=, a whole number"),
    "in_order": ("batches come in their order, else a resume could not be exact", "leave it out"),
}
SEEDS = 1 << 63


def dataset(given: Any) -> None:
    try:
        from torch.utils.data import DataLoader, IterableDataset
    except ImportError as error:
        raise PackageError("torch can't be imported: " + str(error), WHERE, "install torch 2.6 or newer into this environment") from error
    name = type(given).__name__
    if isinstance(given, DataLoader):
        raise KindError("the first argument is a DataLoader", f"{WHERE}({name})", "give its dataset: headrace.exact(loader.dataset, batch_size=...)")
    if isinstance(given, IterableDataset):
        raise KindError(f"{name} is an IterableDataset, whose samples have no positions", f"{WHERE}({name})",
                        "give a dataset with __getitem__ and __len__; files of samples: headrace.Loader")
    if isinstance(given, type):
        raise KindError(f"{given.__name__} is a class, not a dataset", f"{WHERE}({given.__name__})", f"make one: headrace.exact({given.__name__}(...))")
    if isinstance(given, (dict, str, bytes)) or not hasattr(given, "__getitem__"):
        raise KindError(f"{name} is no map-style dataset: samples are read as dataset[0], dataset[1], ...", f"{WHERE}({name})",
                        "give an object with __getitem__ and __len__, such as a torch.utils.data.Dataset")
    if not hasattr(given, "__len__"):
        raise KindError(f"{name} has no length", f"{WHERE}({name})", "add __len__, which returns the number of samples")
    try:
        length = len(given)
    except (TypeError, NotImplementedError) as error:
        raise KindError(f"{name} does not say its length: {error}", f"{WHERE}({name})", "let __len__ return the number of samples") from error
    if length == 0:
        raise UsageError("the dataset has no samples", f"{WHERE}({name})", "look at the path or the filter that it is made with: len(dataset) is 0")


def whole_number(name: str, value: Any, least: int, where: str = WHERE, most: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        hint = f"write {name}={int(value)}" if isinstance(value, (float, str)) and str(value).replace(".0", "").isdigit() else "give a whole number"
        raise KindError(f"{name} is {value!r}, a {type(value).__name__}", f"{where}({name}={value!r})", hint)
    if value < least or (most is not None and value > most):
        raise UsageError(f"{name} is {value}", f"{where}({name}={value})", f"give {least} or more" if most is None else f"give a number from {least} to {most}")


def yes_or_no(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise KindError(f"{name} is {value!r}, a {type(value).__name__}", f"{WHERE}({name}={value!r})", f"write {name}=True or {name}=False")


def _names(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if name in REFUSED:
            raise UsageError(f"{name} is no argument of headrace.exact: {REFUSED[name][0]}", f"{WHERE}({name}=...)", REFUSED[name][1])
        if name not in TAKEN:
            near = difflib.get_close_matches(name, ("batch_size", *TAKEN), 1, 0.5)
            raise KindError(f"headrace.exact has no argument {name}", f"{WHERE}({name}={value!r})",
                            f"did you mean {near[0]}?" if near else f"arguments: batch_size, {', '.join(TAKEN)}")


def options(given: Any, batch_size: Any, options: dict[str, Any]) -> None:
    """Checks all arguments except the dataset `given`."""
    _names(options)
    whole_number("batch_size", batch_size, 1)
    whole_number("num_workers", options["num_workers"], 0)
    for name in ("shuffle", "drop_last", "pin_memory"):
        yes_or_no(name, options[name])
    whole_number("seed", options["seed"], 0, most=SEEDS - 1)
    rank, ranks = options["rank"], options["ranks"]
    if (rank is None) != (ranks is None):
        raise UsageError(f"{'rank' if ranks is None else 'ranks'} is given without {'ranks' if ranks is None else 'rank'}",
                         f"{WHERE}(rank={rank}, ranks={ranks})", "give both, or leave both to torch.distributed")
    if rank is not None:
        whole_number("ranks", ranks, 1)
        whole_number("rank", rank, 0)
        if rank >= ranks:
            raise UsageError(f"rank is {rank} of {ranks}", f"{WHERE}(rank={rank}, ranks={ranks})", f"ranks count from 0: give 0 to {ranks - 1}")
    for name in ("collate_fn", "worker_init_fn"):
        value = options.get(name)
        if value is not None and not callable(value):
            raise KindError(f"{name} is {value!r}, not a function", f"{WHERE}({name}=...)", f"give a function: {name}=my_function, without parentheses behind it")
    for name in ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context"):
        if options.get(name) and not options["num_workers"]:
            raise UsageError(f"{name} is of worker processes, and there are none with num_workers=0", f"{WHERE}({name}={options[name]!r}, num_workers=0)",
                             f"give num_workers=1 or more, or leave {name} out")
    if options.get("prefetch_factor") is not None:
        whole_number("prefetch_factor", options["prefetch_factor"], 1)
    some_batch(len(given), batch_size, ranks or 1, options["drop_last"])


def some_batch(length: int, batch_size: int, ranks: int, drop_last: bool) -> None:
    if drop_last and length < batch_size * ranks:
        raise UsageError(f"no batch is left: the dataset has {length} samples, fewer than the {batch_size * ranks} of a step, and drop_last leaves them out",
                         f"{WHERE}(batch_size={batch_size}, drop_last=True)" + (f" of {ranks} ranks" if ranks > 1 else ""),
                         "take a smaller batch_size, or drop_last=False")


def same_length(given: Any, length: int) -> None:
    if len(given) != length:
        raise StateError(f"the dataset had {length} samples when the loader was made and has {len(given)} now", f"{WHERE}({type(given).__name__})",
                         "make a new loader: another length is another order")


def state(given: Any, length: int, seed: int, shuffle: bool, version: int) -> None:
    """Checks that a state belongs to a loader of this length, seed and order."""
    where = "loader.load_state_dict(state)"
    if not isinstance(given, dict):
        raise KindError(f"the state is {'None' if given is None else 'a ' + type(given).__name__}", where, "give what loader.state_dict() returned")
    if "headrace" not in given or not {"length", "seed", "shuffle", "epoch", "position"} <= set(given):
        inner = [key for key, value in given.items() if isinstance(value, dict) and "headrace" in value]
        raise StateError(f"this is not the state of a headrace loader: its keys are {', '.join(map(str, list(given)[:6])) or 'missing'}", where,
                         f"give its part {inner[0]!r}: load_state_dict(state[{inner[0]!r}])" if inner else "give what loader.state_dict() returned")
    if given["headrace"] != version:
        raise StateError(f"the state has version {given['headrace']}, this headrace reads version {version}", where, "use the headrace that saved it, or a newer one")
    for key, now, what, remedy in (
            ("length", length, "the dataset has {now} samples, the state is of one with {then}", "give the dataset of then; for another one begin anew, without the state"),
            ("seed", seed, "seed is {now}, the state is of seed {then}", "make the loader with seed={then}"),
            ("shuffle", shuffle, "shuffle is {now}, the state is of shuffle={then}", "make the loader with shuffle={then}")):
        if given[key] != now:
            raise StateError(what.format(now=now, then=given[key]), where, remedy.format(then=given[key]))
    for key in ("epoch", "position"):
        whole_number(key, given[key], 0, "loader.load_state_dict", length if key == "position" else None)
