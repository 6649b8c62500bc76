"""The environment variables that `headrace run` sets for a program, and the reasons.

glibc and OpenMP read these variables once, when a program starts, so no call inside the program could set them later. The values
are those that Millrace sets for itself. Variables that the user has set stay unchanged.
"""
from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Mapping, Sequence

# Freed memory stays with the process: large blocks come from the heap too, which grows by 64 MB and is not given back below 16 GB.
# Otherwise each step gets its large tensors from the kernel again, which clears every page of them.
KEPT = {"glibc.malloc.mmap_max": "0", "glibc.malloc.trim_threshold": str(1 << 34), "glibc.malloc.top_pad": str(1 << 26)}
PAGES = {"glibc.malloc.hugetlb": "1"}
SPINS = "20000"
ANY_RANKS = re.compile(r"--?(nproc[-_]per[-_]node|num[-_]processes|num[-_]machines)(?:=(.*))?")
LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")


@dataclass
class Machine:
    """The facts on which the choices depend. Read it with `this_machine()`."""

    glibc: tuple[int, int] | None = None  # None: the C library is not glibc
    pages: str = ""                       # content of /sys/kernel/mm/transparent_hugepage/enabled: "always [madvise] never"
    all_cpus: int = 1                     # logical CPUs of the machine
    cpus: int = 1                         # logical CPUs that this process may use
    cores: int = 1                        # physical cores among them
    quota: float | None = None            # CPU time that the control groups allow, in CPUs; None: no limit
    gpus: int = 0                         # an NVIDIA GPU


@dataclass
class Plan:
    """`variables`: to be set. `lines`: to be printed, each as (subject, text)."""

    variables: dict[str, str] = field(default_factory=dict)
    lines: list[tuple[str, str]] = field(default_factory=list)

    def say(self, subject: str, text: str) -> None:
        self.lines.append((subject, text))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _quota(root: Path) -> float | None:
    """The lowest quota of this process's control groups and their parents, of version 2 or 1."""
    least = None
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, inside = rest.partition(":")
        mount = root / "sys/fs/cgroup"
        if controllers:
            if "cpu" not in controllers.split(","):
                continue
            mount /= "cpu"
        folder = Path(inside.lstrip("/"))
        # Inside a container the outer part of the path is not mounted, so those levels seem unlimited.
        for level in (folder, *folder.parents):
            words = _read(mount / level / "cpu.max").split() or [_read(mount / level / "cpu.cfs_quota_us"), _read(mount / level / "cpu.cfs_period_us")]
            if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
                least = min(int(words[0]) / int(words[1]), least if least is not None else math.inf)
    return least


def this_machine(root: Path = Path("/")) -> Machine:
    """Reads the machine's facts below `root`. A fact that can't be read counts as absent."""
    try:
        said = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        said = ""
    version = re.fullmatch(r"glibc (\d+)\.(\d+).*", said)
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    topology = root / "sys/devices/system/cpu"
    cores = {_read(topology / f"cpu{cpu}" / "topology/thread_siblings_list") or f"cpu{cpu}" for cpu in allowed}
    try:
        gpus = len(os.listdir(root / "proc/driver/nvidia/gpus"))
    except OSError:
        gpus = 0
    return Machine((int(version[1]), int(version[2])) if version else None, _read(root / "sys/kernel/mm/transparent_hugepage/enabled"),
                   os.cpu_count() or 1, len(allowed), len(cores), _quota(root), gpus)


def _count(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) > 0 else None


def ranks_of(words: Sequence[str], machine: Machine) -> int | None:
    """The number of processes that a launcher's command starts on this machine: 1 if it is not a launcher, None if its words do not
    say."""
    name = os.path.basename(words[0]) if words else ""
    at = words.index("-m") + 1 if "-m" in words[:-1] else 0
    module = words[at] if at else ""
    torchrun = name == "torchrun" or module in ("torch.distributed.run", "torch.distributed.launch")
    accelerate = (name == "accelerate" and "launch" in words[1:2]) or module == "accelerate.commands.launch" or name == "accelerate-launch"
    if not torchrun and not accelerate:
        return 1
    begin = 1 if name in ("torchrun", "accelerate", "accelerate-launch") else at + 1
    given: dict[str, str] = {}
    for at, word in enumerate(words[begin:], begin):
        if word.endswith(".py") or (word in ("-m", "--module") and not "".join(words[at + 1:at + 2]).startswith("-")):
            break  # the following words are the script's
        found = ANY_RANKS.fullmatch(word)
        if found:
            given[found[1].replace("-", "_")] = found[2] if found[2] is not None else "".join(words[at + 1:at + 2])
    if torchrun:
        value = given.get("nproc_per_node", "1")
        by_word = {"cpu": machine.cpus, "gpu": machine.gpus or None, "xpu": None, "auto": machine.gpus or machine.cpus}
        return by_word[value] if value in by_word else _count(value)
    processes, machines = _count(given.get("num_processes", "")), _count(given.get("num_machines", "1"))  # accelerate counts those of all machines
    return max(1, processes // machines) if processes and machines else None


def _visible_gpus(environment: Mapping[str, str], machine: Machine) -> int:
    """Those of CUDA_VISIBLE_DEVICES, for which torchrun starts processes with --nproc-per-node=gpu."""
    if "CUDA_VISIBLE_DEVICES" not in environment:
        return machine.gpus
    named = [word.strip() for word in environment["CUDA_VISIBLE_DEVICES"].split(",")]
    return min(machine.gpus, sum(word not in ("", "-1") for word in named))


def _local_size(environment: Mapping[str, str]) -> int:
    """The number of this job's processes on this machine, if an outer launcher started this process."""
    for name in LOCAL_SIZES:
        number = re.match(r"\d+", environment.get(name, ""))
        if number and int(number[0]) > 0:
            return int(number[0])
    return 1


def _other_malloc(environment: Mapping[str, str]) -> str:
    found = re.search(r"(?:jemalloc|tcmalloc|mimalloc|hoard|snmalloc)", environment.get("LD_PRELOAD", ""))
    return found[0] if found else ""


def _plan_malloc(plan: Plan, environment: Mapping[str, str], machine: Machine) -> None:
    tunables = environment.get("GLIBC_TUNABLES", "")
    theirs = [f"{name}={value}" for name, value in environment.items() if name.startswith("MALLOC_")]
    theirs += [part for part in tunables.split(":") if part.startswith("glibc.malloc.")]
    other = _other_malloc(environment)
    if other:
        plan.say("memory", f"left as it is: LD_PRELOAD brings {other}, which glibc's settings do not reach")
        return
    if machine.glibc is None:
        plan.say("memory", "left as it is: the C library is not glibc, whose settings these are")
        return
    if theirs:
        plan.say("memory", f"left as you set it: {', '.join(theirs)}")
        return
    chosen = dict(KEPT)
    plan.say("memory", "freed memory is kept: a step's tensors are not requested from the kernel, and cleared, again in each step")
    if "[always]" in machine.pages:
        plan.say("pages", "2 MB already: the kernel uses them for all programs")
    elif "[madvise]" not in machine.pages:
        plan.say("pages", "4 kB: the kernel has larger pages turned off (/sys/kernel/mm/transparent_hugepage/enabled)")
    elif machine.glibc < (2, 35):
        plan.say("pages", "4 kB: malloc requests larger ones from glibc 2.35 on")
    else:
        chosen.update(PAGES)
        plan.say("pages", "2 MB: the CPU has fewer addresses to look up")
    ours = ":".join(f"{name}={value}" for name, value in chosen.items())
    plan.variables["GLIBC_TUNABLES"] = f"{tunables}:{ours}" if tunables else ours


def _plan_waits(plan: Plan, environment: Mapping[str, str]) -> None:
    theirs = [f"{name}={environment[name]}" for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in environment]
    if theirs:
        plan.say("waiting", f"left as you set it: {', '.join(theirs)}")
        return
    plan.variables["GOMP_SPINCOUNT"] = SPINS
    plan.say("waiting", "threads spin for tenths of a millisecond, then sleep: the others get the core")


def _plan_threads(plan: Plan, words: Sequence[str], environment: Mapping[str, str], machine: Machine) -> None:
    theirs = [f"{name}={environment[name]}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in environment]
    if theirs:
        plan.say("threads", f"left as you set it: {', '.join(theirs)}")
        return
    ranks = ranks_of(words, replace(machine, gpus=_visible_gpus(environment, machine)))
    if ranks is None:
        plan.say("threads", "left as they are: the command does not say how many processes it starts")
        return
    cores = machine.cores
    quota = math.ceil(machine.quota) if machine.quota is not None else cores
    limited = max(1, min(cores, quota))
    why = f"the control group allows {machine.quota:g} CPUs" if quota < cores else f"{cores} core{'s' * (cores != 1)}"
    outside = _local_size(environment) if ranks == 1 else 1
    if outside > 1 and machine.cpus < machine.all_cpus:
        outside = 1  # The launcher bound each of its processes to some of the CPUs.
    every = ranks * outside
    threads = max(1, limited // every)
    if every == 1 and threads >= cores:
        plan.say("threads", f"{threads}, as torch chooses by itself: {why}")
        return
    plan.variables["OMP_NUM_THREADS"] = str(threads)
    plan.say("threads", f"{threads}{' a process' if every > 1 else ''}: {why}{f', {every} processes' if every > 1 else ''}")


def plan_for(words: Sequence[str], environment: Mapping[str, str], machine: Machine) -> Plan:
    """The plan for the command `words` in `environment` on `machine`. Changes nothing."""
    plan = Plan()
    _plan_malloc(plan, environment, machine)
    _plan_waits(plan, environment)
    _plan_threads(plan, words, environment, machine)
    if machine.gpus:
        plan.say("GPU", "what runs on it stays as it is; all of this is for what the script does on the CPU: reading, augmenting, saving")
    return plan
