#!/usr/bin/env python3
"""The wheel of headrace as a user has it:

    tests/wheel/headrace.py BUILD_FOLDER

Packs it twice (the same bytes), unpacks it as pip does, runs the tests of the Loader with it, and loads it in every Python here that may
have it.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from wheels import ROOT, expect, failures, pack, unpack

FORBIDDEN = ("libc.so", "libm.so", "libstdc++", "libgcc_s", "libtorch", "libc10", "libcrypto", "libcurl", "libhdf5_")
CODE = """
import sys, time
sys.path.insert(0, sys.argv[1])
began = time.perf_counter()
import headrace
seconds = time.perf_counter() - began
assert not {"numpy", "torch"} & set(sys.modules), "import headrace imports one of them"
from headrace import _library
print(_library.library().version().decode(), round(seconds * 1e3, 1))
try:
    headrace.hdf5("no-*.h5", {"x": "/x"})
except FileNotFoundError as error:
    assert error.next
"""


def check_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    forbidden = [name for name in names if Path(name).name.startswith(FORBIDDEN)]
    expect(not forbidden, f"no library of glibc's, of torch's or of a network inside: {forbidden}")
    for part in ("headrace/lib/libheadrace.so", "headrace/lib/millrace-hdf5", "headrace/py.typed", "headrace/_script/hook/sitecustomize.py", "licences/millrace.txt", "licences/libhdf5-dev.txt"):
        expect(any(name.endswith(part) for name in names), f"{part} is inside")
    expect(wheel.name.endswith("py3-none-manylinux_2_34_x86_64.whl"), f"one wheel for every Python, of glibc 2.34: {wheel.name}")


def check_pythons(site):
    """Every python3.N here that may have it: without NumPy the library still loads, and mistakes still speak."""
    for minor in range(10, 16):
        python = shutil.which(f"python3.{minor}")
        if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode != 0:
            continue
        done = subprocess.run([python, "-S", "-E", "-c", CODE, site], capture_output=True, text=True)
        expect(done.returncode == 0, f"Python 3.{minor} loads it: version, ms of the import: {done.stdout.strip()}{done.stderr[-2000:]}")


def main():
    build = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="headrace ü ") as scratch:
        folder = Path(scratch)
        wheel = pack(build, "headrace", folder / "one")
        expect(wheel.read_bytes() == pack(build, "headrace", folder / "two").read_bytes(), "packed twice it has the same bytes")
        check_contents(wheel)
        site = folder / "site packages"
        unpack(wheel, site)
        check_pythons(site)
        library = site / "headrace/lib/libheadrace.so"
        tests = subprocess.run([ROOT / "tools/python-peer", ROOT / "tools/run_tests.py", "--unittest", ROOT / "python/tests/loader_peer_test.py"],
                               env={**os.environ, "HEADRACE_LIBRARY": str(library)}, capture_output=True, text=True)
        expect(tests.returncode == 0, f"the tests of the Loader pass with its library\n{tests.stderr[-3000:]}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
