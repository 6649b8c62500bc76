"""Turns a watcher's measurements into the JSON that the library's rules read (`headrace_diagnose`), with further facts for a run
folder."""
from __future__ import annotations

import linecache
import os
import resource
import sys
import time
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")
READS = 0.05  # least share of the looks at a line that found it reading a value; below it, the line mostly does other work
_DIALECTS = (("lightning", ("/lightning/pytorch/", "/pytorch_lightning/")), ("trainer", ("/transformers/trainer",)),
             ("accelerate", ("/accelerate/accelerator",)))


def dialect_of(frame: Any) -> str:
    """The library in whose terms a remedy is expressed, found from the caller of the backward pass."""
    found = set()
    while frame is not None:
        for dialect, parts in _DIALECTS:
            if any(part in frame.f_code.co_filename for part in parts):
                found.add(dialect)
        frame = frame.f_back
    return next((dialect for dialect, _ in _DIALECTS if dialect in found), "loop")


def _relative(path: str) -> str:
    try:
        return os.path.relpath(path)
    except OSError:  # the current folder is gone
        return path


def place(line: tuple[str, int] | None) -> str:
    """The place as the user knows it: "train.py:31"."""
    if line is None:
        return ""
    file = _relative(line[0])
    return f"{os.path.basename(line[0]) if file.startswith('..') else file}:{line[1]}"


def _text(line: tuple[str, int]) -> str:
    return linecache.getline(*line).strip()


def _most(lines: dict[tuple[str, int], int]) -> tuple[str, int] | None:
    return max(list(lines.items()), key=lambda each: each[1])[0] if lines else None  # the loop may be adding to them


def _median(values: list) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


def _occasion(occasions: Any, steps: int) -> dict[str, Any] | None:
    if not occasions.count:
        return None
    return {"count": occasions.count, "seconds": occasions.ns / 1e9, "where": place(_most(occasions.lines)),
            "every_steps": max(1, round(steps / occasions.count))}


def _loaders(watcher: Any, trained: bool) -> list:
    """The loaders of the training, or of validations. Loaders that were made at the same line, as for each pass, count as one."""
    from headrace._script.loaders import Loader
    found: list[Any] = []
    for loader in list(watcher.loaders):
        if loader.trained != trained:
            continue
        same = next((number for number, each in enumerate(found) if each.is_like(loader)), None)
        if same is None:
            found.append(loader)
            continue
        if found[same] in watcher.loaders:  # a copy, because the sum must not change the loader's own counters
            first, found[same] = found[same], Loader(loader.facts)
            found[same].made, found[same].line, found[same].iterable = 0, loader.line, loader.iterable
            found[same].add(first)
        found[same].add(loader)
    return found


def _loader(watcher: Any) -> Any:
    """The training's loader with the most batches."""
    return max(_loaders(watcher, True), key=lambda loader: loader.batches, default=None)


def _judge(watcher: Any) -> Any:
    """The loader for whose batches validations waited longest."""
    return max((loader for loader in _loaders(watcher, False) if _judged_ns(loader)), key=_judged_ns, default=None)


def _validation_input(watcher: Any, loader: Any) -> dict[str, Any] | None:
    if loader is None:
        return None
    reading = _reading(watcher, loader)
    return {"workers": loader.facts["workers"], "wait_seconds": _judged_ns(loader) / 1e9, "read_seconds": reading.wall, "read_cpu_seconds": reading.cpu,
            "where": place(loader.line)}


def _judged_ns(loader: Any) -> int:
    return loader.judged_ns + loader.wait_ns


def _hints(loader: Any, prefix: str = "") -> dict[str, str]:
    """Warnings for arguments of the loader that a remedy may suggest."""
    hints = {}
    if loader is not None and loader.iterable:
        hints[f"{prefix}num_workers"] = (f"{loader.facts.get('dataset') or 'the dataset'} is iterable: each worker reads all of it, unless its "
                                         "__iter__ asks torch.utils.data.get_worker_info() for its share")
    if loader is not None and loader.made > 1:
        hints[f"{prefix}persistent_workers"] = "make the loader once, before the loop: its workers end with it"
    return hints


def _reading(watcher: Any, loader: Any) -> Any:
    from headrace._script.loaders import Reading
    total = Reading()
    total.add(loader.reading)
    for process in loader.workers if watcher.page else ():
        found = watcher.page.read(process)
        if found is not None:
            total.add(found)
    if not loader.facts["workers"] and 0 < total.batches < loader.batches:
        total.scale(loader.batches / total.batches)  # steps that were passed over read batches too
    return total


def _of_loader(loader: Any, reading: Any) -> dict[str, Any]:
    facts = {**loader.facts, "where": place(loader.line), "epochs": loader.epochs,
             # The first epoch begins within startup.
             "first_batch_seconds": sum(loader.first_ns[1:]) / 1e9 if loader.epochs > 1 else 0.0,
             "usual_batch_seconds": _median(loader.waits) / 1e9,
             # After a fork a step copies each page of memory that it writes.
             "slow_start_seconds": max(0.0, sum(loader.first_works) - len(loader.first_works) * _median(loader.works)) / 1e9 if loader.works else 0.0}
    if reading.samples:
        facts.update(sample_seconds=reading.wall / reading.samples, sample_cpu_seconds=reading.cpu / reading.samples)
        if reading.slowest >= 0:
            facts.update(slowest_index=reading.slowest, slowest_seconds=reading.slowest_seconds)
    if facts["workers"] and reading.torch_threads:
        facts.update(worker_threads=reading.torch_threads)
    return facts


def _of_input(loader: Any, reading: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"readers": loader.facts["workers"], "read_seconds": reading.wall, "read_cpu_seconds": reading.cpu, "epochs": 0}
    quick = reading.timed - reading.slow
    if reading.slow and quick:
        usual = (reading.timed_seconds - reading.slow_seconds) / quick
        found["slow"] = [{"file": loader.facts.get("dataset") or "the dataset", "excess_seconds": reading.slow_seconds - reading.slow * usual,
                          "times": reading.slow_seconds / reading.slow / usual if usual else 0, "quick": quick / reading.timed,
                          "sample": f"index {reading.slowest}" if reading.slowest >= 0 else "one whose index is no number", "sample_times": reading.slowest_seconds / usual if usual else 0}]
    return found


def _faults(watcher: Any) -> dict[str, Any] | None:
    if watcher.usage_at is None:
        return None
    began, before = watcher.usage_at
    now = resource.getrusage(resource.RUSAGE_SELF)
    steps, cpu = watcher.accounts.steps - began, now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime
    if steps < 5 or cpu <= 0:
        return None
    faults = (now.ru_minflt - before.ru_minflt) / steps
    # Another finding reports pages of tensors that are made again.
    others = max(0.0, 1 - (watcher.census.result or {}).get("rebuilt_bytes", 0) / PAGE / faults) if faults else 1.0
    return {"minor_per_step": faults * others, "system_cpu_share": (now.ru_stime - before.ru_stime) / cpu * others,
            "below_headrace_run": "glibc.malloc.mmap_max=0" in os.environ.get("GLIBC_TUNABLES", "")}


def _python(looks: Any) -> dict[str, Any] | None:
    line = _most(looks.held)
    if not looks.in_step:
        return None
    found = {"gil_share": sum(looks.held.values()) / looks.in_step, "samples": looks.in_step}
    if line is not None:
        found.update(where=place(line), where_share=looks.held[line] / looks.in_step)
    return found


def _items(looks: Any, seconds: float) -> dict[str, Any] | None:
    """The user's lines that read a value of a tensor, sorted by the number of looks that found them."""
    found = {line: looks.own[line] for line, count in looks.reads.items() if count > READS * looks.own[line]}
    if not found or not looks.in_step:
        return None
    line = _most(found)
    return {"count": 0, "seconds": seconds * sum(found.values()) / looks.in_step, "where": place(line), "line": _text(line)}


def _validations(watcher: Any, seconds: dict[str, float]) -> dict[str, Any] | None:
    found = _occasion(watcher.occasions["validate"], watcher.accounts.steps)
    return found and {**found, "seconds": seconds.get("validate", 0.0)}


def _census(watcher: Any, seconds: dict[str, float]) -> dict[str, Any] | None:
    """A census covers two forward passes. Its result is compared with the mean time of a step's forward and backward pass."""
    seen, steps = watcher.census.result, watcher.accounts.steps
    work = seconds.get("forward", 0.0) + seconds.get("backward", 0.0)
    if seen is None or not steps or not work:
        return None
    found = {"operations": seen["operations"], "seconds": work / steps, "rebuilt_seconds": min(seen["rebuilt_seconds"], seconds.get("forward", 0.0) / steps)}
    if seen["rebuilt"]:
        _, name, shapes, line = seen["rebuilt"]
        found["rebuilt_by"] = f"{name} {list(shapes[0])}" + (f" in {place(line)}" if line else "")
    return found


def _objective(watcher: Any) -> dict[str, Any]:
    lines: dict[int, list] = {}
    for row in watcher.rows[-200:]:
        if row[2] is not None:
            lines.setdefault(row[5], []).append({"step": row[0], "loss": row[2]})
    names = _places(watcher)
    found: dict[str, Any] = {"objectives": [{"name": names[number] if len(lines) > 1 else "loss", "lines": each} for number, each in lines.items()]}
    if watcher.not_finite:
        found["skipped"] = max(1, round(watcher.accounts.steps * min(1.0, watcher.not_finite / max(1, len(watcher.rows)))))
    return found


def _places(watcher: Any) -> list[str]:
    """Places of backward passes by their numbers; "gan.py:20 from gan.py:31" if several places use a function."""
    names: list[str] = []
    for lines in list(watcher.places):
        name = place(lines[0]) if lines else ""
        names.append(f"{name} from {place(lines[1])}" if name in names and len(lines) > 1 else name)
    return names


def _step_ms(rows: list) -> list[float]:
    """Mean step times in at most 60 stretches of equal length."""
    found, stride = [], max(1, len(rows) // 60)
    for first, last in zip(rows[::stride], rows[stride::stride]):
        if last[0] > first[0]:
            found.append((last[3] - first[3]) / (last[0] - first[0]) / 1e6)
    return found


def of(watcher: Any, sampled: dict[str, Any]) -> dict[str, Any]:
    """`sampled`: the values that the library's sampler adds to the evidence."""
    import torch
    accounts = watcher.accounts
    wall, seconds = accounts.read(watcher.ended_ns)
    steps, loader, judge = accounts.steps, _loader(watcher), _judge(watcher)
    loop = wall - seconds.get("startup", 0.0)
    outside = loop - seconds.get("data_wait", 0.0)
    script: dict[str, Any] = {"dialect": watcher.dialect or "loop", "path": _relative(sys.argv[0]) if sys.argv and sys.argv[0] else "", "threads": torch.get_num_threads()}
    found: dict[str, Any] = {
        "step": steps, "run_seconds": loop, "on_gpu": watcher.on_gpu, "cores": len(os.sched_getaffinity(0)),
        "times": {"steps": steps, "step_ms_p50": accounts.times.quantile(0.5), "step_ms_p95": accounts.times.quantile(0.95), "step_seconds": accounts.step_ns / 1e9,
                  "wall": wall, "seconds": seconds},
        "step_ms": _step_ms(watcher.rows), "numbers": _objective(watcher)}
    if accounts.cpu_wall:
        found["work_cpu_seconds"] = accounts.cpu_ns / accounts.cpu_wall * outside
    if loader is not None:
        reading = _reading(watcher, loader)
        script["loader"], found["input"] = _of_loader(loader, reading), _of_input(loader, reading)
    parts: dict[str, tuple] = {
        "faults": (_faults, watcher), "saves": (_occasion, watcher.occasions["snapshot"], steps), "logs": (_occasion, watcher.occasions["log"], steps),
        "validations": (_validations, watcher, seconds), "validation_input": (_validation_input, watcher, judge),
        "kept_graphs": (watcher.kept.evidence, steps, place), "python": (_python, watcher.looks), "item_calls": (_items, watcher.looks, outside)}
    values = {name: watcher.attempt(name, *part) for name, part in parts.items()}
    script.update({name: value for name, value in values.items() if value is not None})
    found["script"] = script
    census = watcher.attempt("census", _census, watcher, seconds)
    if census is not None:
        found["census"] = census
    found.update(sampled)
    found["on_gpu"] = watcher.on_gpu
    if rising := watcher.attempt("memory", watcher.memory.rising):
        found["memory"] = {**found.get("memory", {}), "rising": rising}
    return {"process": watcher.process, "rank": os.environ.get("RANK", ""), "evidence": found, "rows": watcher.rows, "places": _places(watcher), "hints": {**_hints(loader), **_hints(judge, "validation.")}, "tells_steps": accounts.by_loader or accounts.lead is not None, "epochs": loader.epochs if loader else 0,
            "samples": steps * (loader.facts.get("batch_size") or 0) if loader else 0, "began_unix": time.time() - wall,
            "versions": {"python": sys.version.split()[0], "torch": torch.__version__}, "looking_s": watcher.looking_ns / 1e9,
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "system": watcher.machine.get("system"),
            "machine_lines": watcher.machine_lines}
