"""Tests of the code that starts the wheel's program (python/millrace_train/start.py), with a torch and a program that are folders of
a few bytes: a problem with torch is reported in three parts, and a sound torch is passed to the program unchanged.

tests/wheel/run.py does the same with the wheel itself.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import wheel

ROOT = Path(__file__).resolve().parent.parent
ABI = b"\0_ZNSt7__cxx1112basic_stringE\0"


class Started(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="wheel test ä ")  # paths have spaces and umlauts everywhere
        self.addCleanup(scratch.cleanup)
        self.site = Path(scratch.name) / "site"
        package = self.site / "millrace_train"
        shutil.copytree(ROOT / "python/millrace_train", package, ignore=shutil.ignore_patterns("__pycache__"))
        self.program("bin/millrace", 'printf "%s\\n" "$0" "$@"; echo "LD=$LD_LIBRARY_PATH"; exit 7')
        self.program("libexec/millrace/millrace-torch", "exit 0")
        (package / "lib/gomp").mkdir(parents=True)
        self.package = package
        self.torch()

    def write(self, name, text):
        path = self.site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def program(self, name, script):
        self.write(f"millrace_train/{name}", "#!/bin/sh\n" + script + "\n").chmod(0o755)

    def torch(self, version="2.11.0+cu130", libraries=("libtorch_cpu.so", "libc10.so", "libgomp.so.1"), folder="torch/lib", abi=ABI):
        shutil.rmtree(self.site / "torch", ignore_errors=True)
        self.write("torch/__init__.py", "raise SystemExit('torch was imported')\n")
        self.write("torch/version.py", f"__version__ = '{version}'\n")
        for library in libraries:
            self.write(f"{folder}/{library}", abi)

    def start(self, *words, prefix=None, linker=None, before=None, behind=None, **environment):
        # -S: no site-packages of this machine, so no torch but the one below.
        code = f"import sys; sys.path[:0] = {[str(path) for path in (before, self.site, behind) if path]!r}; sys.argv[1:] = {list(words)!r}\n"
        code += f"sys.prefix = {str(prefix)!r}\n" if prefix else ""
        code += "from millrace_train import start\n"
        if linker:  # its answer about the program: for a script, the interpreter would be traced instead
            code += f"start.subprocess.run = lambda *_, **__: start.subprocess.CompletedProcess([], *{linker!r})\n"
        code += "start.main()"
        clean = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "PYTHONPATH")}
        return subprocess.run([sys.executable, "-S", "-E", "-c", code], capture_output=True, text=True, env={**clean, **environment},
                              cwd=self.site.parent)

    def refused(self, what, following, **options):
        done = self.start(**options)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        lines = done.stderr.rstrip("\n").splitlines()
        self.assertEqual(len(lines), 3, done.stderr)
        self.assertIn(what, lines[0])
        self.assertTrue(lines[0].startswith("InstallationError  ") and lines[1].startswith("  where    "), done.stderr)
        self.assertIn(following, lines[2])
        return lines

    def test_the_program_gets_the_words_the_name_and_torchs_libraries_first(self):
        done = self.start("train", "a b", "--x=ü", LD_LIBRARY_PATH="/mine")
        self.assertEqual(done.returncode, 7, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[1:], ["train", "a b", "--x=ü", f"LD={self.site}/torch/lib:/mine"])

    def test_python_with_m_starts_it_too(self):
        done = subprocess.run([sys.executable, "-m", "millrace_train", "list"], capture_output=True, text=True, cwd="/",
                              env={**os.environ, "PYTHONPATH": str(self.site)})
        self.assertEqual((done.returncode, done.stdout.splitlines()[1]), (7, "list"), done.stderr)

    def test_no_torch(self):
        shutil.rmtree(self.site / "torch")
        self.refused("this Python has no torch", "pip install 'torch==2.11.*'")

    def test_another_torch(self):
        for version in ("2.10.1", "2.12.0+cpu", "2.110.0", "1.2.11"):
            self.torch(version=version)
            self.refused(f"Millrace needs torch 2.11, this is torch {version}", "an environment of its own")
        self.torch(version="2.11.1+cpu")
        self.assertEqual(self.start().returncode, 7)

    def test_of_two_torches_the_one_that_python_would_import(self):
        other = self.site.parent / "other"
        shutil.copytree(self.site / "torch", other / "torch")
        (other / "torch/version.py").write_text("__version__ = '2.10.0'\n")
        self.assertEqual(self.start(behind=other).returncode, 7)
        lines = self.refused("this is torch 2.10.0", "an environment of its own", before=other)
        self.assertIn(str(other / "torch"), lines[1])

    def test_a_torch_that_does_not_say_its_version(self):
        (self.site / "torch/version.py").unlink()
        self.refused("doesn't say its version", "reinstall")

    def test_a_folder_called_torch(self):
        shutil.rmtree(self.site / "torch")
        self.write("torch/notes.txt", "")
        lines = self.refused('a folder called "torch"', "rename that folder")
        self.assertIn(str(self.site / "torch"), lines[1])

    def test_a_torch_without_its_libraries(self):
        for libraries in ((), ("libtorch_cpu.so",), ("libc10.so",)):
            self.torch(libraries=libraries)
            self.refused("no libtorch_cpu.so and libc10.so", "--force-reinstall")

    def test_libraries_where_conda_puts_them(self):
        self.torch(libraries=())
        for library in ("libtorch_cpu.so", "libc10.so", "libgomp.so.1"):
            self.write(f"prefix/lib/{library}", ABI)
        done = self.start(prefix=self.site / "prefix")
        self.assertEqual(done.stdout.splitlines()[-1], f"LD={self.site}/prefix/lib", done.stderr)

    def test_the_old_abi(self):
        self.torch(abi=b"_ZNSsC1Ev")
        self.refused("the old C++ ABI", "its wheels")

    def test_openmp_under_another_name(self):
        self.torch(libraries=("libtorch_cpu.so", "libc10.so", "libgomp-a34b3233.so.1"))
        self.assertEqual(self.start().stdout.splitlines()[-1], f"LD={self.package}/lib/gomp:{self.site}/torch/lib")

    def test_what_the_dynamic_linker_would_say(self):
        for linker in ((0, "  libtorch_cpu.so => not found\n", ""), (1, "", "x: version 'GLIBCXX_3.4.29' not found (required by y)\n")):
            lines = self.refused("the dynamic linker doesn't find", "reinstall torch", linker=linker)
            self.assertIn("not found", lines[1])
            self.refused("the dynamic linker doesn't find", "LD_LIBRARY_PATH is '/old/libs'", linker=linker, LD_LIBRARY_PATH="/old/libs")

    def test_a_program_that_is_not_there_or_must_not_run(self):
        (self.package / "bin/millrace").chmod(0o644)
        self.refused("Permission denied", "--no-deps millrace_train-*.whl")
        (self.package / "bin/millrace").unlink()
        self.refused("No such file", "reinstall it")
        (self.package / "libexec/millrace/millrace-torch").unlink()
        self.refused("No such file", "--no-deps millrace_train-*.whl")


class Torches(unittest.TestCase):
    """Two wheels of one version: for torch 2.11, and for another one."""

    def staged(self, torch):
        stage = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="wheel test ä ")))
        (stage / "millrace_train").mkdir()
        for name in ("pyproject.toml", "README.md"):
            shutil.copy2(ROOT / "python" / name, stage)
        shutil.copy2(ROOT / "python/millrace_train/start.py", stage / "millrace_train")
        shutil.copy2(ROOT / "src/millrace/base/version.h", stage)
        wheel.stage_torch(stage, torch)
        return [(stage / name).read_text() for name in ("pyproject.toml", "millrace_train/start.py", "version.h", "README.md")]

    def test_that_of_2_11_is_as_it_is_in_the_tree(self):
        project, start, version, page = self.staged("2.11")
        self.assertEqual(project, (ROOT / "python/pyproject.toml").read_text())
        self.assertEqual(start, (ROOT / "python/millrace_train/start.py").read_text())
        self.assertEqual(version, (ROOT / "src/millrace/base/version.h").read_text())
        self.assertEqual(page, (ROOT / "python/README.md").read_text())

    def test_another_one_requires_its_torch_and_names_it_in_its_version(self):
        project, start, version, page = self.staged("2.15")
        self.assertIn('dependencies = ["torch==2.15.*"]', project)
        self.assertIn('WANTED = "2.15"', start)
        self.assertRegex(version, r'kVersion = "[0-9.]+\+torch2\.15"')
        self.assertIn("beside the torch 2.15 of", page)

    def test_wheels_of_one_version_are_told_apart_by_their_names(self):
        self.assertEqual(wheel.torch_in("millrace_train-0.1.0+torch2.15-py3-none-manylinux_2_34_x86_64.whl"), "torch2.15")
        self.assertEqual(wheel.torch_in("millrace_train-0.1.0-py3-none-manylinux_2_34_x86_64.whl"), "")

    def test_a_build_that_does_not_say_its_torch_is_refused(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "CMakeCache.txt").write_text("CMAKE_BUILD_TYPE:STRING=Release\n")
        with self.assertRaisesRegex(SystemExit, "does not say its torch"):
            wheel.torch_of(folder)
        (folder / "CMakeCache.txt").write_text("MILLRACE_TORCH_SERIES:INTERNAL=2.15\n")
        self.assertEqual(wheel.torch_of(folder), "2.15")


if __name__ == "__main__":
    unittest.main()
