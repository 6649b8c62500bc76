"""Tests of ./dev: messages and exit codes, what set-up skips and refuses, the demo's text and run folders.

Each test sources the parts of ./dev in a separate bash, with a scratch folder as the repository and, where a part would use the
network, a command of the same name that shadows the real one.
"""
import os
import re
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("common", "setup", "sysroot", "build", "check", "demo")
PRELUDE = """set -euo pipefail; shopt -s nullglob
root=$SCRATCH deps=$SCRATCH/.deps build=$SCRATCH/build/release no_root=0 program=$SCRATCH/build/release/millrace
mkdir -p "$deps"
""" + "".join(f'source "{ROOT}/tools/dev/{part}.sh"\n' for part in PARTS)


class Dev(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dev test ")  # a space: paths must be quoted everywhere
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)

    def bash(self, script, **environment):
        tools = self.scratch / "fake"
        return subprocess.run(["bash", "-c", PRELUDE + script], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env={**os.environ, "SCRATCH": str(self.scratch), "PATH": f"{tools}:{os.environ['PATH']}", **environment})

    def fake(self, name, text):
        path = self.scratch / "fake" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/bash\n" + text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def write(self, name, text):
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path


class Words(unittest.TestCase):
    def dev(self, *words, folder="/"):
        return subprocess.run([ROOT / "dev", *words], capture_output=True, text=True, cwd=folder, stdin=subprocess.DEVNULL)

    def test_help_from_any_folder_names_every_word(self):
        done = self.dev("help")
        self.assertEqual(done.returncode, 0)
        for word in "demo test build check bench format docs wheel install clean help".split():
            self.assertRegex(done.stdout, rf"(?m)^  {word} ")

    def test_unknown_word(self):
        done = self.dev("biuld")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, 'Error  unknown word "biuld"\n  where    ./dev biuld\n  next     ./dev help lists the words\n')

    def test_an_unknown_torch_is_refused(self):
        done = self.dev("--torch", "2.9", "build")
        self.assertEqual(done.returncode, 2)
        self.assertIn('--torch knows no torch "2.9"', done.stderr)
        self.assertIn("one of: 2.11 2.15", done.stderr)
        self.assertEqual(self.dev("--torch").returncode, 2)

    def test_units_are_test_programs(self):
        folders = re.search(r"^unit_folders=\((.*)\)", (ROOT / "dev").read_text(), re.MULTILINE)[1].split()
        for folder in folders:
            self.assertTrue(list((ROOT / "src/millrace" / folder).glob("*_test.cpp")), folder)

    def test_unknown_argument_and_stage(self):
        self.assertEqual(self.dev("clean", "--everything").returncode, 2)
        done = self.dev("check", "formatt")
        self.assertEqual(done.returncode, 2)
        self.assertIn("format tidy records headers asan tsan clang-tidy", done.stderr)


class Packages(Dev):
    def test_without_root_and_sudo_the_one_line_is_printed(self):
        self.fake("dpkg-query", '[[ ${@: -1} == here ]] && echo -n installed || exit 1')
        self.fake("sudo", "exit 1")
        done = self.bash("is_root() { false; }; set_up_packages here gone-a gone-b")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("2 Debian packages are missing", done.stderr)
        self.assertIn("apt-get update && apt-get install --no-install-recommends -y gone-a gone-b\n", done.stderr)
        self.assertIn("--no-root", done.stderr)

    def test_nothing_is_asked_for_when_all_is_there(self):
        self.fake("dpkg-query", "echo -n installed")
        self.fake("apt-get", "echo apt was called; exit 9")
        done = self.bash("set_up_packages g++ cmake")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


class Wheels(Dev):
    def setUp(self):
        super().setUp()
        self.requirements = self.write("requirements.txt", "# what\nthing==1.0 --hash=sha256:00  # 12.3 MB\n")
        self.python = self.write(".deps/venv/bin/python", "")
        self.write(".deps/venv/.millrace-venv", "")

    def install_python(self, text):
        self.python.write_text("#!/bin/bash\n" + text)
        self.python.chmod(0o755)

    def test_wrong_hash_stops_with_its_own_message(self):
        self.install_python("echo 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.'; exit 1")
        done = self.bash("set_up_wheels program")
        self.assertEqual(done.returncode, 1)
        self.assertIn("SHA-256 of thing==1.0 differs", done.stderr)
        self.assertFalse((self.scratch / ".deps/venv/.millrace-program").exists())

    def test_no_network_says_so_and_keeps_what_there_is(self):
        self.install_python("echo 'ERROR: Could not find a version'; exit 1")
        done = self.bash("set_up_wheels program")
        self.assertEqual(done.returncode, 1)
        self.assertIn("could not fetch thing==1.0: ERROR: Could not find a version", done.stderr)
        self.assertIn("then run the same ./dev again", done.stderr)

    def test_size_is_announced_and_a_second_run_does_nothing(self):
        self.install_python('for last; do :; done; [[ "$*" != *download* ]] || { mkdir -p "$last"; touch "$last/thing.whl"; }')
        done = self.bash("set_up_wheels program")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("fetching 1 Python wheels, 12 MB: thing", done.stdout)
        self.install_python("echo called; exit 9")
        done = self.bash("set_up_wheels program")
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_a_killed_run_goes_on_with_the_wheels_it_has(self):
        self.requirements.write_text("one==1 --hash=sha256:00  # 6.0 MB\ntwo==2 --hash=sha256:00  # 6.0 MB\n")
        self.write(".deps/wheels/program/.one==1", "")
        self.install_python('for last; do :; done; [[ "$*" != *download* ]] || { mkdir -p "$last"; touch "$last/w.whl"; }')
        done = self.bash("set_up_wheels program")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("one==1 (", done.stdout)
        self.assertIn("two==2 (6.0 MB)", done.stdout)

    def test_changed_pins_start_over(self):
        self.write(".deps/venv/.millrace-program", "older")
        left_over = self.write(".deps/venv/lib/left-over.py", "")
        self.fake("python3", "echo 3.10")
        done = self.bash("python_candidates() { command -v python3; }; set_up_wheels program")
        self.assertFalse(left_over.exists())
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("the pinned wheels are for Python 3.11", done.stderr)

    def test_debians_python_comes_before_another_one_on_the_path(self):
        self.fake("python3", "echo called; exit 9")
        self.assertEqual(self.bash("python_candidates | tail -n 2").stdout.split()[0], "/usr/bin/python3")

    def test_a_python_from_elsewhere_brings_its_own_pip(self):
        fake = self.write("elsewhere/bin/python3", '#!/bin/bash\necho "$@"\n')
        fake.chmod(0o755)
        self.assertEqual(self.bash(f"new_venv '{fake}'").stdout, f"-m venv {self.scratch}/.deps/venv\n")

    def test_named_torch_is_checked(self):
        self.write("requirements.txt", "torch==2.11.0 --hash=sha256:00  # 6.0 MB\n")
        self.write("requirements-torch-2.15.txt", "torch==2.15.0 --hash=sha256:00  # 6.0 MB\n")
        done = self.bash("set_up_torch", MILLRACE_TORCH="/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("MILLRACE_TORCH holds no torch 2.11 or 2.15", done.stderr)

    def test_another_torch_has_its_own_folder_and_build(self):
        self.requirements.write_text("torch==2.11.0 --hash=sha256:00  # 6.0 MB\n")
        self.write("requirements-torch-9.9.txt", "torch==9.9.1 --hash=sha256:00  # 6.0 MB\n")
        self.install_python('for last; do :; done; [[ "$*" != *download* ]] || { mkdir -p "$last"; touch "$last/w.whl"; }\n'
                            'while (($#)); do [[ $1 != --target ]] || mkdir -p "$2"; shift; done')
        done = self.bash('use_torch 9.9; set_up_torch && echo "$build" "$(torch_site)"')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], f"{self.scratch}/build/torch-9.9 {self.scratch}/.deps/torch-9.9")
        self.assertTrue((self.scratch / ".deps/torch-9.9/.millrace-torch").exists())
        self.assertFalse((self.scratch / ".deps/venv/.millrace-program").exists(), "torch 2.11 was fetched too")

    def test_cmake_takes_the_same_torches(self):
        said = re.search(r"set\(_series (.*)\)", (ROOT / "cmake/FindTorchWheel.cmake").read_text())[1].split()
        pinned = [re.search(r"^torch==(\d+\.\d+)", file.read_text(), re.MULTILINE)[1]
                  for file in [ROOT / "requirements.txt", *sorted(ROOT.glob("requirements-torch-*.txt"))]]
        self.assertEqual(said, pinned)

    def test_every_pin_has_a_hash_and_a_size(self):
        for name in ("requirements.txt", "requirements-peers.txt", "requirements-gpu.txt", "requirements-wheel.txt", "requirements-torch-2.15.txt"):
            lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
            self.assertTrue(lines)
            for line in lines:
                self.assertTrue(re.fullmatch(r"[a-z0-9-]+==[0-9.]+ --hash=sha256:[0-9a-f]{64}  # [0-9.]+ MB", line), line)


class Demo(Dev):
    def test_text_is_joined_in_order_without_indices_links_and_other_encodings(self):
        texts = self.scratch / "texts"
        for name, text in {"b": "two\n", "a": "one\n", "a.dat": "index", "c": b"\xff\xfe"}.items():
            self.write(f"texts/{name}", text)
        (texts / "z.u8").symlink_to("a")
        done = self.bash('join_texts "$SCRATCH/texts" "$SCRATCH/all.txt"')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.scratch / "all.txt").read_text(), "one\ntwo\n")

    def test_headers_when_the_package_cannot_be_had(self):
        self.fake("apt-get", "exit 100")
        self.write("site/torch/include/ATen/core/Tensor.h", "class Tensor;\n")
        done = self.bash("demo_text", MILLRACE_TORCH=str(self.scratch / "site"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("learning from LibTorch's C++ headers instead", done.stderr)
        self.assertEqual(Path(done.stdout.strip()).read_text(), "class Tensor;\n")

    def folder(self):
        return self.bash("demo_run_folder").stdout.strip().removeprefix(f"{self.scratch}/")

    def test_cut_short_is_resumed_and_finished_gets_a_new_folder(self):
        self.assertEqual(self.folder(), "runs/language_model/demo")
        self.write("runs/language_model/demo/log.jsonl", "")
        self.assertEqual(self.folder(), "runs/language_model/demo")
        self.write("runs/language_model/demo/summary.json", '{"exit_reason": "signal"}')
        self.assertEqual(self.folder(), "runs/language_model/demo")
        self.write("runs/language_model/demo/summary.json", '{\n  "exit_reason": "max_steps"\n}')
        self.assertEqual(self.folder(), "runs/language_model/demo-2")


class Jobs(Dev):
    def jobs(self, cores, free_kb):
        self.fake("nproc", f"echo {cores}")
        self.fake("awk", f'echo {free_kb // 1024}')
        return int(self.bash("job_count").stdout)

    def test_memory_and_cores_both_limit(self):
        self.assertEqual(self.jobs(8, 5_000_000), 2)
        self.assertEqual(self.jobs(2, 64_000_000), 2)
        self.assertEqual(self.jobs(4, 500_000), 1)


if __name__ == "__main__":
    unittest.main()
