"""`headrace run`: what it sets and why, and that the program below it sees and leaves what it would without."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PYTHON = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("MILLRACE_BUILD") or PYTHON.parent / "build/release").resolve()
os.environ.setdefault("HEADRACE_LIBRARY", str(BUILD / "libheadrace.so"))  # for headrace doctor
sys.path.insert(0, str(PYTHON))
from headrace import environment
from headrace.environment import Machine, plan_for, ranks_of, this_machine

KEPT = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=67108864"
LINUX = Machine(glibc=(2, 36), pages="always [madvise] never", all_cpus=8, cpus=8, cores=8)
SCRIPT = ["python", "train.py"]


def plan(words=SCRIPT, given=None, **changes):
    return plan_for(words, given or {}, Machine(**{**LINUX.__dict__, **changes}))


def said(plan_, subject):
    return next((text for name, text in plan_.lines if name == subject), None)


class Plan(unittest.TestCase):
    def test_sets_what_the_program_sets_for_itself(self):
        self.assertEqual(plan().variables, {"GLIBC_TUNABLES": KEPT + ":glibc.malloc.hugetlb=1", "GOMP_SPINCOUNT": "20000"})
        self.assertEqual([subject for subject, _ in plan().lines], ["memory", "pages", "waiting", "threads"])

    def test_the_values_are_those_of_the_program(self):
        source = PYTHON.parent / "src/millrace/system"
        self.assertIn("GOMP_SPINCOUNT=" + environment.SPINS, (source / "openmp.h").read_text())
        self.assertIn("glibc.malloc.hugetlb=1", (source / "malloc_pages.h").read_text())

    def test_what_the_user_set_stays_and_is_named(self):
        for name, value, subject in (("GLIBC_TUNABLES", "glibc.malloc.arena_max=1", "memory"), ("MALLOC_ARENA_MAX", "1", "memory"),
                                     ("OMP_WAIT_POLICY", "passive", "waiting"), ("GOMP_SPINCOUNT", "7", "waiting"),
                                     ("OMP_NUM_THREADS", "3", "threads"), ("MKL_NUM_THREADS", "3", "threads")):
            with self.subTest(name):
                made = plan(given={name: value}, quota=2.0)
                self.assertIn("left as you set it: ", said(made, subject))
                self.assertIn(value, said(made, subject))
                self.assertNotIn(name, made.variables)

    def test_tunables_of_other_parts_are_kept(self):
        made = plan(given={"GLIBC_TUNABLES": "glibc.cpu.x86_shstk=off"})
        self.assertEqual(made.variables["GLIBC_TUNABLES"], "glibc.cpu.x86_shstk=off:" + KEPT + ":glibc.malloc.hugetlb=1")

    def test_pages_are_requested_where_the_kernel_gives_them(self):
        for pages, glibc, words in (("[always] madvise never", (2, 36), "2 MB already"), ("always madvise [never]", (2, 36), "turned off"), ("", (2, 36), "turned off"),
                                    ("always [madvise] never", (2, 34), "from glibc 2.35 on")):
            with self.subTest(pages=pages, glibc=glibc):
                made = plan(pages=pages, glibc=glibc)
                self.assertEqual(made.variables["GLIBC_TUNABLES"], KEPT)
                self.assertIn(words, said(made, "pages"))

    def test_another_malloc_is_left_alone(self):
        self.assertNotIn("GLIBC_TUNABLES", plan(glibc=None).variables)
        made = plan(given={"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"})
        self.assertNotIn("GLIBC_TUNABLES", made.variables)
        self.assertIn("jemalloc", said(made, "memory"))

    def test_threads_by_cores_control_group_and_ranks(self):
        torchrun = ["torchrun", "--nproc-per-node", "4", "train.py"]
        for words, given, changes, expected in (
                (SCRIPT, {}, {}, None), (SCRIPT, {}, {"quota": 2.5}, "3"), (SCRIPT, {}, {"quota": 16.0}, None), (SCRIPT, {}, {"quota": 0.3}, "1"),
                (torchrun, {}, {}, "2"), (torchrun, {}, {"quota": 4.0}, "1"), (["torchrun", "--nproc_per_node=2", "train.py"], {}, {}, "4"),
                (["python", "-m", "torch.distributed.run", "--nproc-per-node=gpu", "train.py"], {}, {"gpus": 2}, "4"),
                (["accelerate", "launch", "--num_processes", "8", "train.py"], {}, {}, "1"), (["accelerate", "launch", "train.py"], {}, {}, None),
                (["torchrun", "--nproc-per-node=gpu", "train.py"], {"CUDA_VISIBLE_DEVICES": "0,3"}, {"gpus": 8}, "4"),
                (["torchrun", "--nproc-per-node=auto", "train.py"], {"CUDA_VISIBLE_DEVICES": ""}, {"gpus": 8}, "1"),
                (["accelerate", "launch", "--num_machines", "2", "--num_processes=8", "train.py"], {}, {}, "2"),  # 4 on each
                (["accelerate", "launch", "--num_processes", "2", "--num-machines=4", "train.py"], {}, {}, None),
                (["python", "train.py", "--nproc-per-node=4"], {}, {}, None),
                (SCRIPT, {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, {}, "2"), (SCRIPT, {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, {"cpus": 2, "cores": 2}, None),
                (SCRIPT, {"SLURM_NTASKS_PER_NODE": "4(x2)"}, {}, "2")):
            with self.subTest(words=words, given=given, **changes):
                self.assertEqual(plan(words, given, **changes).variables.get("OMP_NUM_THREADS"), expected)

    def test_a_word_of_the_script_is_not_the_launchers(self):
        self.assertEqual(ranks_of(["torchrun", "train.py", "--nproc-per-node", "4"], LINUX), 1)
        self.assertIsNone(ranks_of(["torchrun", "--nproc-per-node", "many", "train.py"], LINUX))
        for words, expected in (("torchrun -m train --num-processes 4", 1), ("torchrun --nproc-per-node 2 -m train --num-processes 4", 2),
                                ("torchrun -m --nproc-per-node 2 train", 2), ("accelerate launch -m train --num_processes 4", None),
                                ("python -m torch.distributed.run --nproc-per-node=2 -m train --nproc-per-node=4", 2)):
            self.assertEqual(ranks_of(words.split(), LINUX), expected, words)

    def test_a_gpu_is_told_what_applies(self):
        self.assertIsNone(said(plan(), "GPU"))
        self.assertIn("on the CPU", said(plan(gpus=1), "GPU"))

    def test_the_machine_is_read(self):
        machine = this_machine()
        self.assertGreaterEqual(machine.cpus, machine.cores)
        self.assertGreaterEqual(machine.cores, 1)

    def test_the_least_quota_of_all_groups_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in (("proc/self/cgroup", "0::/a/b\n"), ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"), ("sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
                               ("sys/fs/cgroup/cpu.max", "800000 100000\n")):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            self.assertEqual(this_machine(root).quota, 2.5)
            (root / "proc/self/cgroup").write_text("4:cpu,cpuacct:/c\n0::/\n")
            group = root / "sys/fs/cgroup/cpu/c"
            group.mkdir(parents=True)
            (group / "cpu.cfs_quota_us").write_text("50000\n")
            (group / "cpu.cfs_period_us").write_text("100000\n")
            self.assertEqual(this_machine(root).quota, 0.5)


def headrace(*words, **options):
    given = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "GLIBC_TUNABLES") and not name.startswith("MALLOC_")}
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen([sys.executable, "-m", "headrace", *words], env={**given, "PYTHONPATH": str(PYTHON), **options.pop("more", {})}, **options)


def done(*words, **options):
    started = headrace(*words, **options)
    out, err = started.communicate(options.get("input"))
    return started.returncode, out, err


# Counts signals until its standard input ends; the exit code is how many there were. It looks now and then: Python runs the handler of a
# signal that comes right before a read when that read returns.
UNTIL_INPUT_ENDS = "while not select.select([0], [], [], 0.02)[0]: pass"
COUNTER = f"""
import os, select, signal, sys, time
count = []
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGXCPU, signal.SIGRTMIN): signal.signal(number, lambda number, _: (count.append(number), print("got", flush=True)))
print(os.getpid(), flush=True)
{UNTIL_INPUT_ENDS}
sys.exit(len(count))
"""


class Transparent(unittest.TestCase):
    def test_output_input_and_exit_code_pass_through(self):
        code = "import sys; print(sys.stdin.read().upper()); print('oops', file=sys.stderr); sys.exit(7)"
        for quiet in ([], ["--quiet"]):
            with tempfile.TemporaryFile("w+") as stdin:
                stdin.write("abc")
                stdin.seek(0)
                status, out, err = done("run", *quiet, "--", sys.executable, "-c", code, stdin=stdin)
            self.assertEqual((status, out), (7, "ABC\n"))
            others = [line for line in err.splitlines() if not line.startswith("headrace run  ")]
            self.assertEqual(others, ["oops"])
            self.assertEqual(len(err.splitlines()) == 1, bool(quiet))

    def test_the_program_has_the_variables(self):
        shown = "import os; print(os.environ['GOMP_SPINCOUNT'], os.environ.get('GLIBC_TUNABLES'))"
        _, out, err = done("run", "--", sys.executable, "-c", shown)
        self.assertEqual(out.split()[0], "20000")
        self.assertIn("set      GLIBC_TUNABLES=" + out.split()[1] if out.split()[1] != "None" else "memory   left", err)
        self.assertRegex(err, r"[\d.]+ s; CPU [\d.]+ s, of it in the kernel [\d.]+ s(, \d+ %)?; [\d,]+ page faults; peak memory [\d,]+ MB\n$")

    def test_a_signal_that_ends_the_program_ends_headrace(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGABRT):
            self.assertEqual(done("run", "--", "sh", "-c", f"kill -{int(number)} $$")[0], -number)

    def test_a_signal_to_headrace_alone_reaches_the_program_once(self):
        with headrace("run", "--", sys.executable, "-c", COUNTER, stdin=subprocess.PIPE, start_new_session=True) as started:
            started.stdout.readline()
            started.send_signal(signal.SIGTERM)
            self.assertEqual(started.stdout.readline(), "got\n")
            started.send_signal(signal.SIGUSR1)
            self.assertEqual(started.stdout.readline(), "got\n")
            started.stdin.close()
            self.assertEqual(started.wait(), 2)
            started.stderr.read()

    def test_a_signal_to_the_whole_group_reaches_the_program_once(self):
        with headrace("run", "--", sys.executable, "-c", COUNTER, stdin=subprocess.PIPE, start_new_session=True) as started:
            started.stdout.readline()
            os.killpg(started.pid, signal.SIGTERM)
            self.assertEqual(started.stdout.readline(), "got\n")
            os.killpg(started.pid, signal.SIGUSR1)
            self.assertEqual(started.stdout.readline(), "got\n")
            started.stdin.close()
            self.assertEqual(started.wait(), 2)
            started.stderr.read()

    def test_signals_of_batch_systems_reach_the_program_once(self):
        with headrace("run", "--", sys.executable, "-c", COUNTER, stdin=subprocess.PIPE, start_new_session=True) as started:
            started.stdout.readline()
            for number in (signal.SIGXCPU, signal.SIGRTMIN):
                os.killpg(started.pid, number)
                self.assertEqual(started.stdout.readline(), "got\n")
            started.stdin.close()
            self.assertEqual(started.wait(), 2)
            started.stderr.read()

    def test_two_signals_to_the_whole_group_reach_the_program_once_each(self):
        # Where headrace's standard input is closed too: then a pipe of its own has that number.
        for stdin in (None, 0):
            until_last = "while count[-1:] != [signal.SIGXCPU]: time.sleep(0.01)"
            with headrace("run", "--", sys.executable, "-c", COUNTER.replace(UNTIL_INPUT_ENDS, until_last), start_new_session=True,
                          preexec_fn=None if stdin is None else lambda: os.close(0)) as started:
                started.stdout.readline()
                os.killpg(started.pid, signal.SIGUSR1)
                os.killpg(started.pid, signal.SIGTERM)
                self.assertEqual([started.stdout.readline() for _ in range(2)], ["got\n"] * 2)
                started.send_signal(signal.SIGXCPU)  # is passed on behind the others
                self.assertEqual(started.wait(), 3)
                self.assertEqual(started.stdout.read(), "got\n")
                started.stderr.read()

    def test_the_end_is_noticed_where_sigchld_is_ignored(self):
        shown = "import signal; print(signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN); raise SystemExit(3)"
        status, out, _ = done("run", "--", sys.executable, "-c", shown, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual((status, out), (3, "True\n"))

    def test_a_log_that_cannot_be_written_changes_nothing(self):
        reader, broken = os.pipe()
        os.close(reader)
        with open("/dev/full", "w") as full, open(broken, "w") as broken:
            for log, closes in ((full, None), (broken, None), (None, lambda: os.close(2))):
                for verb in ("run", "doctor"):
                    with self.subTest(log=log, verb=verb):
                        status, out, _ = done(verb, "--", "sh", "-c", "echo ready; exit 3", stderr=log, preexec_fn=closes)
                        self.assertEqual((status, out), (3, "ready\n"))

    def test_a_killed_headrace_takes_the_program_with_it(self):
        with headrace("run", "--", sys.executable, "-c", COUNTER, stdin=subprocess.PIPE) as started:
            program = int(started.stdout.readline())
            started.kill()
            started.wait()
            self.assertEqual(started.stdout.read(), "")  # ends when no process has it open any more
            while os.path.exists(f"/proc/{program}/stat"):
                if Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    break
                time.sleep(0.01)
            started.stdin.close()
            started.stderr.read()

    def test_the_output_ends_when_the_program_does(self):
        status, out, _ = done("run", "--", "sh", "-c", "echo ready")
        self.assertEqual((status, out), (0, "ready\n"))

    def test_compare_says_both_and_stops_at_a_failure(self):
        status, out, err = done("run", "--compare", "--", "sh", "-c", "echo once")
        self.assertEqual((status, out), (0, "once\nonce\n"))
        self.assertRegex(err, r"so it takes \d+ % (less|more) time, [\d,]+ -> [\d,]+ page faults")
        status, out, _ = done("run", "--compare", "--", "sh", "-c", "echo once; exit 3")
        self.assertEqual((status, out), (3, "once\n"))


def refusals(folder):
    """(words behind headrace, exit code, what, next), in a folder with a script and a file that may not be executed."""
    (folder / "train.py").write_text("print(1)\n")
    (folder / "data.csv").write_text("1\n")
    (folder / "nonsense").write_text("\0\0")
    (folder / "nonsense").chmod(0o755)
    (folder / "runs").mkdir()
    (folder / "my train.py").write_text("print(1)\n")
    return [
        (["run", "python", "train.py"], 2, "there is no -- before the command", "write: headrace run -- python train.py"),
        (["run", "python", "my train.py"], 2, "there is no -- before the command", "write: headrace run -- python 'my train.py'"),
        (["run", "--", "my train.py"], 2, "my train.py is a script, not a program", "write: headrace run -- python 'my train.py'"),
        (["run"], 2, "there is no -- before the command", "write: headrace run -- python train.py"),
        (["run", "--"], 2, "there is no command behind --", "write: headrace run -- python train.py"),
        (["run", "--fast", "--", "python", "train.py"], 2, "headrace run has no option --fast", "options: --quiet, --compare"),
        (["run", "--quiet", "--compare", "--", "python", "train.py"], 2, "--compare says what it measured, --quiet says nothing", "leave one of them out"),
        (["run", "--", "nothing.py"], 127, "there is no script nothing.py", "headrace run -- python nothing.py"),
        (["run", "--", "pithon", "train.py"], 127, "there is no program pithon", "activate the environment"),
        (["run", "--", "./bin/python", "train.py"], 127, "there is no program ./bin/python", "look at the path"),
        (["run", "--", "train.py"], 2, "train.py is a script, not a program", "write: headrace run -- python train.py"),
        (["run", "--", "./data.csv"], 1, "./data.csv may not be executed", "chmod +x ./data.csv"),
        (["run", "--", "nonsense", "a b"], 127, "nonsense is not on the PATH", "write: headrace run -- ./nonsense 'a b'"),
        (["run", "--", "./runs"], 2, "./runs is a folder", "name the program"),
        (["run", "--", sys.executable, "trian.py"], 127, "there is no script trian.py", "look at the path"),
        (["run", "--", "OMP_NUM_THREADS=2", "python", "train.py"], 2, "OMP_NUM_THREADS=2 is a variable, not a program", "write it first: OMP_NUM_THREADS=2 headrace run --"),
        (["run", "--quiet", "--", "./nonsense"], 1, "./nonsense can't be started", "its interpreter"),
        (["rnu", "--", "python", "train.py"], 2, "there is no command rnu", "did you mean headrace run?"),
    ]


class Refusals(unittest.TestCase):
    def test_each_says_what_where_and_next(self):
        with tempfile.TemporaryDirectory() as folder:
            for words, status, what, following in refusals(Path(folder)):
                with self.subTest(words=words):
                    found = subprocess.run([sys.executable, "-m", "headrace", *words], cwd=folder, env={**os.environ, "PYTHONPATH": str(PYTHON)},
                                           stdin=subprocess.DEVNULL, capture_output=True, text=True)
                    self.assertEqual(found.returncode, status, found.stderr)
                    first, where, after = found.stderr.splitlines()[-3:]
                    self.assertTrue(re.fullmatch(r"\w+Error  .*", first), first)
                    self.assertIn(what, first)
                    self.assertTrue(where.startswith("  where    headrace "), where)
                    self.assertIn(following, after)

    def test_a_program_whose_name_begins_like_python_is_started(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "python_on_node.sh"
            program.write_text("#!/bin/sh\necho $1\n")
            program.chmod(0o755)
            self.assertEqual(done("run", "--", str(program), "first")[:2], (0, "first\n"))

    def test_help(self):
        for words, status in ((["--help"], 0), ([], 2), (["run", "--help"], 0)):
            found, out, _ = done(*words)
            self.assertEqual(found, status)
            self.assertIn("headrace run", out)


if __name__ == "__main__":
    unittest.main()
