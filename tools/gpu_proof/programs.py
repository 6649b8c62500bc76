"""The folder that travels: what is in it, and its program made ready to run.

FOLDER/  carried.json  tools/  bench/  python/  tests/  wheel/*.whl or program/  gpu_tests/  references/
It lies as the repository does, so that scripts find each other as they do there.
"""
import json
import os
import stat
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from . import processes
from .errors import ProofError

MANIFEST = "carried.json"
WHEEL_NAME = "millrace_train-*.whl"
TEST_LIBRARIES = "lib"  # in gpu_tests/: what the tests are linked with and a machine may lack
TORCH_FACTS = """
import json, pathlib, sys, torch
print(json.dumps({"python": sys.version.split()[0], "executable": sys.executable, "torch": torch.__version__, "torch_cuda": torch.version.cuda,
                  "site": str(pathlib.Path(torch.__file__).resolve().parent.parent), "card": torch.cuda.get_device_name() if torch.cuda.is_available() else ""}))
"""


@dataclass
class Programs:
    """Ready to run: the program, its folder with all that is ELF, the folders where the tests find their libraries."""
    millrace: Path
    folder: Path
    tests: list = field(default_factory=list)
    library_path: str = ""


def manifest_of(folder):
    file = Path(folder) / MANIFEST
    if not file.exists():
        raise ProofError("nothing was carried there", file, "make the folder where Millrace is built: tools/gpu-proof --carry")
    return json.loads(file.read_text(encoding="utf-8"))


def torch_facts(python):
    """Versions and place of torch of a Python; ProofError where it has none."""
    done = processes.run([python, "-c", TORCH_FACTS], 120)
    if done.status != 0:
        raise ProofError(f"this Python has no torch: {done.why()}", python, "start gpu-proof with the Python that has torch 2.11")
    return json.loads(done.out.strip().splitlines()[-1])


def unpack(wheel, target):
    """A wheel is an archive; pip, which not every Python has, would do no more with one of programs."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = Path(archive.extract(entry, target))
            mode = entry.external_attr >> 16
            if path.is_file() and mode & stat.S_IXUSR:
                path.chmod(0o755)


def launcher(path, python, site):
    """One file that starts the wheel's program, for all who take the path of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{site}${{PYTHONPATH:+:$PYTHONPATH}}" exec "{python}" -m millrace_train "$@"\n')
    path.chmod(0o755)
    return path


def is_elf(path):
    if path.is_symlink() or not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def prepare(folder, scratch, python, site):
    """The programs of a carried folder, unpacked below `scratch`; `site`: where torch is."""
    folder, scratch = Path(folder), Path(scratch)
    wheels = sorted((folder / "wheel").glob(WHEEL_NAME))
    if wheels:
        home = scratch / "wheel"
        unpack(wheels[0], home)
        millrace = launcher(scratch / "bin" / "millrace", python, home)
    else:
        home = folder / "program"
        millrace = home / "millrace"
        if not millrace.exists():
            raise ProofError("neither a wheel nor a program was carried", folder, "make the folder again: tools/gpu-proof --carry")
    libraries = {path.parent for path in home.rglob("*.so*") if is_elf(path)}
    torch_folders = [Path(site) / "torch" / "lib", *sorted(Path(site).glob("nvidia/*/lib"))]
    path = os.pathsep.join(str(place) for place in [*torch_folders, *sorted(libraries), folder / "gpu_tests" / TEST_LIBRARIES])
    return Programs(millrace, home, sorted(file for file in (folder / "gpu_tests").glob("*_test") if is_elf(file)), path)


def elf_files(programs):
    """What the dynamic linker has to bring together: programs and libraries of the wheel, and the tests."""
    return [path for path in sorted(programs.folder.rglob("*")) if is_elf(path)] + programs.tests
