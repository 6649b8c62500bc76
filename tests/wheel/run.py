#!/usr/bin/env python3
"""The wheel as a user has it, beside the torch of .deps and nothing else of this repository:

    tests/wheel/run.py BUILD_FOLDER

Packs it twice (the same bytes), unpacks it as pip does, and trains, reads HDF5, draws and reports with it: with the figures of the
program of the build, to the bit. Then it breaks what is around it.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from wheels import ROOT, expect, failures, pack, unpack

CHOSEN = ["--device.kernels=ours", "--device.layout=contiguous"]  # two trials may choose two ways, each with bits of its own
FORBIDDEN = ("libc.so", "libm.so", "libstdc++", "libgcc_s", "libtorch", "libc10", "libcrypto", "libcurl", "libX11")


def torch_site():
    given = os.environ.get("MILLRACE_TORCH", "").removesuffix("/torch")
    return Path(given) if given else next((ROOT / ".deps/venv/lib").glob("python3*/site-packages"))


class Wheel:
    def __init__(self, site, folder):
        self.site, self.folder = site, folder

    def run(self, *words, **environment):
        # -S: torch and the wheel are all that this Python has.
        code = f"import sys; sys.path[:0] = [{str(self.site)!r}, {str(torch_site())!r}]; sys.argv[1:] = {list(map(str, words))!r}\n"
        code += "from millrace_train.start import main; main()"
        clean = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "PYTHONPATH")}
        return subprocess.run([sys.executable, "-S", "-E", "-c", code], cwd=self.folder, env={**clean, **environment}, capture_output=True,
                              text=True, errors="replace", stdin=subprocess.DEVNULL)


def check_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    forbidden = [name for name in names if Path(name).name.startswith(FORBIDDEN)]
    expect(not forbidden, f"no library of glibc's, of torch's or of a network inside: {forbidden}")
    for part in ("bin/millrace", "libexec/millrace/millrace-torch", "libexec/millrace/millrace-hdf5", "libexec/millrace/millrace-convolutions",
                 "lib/gomp/libgomp.so.1", "man/man1/millrace.1",
                 "bash-completion/completions/millrace", "licences/millrace.txt", "licences/libhdf5-dev.txt"):
        expect(any(name.endswith(part) for name in names), f"{part} is inside")
    expect("manylinux_2_34" in wheel.name, f"the tag is that of glibc 2.34: {wheel.name}")


def state_of(run):
    return json.loads((run / "summary.json").read_text())["state_sha256"]


def check_runs(wheel, program, folder):
    words = ["train", "cosmology", "--preset", "smoke", "--max_steps=6", "--device.threads=1", "--precision.dtype=fp32", *CHOSEN]
    done = wheel.run(*words, "--run", folder / "by-wheel")
    expect(done.returncode == 0, f"it trains\n{done.stderr[-2000:]}")
    subprocess.run([program, *words, "--run", folder / "by-build"], cwd=folder, check=True, capture_output=True)
    expect(state_of(folder / "by-wheel") == state_of(folder / "by-build"), "the state of six steps is that of the program of the build, to the bit")
    expect((folder / "by-wheel/report.html").exists(), "it writes a report")
    pictures = list((folder / "by-wheel").glob("pictures/*.png"))
    expect(pictures and all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures), "it draws pictures")
    expect(wheel.run("make-data", "cosmology", "--out", folder / "sky").returncode == 0, "it makes HDF5 files")
    file = next((folder / "sky").rglob("*.h5"), None)
    done = wheel.run("inspect", str(file))
    expect(done.returncode == 0, f"it reads them {done.stderr}")


def check_surroundings(wheel, folder):
    hostile = folder / "hostile"
    hostile.mkdir()
    (hostile / "libhdf5_serial.so.103").write_bytes(b"not a library")
    (hostile / "libfmt.so.9").write_bytes(b"not a library")
    done = wheel.run("--version", LD_LIBRARY_PATH=str(hostile))
    expect(done.returncode == 0, f"libraries of the same name first on LD_LIBRARY_PATH change nothing\n{done.stderr}")
    (hostile / "libstdc++.so.6").write_bytes(b"not a library")
    done = wheel.run("--version", LD_LIBRARY_PATH=str(hostile))
    expect(done.returncode == 1 and done.stderr.startswith("InstallationError") and "LD_LIBRARY_PATH is" in done.stderr,
           f"a libstdc++ that can't be one is named with the variable\n{done.stderr}")
    done = wheel.run("train", "language_model", "--preset", "smoke", "--max_steps=2", "--run", folder / "homeless", HOME="/proc/none")
    expect(done.returncode == 0, f"a home that can't be written does no harm\n{done.stderr[-2000:]}")


def main():
    build = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="wheel ü ") as scratch:
        folder = Path(scratch)
        wheel = pack(build, "millrace-train", folder / "one")
        expect(wheel.read_bytes() == pack(build, "millrace-train", folder / "two").read_bytes(), "packed twice it has the same bytes")
        check_contents(wheel)
        site = folder / "site packages"
        unpack(wheel, site)
        installed = Wheel(site, folder)
        check_runs(installed, build / "millrace", folder)
        check_surroundings(installed, folder)
        shutil.rmtree(site)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
