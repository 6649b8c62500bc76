"""A surrounding that has Python and torch and nothing else of this machine, in which the whole proof runs on the CPU in small."""
import contextlib
import fcntl
import json
import shutil
import socket
import struct
import subprocess
import tempfile
from pathlib import Path

from . import processes
from .errors import ProofError

SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1  # of <linux/sockios.h> and <net/if.h>


def surrounding(python, place):
    """A fresh virtual environment that sees torch and what torch needs. (its Python, its variables, what it isolates)"""
    closure = Path(__file__).with_name("closure.py")
    done = processes.run([python, closure, "torch"], 120)
    if done.status != 0:
        raise ProofError(f"the packages of this Python could not be listed: {done.why()}", python, "take another with --python")
    facts = json.loads(done.out)
    if not any(Path(path).name == "torch" for path in facts["paths"]):
        raise ProofError("this Python has no torch", python, "take one that has, with --python")
    site = place / "site"
    site.mkdir(parents=True)
    for path in facts["paths"] + ([facts["custom"]] if facts["custom"] else []):
        if not (site / Path(path).name).exists():
            (site / Path(path).name).symlink_to(path)
    venv = place / "venv"
    made = processes.run([facts["base"], "-m", "venv", "--without-pip", venv], 120)
    if made.status != 0:
        raise ProofError(f"no virtual environment could be made: {made.why()}", venv, "install Python's venv module (Debian: python3-venv)")
    next(venv.glob("lib/python3*/site-packages")).joinpath("torch.pth").write_text(f"{site}\n")
    home = place / "home"
    home.mkdir()
    variables = {"PATH": str(venv / "bin"), "HOME": str(home), "TMPDIR": str(place / "scratch"), "LANG": "C.UTF-8"}
    (place / "scratch").mkdir()
    if facts["custom"]:  # tools/python-peer's: empty libraries in the place of those of CUDA, bound when they are called
        variables |= {"PYTHONPATH": str(site), "LD_LIBRARY_PATH": facts["library_path"]}
    there = len([path for path in facts["paths"] if path.endswith(".dist-info")])
    return venv / "bin" / "python3", variables, f"Python with {there} of {facts['installed']} packages (torch and what it needs)"


def network_prefix():
    """Words that take the network away, [] where this machine does not allow that."""
    program = shutil.which("unshare")
    words = [program, "--map-root-user", "--net"]
    return words if program and processes.run([*words, "true"], 10).status == 0 else []


def raise_loopback():
    """A fresh network has its loopback down, which no machine has: what talks to itself would wait."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket, contextlib.suppress(OSError):
        request = struct.pack("16sH14x", b"lo", IFF_UP)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)


def rehearse(folder, python, out, words):
    """Exit status of the proof of a copy of `folder` on the CPU, with its table on stdout."""
    with tempfile.TemporaryDirectory(prefix="gpu-proof-") as scratch:
        place = Path(scratch)
        copy = place / "carried"
        shutil.copytree(folder, copy)
        own_python, variables, packages = surrounding(python, place)
        prefix = network_prefix()
        isolation = (f"Rehearsed without a GPU, from a copy of the carried folder: {packages}; no other program on PATH, an empty home, "
                     f"no variables but {', '.join(sorted(variables))}; {'no network' if prefix else 'with the network of this machine'}.")
        command = [*prefix, own_python, copy / "tools" / "gpu-proof", "--inside", isolation, "--out", Path(out).resolve(), *words]
        return subprocess.run([str(word) for word in command], env=variables, cwd=place, stdin=subprocess.DEVNULL, check=False).returncode
