"""Finds the torch that `import torch` would find, without importing it, and becomes the program.

Everything that can be wrong with that torch is said here, in three parts, before the dynamic linker would say it in its own words.
"""
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "bin" / "millrace"
TORCH_PROGRAM = HERE / "libexec" / "millrace" / "millrace-torch"  # what PROGRAM becomes; it alone needs torch
WANTED = "2.11"  # tools/wheel.py writes the torch that the program was built with
INSTALL = f"install it into this environment: {sys.executable or 'python3'} -m pip install 'torch=={WANTED}.*'"


class Unfit(Exception):
    """What is wrong, where, and what to do next."""

    def __str__(self):
        what, where, following = self.args
        return f"InstallationError  {what}\n  where    {where}\n  next     {following}"


def torch_folder():
    """The folder of the package torch."""
    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError, AttributeError) as error:
        raise Unfit(f"Python can't look for torch: {error}", sys.executable, INSTALL) from error
    if found is None:
        raise Unfit("Millrace computes with LibTorch, which comes with torch, and this Python has no torch", sys.executable, INSTALL)
    if not found.origin:
        places = ", ".join(found.submodule_search_locations or ["nowhere"])
        raise Unfit('a folder called "torch" stands where Python looks for torch, and holds no torch', places,
                    "remove or rename that folder, or start millrace elsewhere; then " + INSTALL)
    return Path(found.origin).parent


def check_version(torch):
    """Of the file that torch itself reads its version from."""
    try:
        said = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", (torch / "version.py").read_text(), re.MULTILINE)
    except OSError:
        said = None
    if said is None:
        raise Unfit("this torch doesn't say its version", str(torch / "version.py"), INSTALL.replace("install", "reinstall", 1))
    if not re.match(re.escape(WANTED) + r"(\.|$)", said[1]):
        raise Unfit(f"Millrace needs torch {WANTED}, this is torch {said[1]}", str(torch),
                    "install Millrace's wheel for that torch (its version ends in +torch and the torch; the plain version is for 2.11), use an environment "
                    f"of its own for Millrace (python3 -m venv), or {INSTALL}")


def libraries_of(torch):
    """The folder of LibTorch's libraries: inside torch as in the wheels, or the environment's as in conda's packages."""
    folders = [torch / "lib", Path(sys.prefix) / "lib"]
    for folder in folders:
        if (folder / "libtorch_cpu.so").exists() and (folder / "libc10.so").exists():
            return folder
    raise Unfit("this torch has no libtorch_cpu.so and libc10.so", " and ".join(map(str, folders)),
                f"reinstall it from its wheel: {sys.executable} -m pip install --force-reinstall 'torch=={WANTED}.*'")


def check_abi(libraries):
    """Names of libstdc++'s new strings are in every library that is built with them."""
    if b"__cxx11" not in (libraries / "libc10.so").read_bytes():
        raise Unfit("this torch is built with the old C++ ABI of libstdc++, Millrace with the new one", str(libraries / "libc10.so"),
                    f"take torch {WANTED} from its wheels: they have the new one")


def search_path(libraries):
    """The environment's LD_LIBRARY_PATH with LibTorch's folder before it.

    Some builds of torch carry OpenMP under another name. Then a library without code stands in for the name that the program was
    linked with, so that both use the one that torch brought.
    """
    folders = [str(libraries)]
    if not (libraries / "libgomp.so.1").exists() and any(libraries.glob("libgomp-*.so*")):
        folders.insert(0, str(HERE / "lib" / "gomp"))
    given = os.environ.get("LD_LIBRARY_PATH")
    return ":".join(folders + ([given] if given else []))


def check_links(environment):
    """Whether the dynamic linker finds everything that the program needs, in the version that it needs."""
    try:
        # What `ldd` does: the dynamic linker lists instead of starting.
        done = subprocess.run([TORCH_PROGRAM], env={**environment, "LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "1"}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise Unfit(f"the program can't be started: {error.strerror}", str(TORCH_PROGRAM),
                    "the file system must allow programs; else reinstall Millrace from its wheel: pip install --force-reinstall --no-deps millrace_train-*.whl") from error
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    wrong = [line for line in lines if "not found" in line or "error while loading" in line]
    if wrong or done.returncode != 0:
        where = wrong[0] + (f" and {len(wrong) - 1} more" if wrong[1:] else "") if wrong else f"exit status {done.returncode} of {TORCH_PROGRAM}"
        given = os.environ.get("LD_LIBRARY_PATH")
        following = (f"LD_LIBRARY_PATH is {given!r}: start millrace without it, or take the folder with that library out of it" if given
                     else "reinstall torch with the packages that it requires, and see that glibc is 2.34 or newer (ldd --version)")
        raise Unfit("the dynamic linker doesn't find what the program needs", where, following)


def main():
    """Becomes the program, with this process's arguments. Exits with 1 and a message on stderr where it can't."""
    try:
        torch = torch_folder()
        check_version(torch)
        libraries = libraries_of(torch)
        check_abi(libraries)
        environment = {**os.environ, "LD_LIBRARY_PATH": search_path(libraries)}
        check_links(environment)
        os.execve(PROGRAM, ["millrace", *sys.argv[1:]], environment)
    except Unfit as unfit:
        sys.exit(str(unfit))
    except OSError as error:
        sys.exit(str(Unfit(f"the program can't be started: {error.strerror}", str(error.filename or PROGRAM),
                           "reinstall it from its wheel: pip install --force-reinstall --no-deps millrace_train-*.whl")))
