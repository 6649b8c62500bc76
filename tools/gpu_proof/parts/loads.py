"""Whether the programs load at all, and what they say of the machine."""
import json
import re
import shutil
from pathlib import Path

from .. import machine
from ..programs import is_elf

MISSING = re.compile(r"(\S+) => not found|(?:libraries: )(\S+): cannot open shared object file")
LINKERS = ("/lib64/ld-linux-x86-64.so.2",)


def libraries(proof, linker):
    """Every program, library and test: what its dynamic linker does not find."""
    folder = Path(proof.setup["program_folder"])
    files = [path for path in sorted(folder.rglob("*")) if is_elf(path)] + [Path(test) for test in proof.setup["tests"]]
    missing = []
    for file in files:
        done = proof.tried([linker, "--list", file], 20, {"LD_LIBRARY_PATH": proof.setup["library_path"]})
        lost = ["".join(names) for names in MISSING.findall(done.out + done.err)]
        if done.status != 0 and not lost:
            lost = [done.why()]
        missing += [f"{file.name} lacks {name}" for name in lost if proof.on_gpu or not is_cudas(name)]
    proof.row("libraries of all programs and tests", f"{len(files)} files, {len(missing)} libraries missing", "failed" if missing else "ok",
              "; ".join(missing[:6]))


def is_cudas(name):
    """A library of CUDA, which a rehearsal has no use for."""
    return name.startswith(("libcu", "libnccl", "libnv", "libtorch_cuda", "libc10_cuda"))


def doctor(proof):
    done = proof.tried([proof.program, "doctor", "--json"], 25)
    checks = json.loads(done.out) if done.out.strip().startswith("{") else None
    if checks is None:
        proof.row("millrace doctor", verdict="failed", why=done.why())
        return
    proof.row("millrace doctor", f"exit status {done.status}", "ok" if done.status == 0 else "differs", said=checks)


def run(proof):
    with proof.trying("card"):
        cards = machine.cards()
        if cards:
            proof.row("card", ", ".join(cards[0].values()), cards=cards)
        else:
            proof.skipped("card")
    with proof.trying("versions"):
        facts = proof.setup["torch"]
        said = proof.run([proof.program, "--version"], 20).out.split("\n")[0].strip()
        proof.row("versions", f"{said}; Python {facts['python']}, torch {facts['torch']}", "ok")
    with proof.trying("device"):
        if proof.on_gpu:
            proof.row("Python torch sees the card", proof.setup["torch"]["card"], "ok")
            said = proof.run([proof.program, "doctor"], 25).out
            seen = any(proof.setup["torch"]["card"] in line for line in said.splitlines())
            proof.row("millrace sees the card", "", "ok" if seen else "failed", "" if seen else said)
        else:
            proof.skipped("Python torch sees the card")
    linker = next((path for path in LINKERS if shutil.which(path)), None)
    if linker:
        with proof.trying("libraries"):
            libraries(proof, linker)
    else:
        proof.row("libraries of all programs and tests", verdict="left out", why="no dynamic linker of x86-64")
    with proof.trying("millrace doctor"):
        doctor(proof)
