#!/usr/bin/env python3
"""Packs what is built into a wheel (./dev wheel sets up and builds first): millrace-train, the program, which works with any installed
torch of the series that it was built with, or headrace, the library for Python, which needs no torch. The program's wheel for torch 2.11
has the plain version; one for another torch names it: 0.1.0+torch2.15.

    tools/wheel.py [millrace-train | headrace] --build build/release --out dist

Stages the programs, libraries and licences of all that is inside, has hatchling pack them and auditwheel add the libraries that Debian
has and other systems may lack. Which these are is read from the programs. Two calls on one build give the same bytes.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SYSROOT = ROOT / ".deps/sysroot"  # made by ./dev --no-root
PLAIN = "2.11"  # the torch whose wheel has a version without a suffix
# LibTorch's libraries, and those that LibTorch brings or loads itself.
BESIDE_TORCH = ["libtorch*.so*", "libc10*.so*", "libgomp*.so*", "libcudart.so*", "libnccl.so*"]


@dataclass(frozen=True)
class Wheel:
    package: str       # of Python, in python/
    component: str     # of cmake --install
    target: str        # that builds all of it
    project: str       # its pyproject.toml, in python/
    readme: str        # in python/
    most_bytes: int
    left_out: tuple = ()     # libraries that are never packed
    has_pages: bool = False  # completions and the manual page
    needs_torch: bool = False  # the one that it was built with


WHEELS = {
    "millrace-train": Wheel("millrace_train", "program", "millrace_wheel", "pyproject.toml", "README.md", 48_000_000, tuple(BESIDE_TORCH), True, True),
    "headrace": Wheel("headrace", "headrace", "headrace_wheel", "headrace.toml", "headrace.md", 8_000_000),
}


def fail(what, where, following):
    sys.exit(f"Error  {what}\n  where    {where}\n  next     {following}")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        fail(f"{Path(str(command[0])).name} ended with {done.returncode}:\n{tail}", " ".join(map(str, command)), "read the lines above")
    return done.stdout


def torch_of(build):
    """The series of torch that the programs are linked with, as CMake has it."""
    found = re.search(r"^MILLRACE_TORCH_SERIES:INTERNAL=(.+)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
    if found is None:
        fail("this build does not say its torch", str(build / "CMakeCache.txt"), "./dev build configures it anew")
    return found[1]


def torch_in(name):
    """What the version in a wheel's name says of torch; "" for the plain version."""
    return name.split("-")[1].partition("+")[2]


def name_torch(file, pattern, torch):
    """Writes the series into the only place of `file` that `pattern` finds, where 2.11 stands."""
    text, count = re.subn(pattern, lambda found: found[0].replace(PLAIN, torch), file.read_text())
    if count != 1:
        fail(f"{file.name} names torch in {count} places", str(file), f"mend the pattern {pattern} in tools/wheel.py")
    file.write_text(text)


def stage_torch(stage, torch):
    """Has the staged program's wheel require its torch, and name it in its version where that is not the plain one."""
    name_torch(stage / "pyproject.toml", r'"torch==2\.11\.\*"', torch)
    name_torch(stage / "README.md", r"beside the torch 2\.11 of", torch)
    name_torch(stage / "millrace_train/start.py", r'WANTED = "2\.11"', torch)
    if torch != PLAIN:
        header = stage / "version.h"
        header.write_text(re.sub(r'(kVersion = "[^"]+)"', rf'\1+torch{torch}"', header.read_text()))


def stage_package(wheel, build, stage):
    package = stage / wheel.package
    run("cmake", "--install", build, "--component", wheel.component, "--prefix", package, "--strip")
    shutil.copy2(ROOT / "python" / wheel.project, stage / "pyproject.toml")
    shutil.copy2(ROOT / "python" / wheel.readme, stage / "README.md")
    shutil.copy2(ROOT / "python/tag.py", stage)
    shutil.copytree(ROOT / "python" / wheel.package, package, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "src/millrace/base/version.h", stage)
    for program in programs(stage / wheel.package):
        run(patchelf(), "--remove-rpath", program)


def programs(package):
    """The programs and libraries of ours in the staged package."""
    folders = ("bin", "lib", "libexec/millrace")
    return [file for folder in folders for file in sorted((package / folder).glob("*")) if file.is_file()]


def patchelf():
    return Path(sys.executable).parent / "patchelf"


def stage_pages(build, stage):
    for page, path in (("man", "man/man1/millrace.1"), ("bash", "bash-completion/completions/millrace"),
                       ("zsh", "zsh/site-functions/_millrace"), ("fish", "fish/vendor_completions.d/millrace.fish")):
        target = stage / "share" / path
        target.parent.mkdir(parents=True)
        target.write_text(run(build / "millrace", "docs", page))


def linked_files(wheel, build):
    """Every library file, static or shared, that the programs are linked with, from the build's own commands; fonts and headers too."""
    commands = run("ninja", "-C", build, "-t", "commands", wheel.target)
    files = {Path(word) for word in re.findall(r"(?<=\s)/\S+\.(?:a|so)(?:\.\S+)?(?=\s)", commands) if word.startswith("/")}
    files |= {Path(word) for word in re.findall(r'MILLRACE_FONT_FILE=\\?"([^"\\]+)', commands)}
    files |= {Path(path) for path in header_files(build)}
    return sorted(file for file in files if file.exists())


def header_files(build):
    """A file of each header-only library, among those that the compiler read."""
    deps = run("ninja", "-C", build, "-t", "deps")
    return {line.strip() for line in deps.splitlines()
            if re.match(r"\s+(/\S*)?/usr/include/(nlohmann/json\.hpp|toml\+\+/toml\.h|toml\+\+/toml\.hpp|gloo/context\.h|fmt/core\.h)$", line)}


def package_of(file):
    """Debian's package of a file; merged /usr: dpkg may know it by the other name."""
    real = file.resolve()
    for name in (file, real, Path(str(real).removeprefix("/usr")), Path(str(file).removeprefix("/usr"))):
        done = subprocess.run(["dpkg-query", "-S", str(name)], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    return None


def notices_of(files):
    """{package: its copyright file} for the packages that contain these files."""
    notices = {}
    for file in files:
        if file.is_relative_to(SYSROOT):  # unpacked without dpkg, files are not assigned to packages: all packages count
            notices |= {notice.parent.name: notice for notice in (SYSROOT / "usr/share/doc").glob("lib*/copyright")}
            continue
        package = package_of(file)
        if package is None:
            fail(f"{file} is of no Debian package: its licence is not known", str(file), "link Debian's library of that name, or build without it")
        notices[package] = Path("/usr/share/doc") / package / "copyright"
    return {package: notice for package, notice in sorted(notices.items()) if not package.startswith(("libc6", "libstdc++", "libgcc", "gcc-"))}


def stage_licences(wheel, build, stage):
    folder = stage / "licences"
    folder.mkdir()
    shutil.copy2(ROOT / "LICENSE", folder / "millrace.txt")
    files = [file for file in [*linked_files(wheel, build), *shared_libraries(stage / wheel.package)]
             if not any(file.match(pattern) for pattern in wheel.left_out) and not file.is_relative_to(build)]
    texts = set()
    for package, notice in notices_of(files).items():
        if not notice.exists():
            fail(f"package {package} has no copyright file", str(notice), f"apt-get install --reinstall {package}")
        if notice.read_bytes() not in texts:  # a library and its headers are two packages with the same text
            shutil.copyfile(notice, folder / f"{package}.txt")
            texts.add(notice.read_bytes())
    return len(texts)


def shared_libraries(package):
    """Debian's shared libraries on this machine that the programs load: those that auditwheel will add."""
    found = set()
    for program in programs(package):
        for line in subprocess.run(["ldd", str(program)], capture_output=True, text=True).stdout.splitlines():
            match = re.search(r"=> (/\S+)", line)
            if match and not re.search(r"/(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s)\.so", match[1]):
                found.add(Path(match[1]))
    return sorted(found)


def remarks_on_gpus(wheel, stage):
    """GPU features that the wheel lacks, since this machine lacked something when it was built."""
    if wheel.component != "program":
        return ""
    plugin = stage / "millrace_train/lib/libmillrace_cuda.so"
    if not plugin.exists():
        return "; without the plugin for GPUs: the torch that it was built with has no CUDA"
    if b"ProcessGroupNCCL" not in plugin.read_bytes():
        return "; one GPU a run alone: nccl.h of torch's NCCL was not found (it comes with a CUDA toolkit or nvidia-nccl-cu13)"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=WHEELS, default="millrace-train")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    wheel, build = WHEELS[options.name], options.build.resolve()
    work = build / "wheel" / wheel.package
    shutil.rmtree(work, ignore_errors=True)
    stage = work / "stage"
    stage.mkdir(parents=True)
    stage_package(wheel, build, stage)
    if wheel.needs_torch:
        stage_torch(stage, torch_of(build))
    if wheel.has_pages:
        stage_pages(build, stage)
    licences = stage_licences(wheel, build, stage)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip(),
                   "PATH": f"{patchelf().parent}:{os.environ['PATH']}"}
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", work / "raw", cwd=stage, env=environment)
    raw = next((work / "raw").glob("*.whl"))
    left_out = [word for pattern in wheel.left_out for word in ("--exclude", pattern)]
    run(sys.executable, "-m", "auditwheel", "repair", *left_out, "-w", work / "repaired", raw, env=environment)
    packed = next((work / "repaired").glob("*.whl"))
    size = packed.stat().st_size
    if size > wheel.most_bytes:
        fail(f"the wheel has {size / 1e6:.1f} MB, more than {wheel.most_bytes / 1e6:.0f}", str(packed), "look for what grew: python -m zipfile -l")
    options.out.mkdir(parents=True, exist_ok=True)
    for old in options.out.glob(f"{wheel.package}-*.whl"):
        if torch_in(old.name) == torch_in(packed.name):
            old.unlink()
    target = options.out / packed.name
    shutil.copyfile(packed, target)
    print(f"wrote {target}, {size / 1e6:.1f} MB, with {licences} licences of libraries{remarks_on_gpus(wheel, stage)}")


if __name__ == "__main__":
    main()
