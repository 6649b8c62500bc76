"""`headrace run -- python train.py`: starts a program in the environment that a training loop on a CPU needs.

With `--quiet` this process becomes the program. Otherwise this process stays as the program's parent, to count page faults, and
passes everything on: the exit status, the signal that ended the program, and signals that are sent only to this process. Standard
input and output are the program's own.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import select
import shlex
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from typing import Callable, Mapping, NoReturn, Sequence

from headrace.environment import Plan, plan_for, this_machine
from headrace.errors import Error, FileError, MissingError, UsageError

HELP = """\
headrace run [--quiet] [--compare] -- COMMAND...

Starts COMMAND (python train.py, torchrun ..., accelerate launch ..., python -m ...) with an environment in which training on a CPU is
faster: malloc keeps freed memory and requests pages of 2 MB, threads by cores, control group and processes, short waits between
parallel loops. Variables that you have set stay. At the end it says how many page faults there were and what they took.

  --quiet     say nothing: headrace becomes COMMAND, without a process beside it
  --compare   run COMMAND twice to its end, first as it is and then so, and compare both; what COMMAND writes, it writes twice
"""
# All signals except those of job control, of children and of a process's own errors, and those that Python ignores.
PASSED_ON = tuple(signal.valid_signals() - {
    signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT, signal.SIGCHLD, signal.SIGILL, signal.SIGTRAP,
    signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGSYS, signal.SIGPIPE, signal.SIGXFSZ})
PR_SET_PDEATHSIG = 1
GROUP_SECONDS = 0.1  # seconds after which a signal to a process group has reached all of its processes


@dataclass
class Usage:
    """The resources that a finished program and the processes that it waited for have used. Seconds, bytes."""

    status: int  # as os.waitpid returns it
    wall: float
    user: float
    kernel: float
    faults: int
    peak: int

    def __str__(self) -> str:
        cpu = self.user + self.kernel
        share = f", {100 * self.kernel / cpu:.0f} %" if cpu else ""
        return (f"{self.wall:.1f} s; CPU {cpu:.1f} s, of it in the kernel {self.kernel:.1f} s{share}; {self.faults:,} page faults; "
                f"peak memory {self.peak / 1e6:,.0f} MB")


def _where(words: Sequence[str], verb: str = "run") -> str:
    return f"headrace {verb} {shlex.join(words)}".rstrip()


def parse(words: Sequence[str]) -> tuple[set[str], list[str]]:
    """The options before `--`, and the command after it."""
    right = "headrace run -- python train.py"
    if "--" not in words:
        if any(word in ("--help", "-h") for word in words):
            return {"--help"}, []
        command = shlex.join(word for word in words if word not in ("--quiet", "--compare"))
        raise UsageError("there is no -- before the command", _where(words), f"write: headrace run -- {command}" if command else f"write: {right}")
    at = list(words).index("--")
    options, command = set(words[:at]), list(words[at + 1:])
    for option in words[:at]:
        if option not in ("--quiet", "--compare", "--help", "-h"):
            raise UsageError(f"headrace run has no option {option}", _where(words), "options: --quiet, --compare; all that is the command's goes behind --")
    if options & {"--help", "-h"}:
        return {"--help"}, []
    if {"--quiet", "--compare"} <= options:
        raise UsageError("--compare says what it measured, --quiet says nothing", _where(words), "leave one of them out")
    if not command:
        raise UsageError("there is no command behind --", _where(words), f"write: {right}")
    return options, command


def _script_of(command: Sequence[str]) -> str | None:
    """The script that a Python command runs, if its words are simple: python [-u ...] train.py."""
    if not re.fullmatch(r"python[\d.]*[a-z]?", os.path.basename(command[0])):
        return None
    for word in command[1:]:
        if word in ("-u", "-O", "-OO", "-B", "-E", "-I", "-s", "-S", "-P"):
            continue
        return None if word.startswith("-") else word
    return None


def check(command: Sequence[str], verb: str = "run") -> None:
    """Raises errors that `exec` or Python would report later and less clearly. `verb`: the command of headrace that would start it."""
    program, where = command[0], _where(["--", *command], verb)
    assignment, _, _ = program.partition("=")
    if "=" in program and assignment.isidentifier():
        raise UsageError(f"{program} is a variable, not a program", where, f"write it first: {program} headrace {verb} -- {shlex.join(command[1:]) or 'python train.py'}")
    if shutil.which(program) is None:
        if program.endswith(".py") and os.path.isfile(program):
            raise UsageError(f"{program} is a script, not a program", where, f"write: headrace {verb} -- python {shlex.join(command)}")
        if os.path.isdir(program):
            raise UsageError(f"{program} is a folder", where, "name the program to start, such as python")
        if os.sep not in program and os.access(program, os.X_OK):
            raise MissingError(f"{program} is not on the PATH, which the current folder is no part of", where,
                               f"write: headrace {verb} -- {shlex.join([os.path.join('.', program), *command[1:]])}")
        if os.path.exists(program):
            raise FileError(f"{program} may not be executed", where, f"chmod +x {program}, or start it by its interpreter: headrace {verb} -- python {program}")
        if program.endswith(".py"):
            raise MissingError(f"there is no script {program}", where, f"look at the path, and write: headrace {verb} -- python {shlex.join(command)}")
        raise MissingError(f"there is no program {program}", where,
                           "activate the environment that has it, or give its path" if os.sep not in program else "look at the path")
    script = _script_of(command)
    if script is not None and not os.path.exists(script):
        raise MissingError(f"there is no script {script}", where, f"look at the path: the current folder is {os.getcwd()}")


def _become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    # Python ignores these two signals for itself, and ignored signals stay ignored through exec.
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as error:
        raise FileError(f"{command[0]} can't be started: {error.strerror}", _where(["--", *command]),
                        "look at its first line, which names its interpreter, and at the machine it is made for") from error


def _listen(parent_gone: int, heard: int) -> NoReturn:
    """Runs in a process next to the program: writes the number of each signal that reaches it, until the parent is gone.

    A signal to the whole group (from a terminal, from Slurm) reaches the program directly. The parent passes on only signals that
    it alone got.
    """
    poll = select.poll()
    poll.register(parent_gone, select.POLLIN | select.POLLHUP)
    while not poll.poll(0):
        found = signal.sigtimedwait(PASSED_ON, 0.5)
        if found is not None:
            os.write(heard, bytes([found.si_signo]))
    os._exit(0)


class _Parent:
    """Waits for a program and passes signals on to it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]):
        self.command, self.environment = command, environment
        self.told: list[int] = []  # signals that the listener got
        # The starter of this process may have left SIGCHLD ignored; then this process would never learn that the program has ended.
        self.of_children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.before = signal.pthread_sigmask(signal.SIG_BLOCK, [*PASSED_ON, signal.SIGCHLD])
        self.listener, self.heard, self.alive = self._start_listener()
        self.began = time.monotonic()
        self.program = self._start_program()

    @staticmethod
    def _start_listener() -> tuple[int, int, int]:
        gone, alive = os.pipe()
        heard, tell = os.pipe()
        listener = os.fork()
        if listener == 0:
            os.close(alive)
            for number in {0, 1, 2} - {gone, tell}:  # a pipe that waits for the program's end must not wait for this process
                with contextlib.suppress(OSError):  # the process that started headrace closed it
                    os.close(number)
            _listen(gone, tell)
        os.close(gone)
        os.close(tell)
        return listener, heard, alive

    def _start_program(self) -> int:
        parent = os.getpid()
        program = os.fork()
        if program:
            return program
        try:
            # If the parent is killed, the program ends too, as if they were one process.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            self._restore_signals()
            _become(self.command, self.environment)
        except Error as error:
            print(error.text(), file=sys.stderr, flush=True)
        finally:
            os._exit(126)

    def _restore_signals(self) -> None:
        if self.of_children is not None:  # None: a handler that Python did not set
            signal.signal(signal.SIGCHLD, self.of_children)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)

    def _reached_all(self, number: int) -> bool:
        """True if the listener got this signal too."""
        end = time.monotonic() + GROUP_SECONDS
        while number not in self.told:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.heard], [], [], left)[0]:
                return False
            said = os.read(self.heard, 64)
            if not said:
                return False
            self.told.extend(said)
        self.told.remove(number)
        return True

    def _end_listener(self) -> None:
        os.close(self.alive)
        os.kill(self.listener, signal.SIGKILL)
        os.waitpid(self.listener, 0)
        os.close(self.heard)

    def wait(self, meanwhile: Callable[[], float | None]) -> Usage:
        heard = [*PASSED_ON, signal.SIGCHLD]
        while True:
            pause = meanwhile()
            pid, status, used = os.wait4(self.program, os.WNOHANG)
            if pid:
                break
            found = signal.sigwaitinfo(heard) if pause is None else signal.sigtimedwait(heard, pause)
            if found is not None and found.si_signo != signal.SIGCHLD and not self._reached_all(found.si_signo):
                os.kill(self.program, found.si_signo)
        wall = time.monotonic() - self.began
        self._end_listener()
        while signal.sigtimedwait([signal.SIGCHLD, *PASSED_ON], 0):  # the program has handled them
            pass
        self._restore_signals()
        return Usage(status, wall, used.ru_utime, used.ru_stime, used.ru_minflt + used.ru_majflt, used.ru_maxrss * 1024)


def start_and_wait(command: Sequence[str], environment: Mapping[str, str], meanwhile: Callable[[], float | None] = lambda: None) -> Usage:
    """Runs `command` as a child and returns what it used. Signals to this process reach the child. Call it in the main thread of a
    process without other threads. `meanwhile` is called while the child runs, and returns the seconds until its next call; None:
    it is not called again."""
    for stream in filter(None, (sys.stdout, sys.stderr)):  # stdout may be closed
        stream.flush()
    return _Parent(command, environment).wait(meanwhile)


def end_as(status: int) -> int:
    """The exit code of a finished program. If a signal ended the program, this process ends by the same signal."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # the program has written its core file
    try:
        signal.signal(number, signal.SIG_DFL)
    except OSError:  # SIGKILL
        pass
    os.kill(os.getpid(), number)
    return 128 + number


def tell(text: str) -> None:
    """Prints a line on stderr. If that fails, for example on a full disk, the command still runs and keeps its exit code."""
    if sys.stderr is None:
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = None  # otherwise Python would write the rest at its end, and exit with 120


def _tell(text: str) -> None:
    tell(f"headrace run  {text}")


def _announce(plan: Plan) -> None:
    for subject, text in plan.lines:
        _tell(f"{subject:<8} {text}")
    if plan.variables:
        _tell(f"{'set':<8} " + " ".join(f"{name}={value}" for name, value in plan.variables.items()))


def compare(command: Sequence[str], plan: Plan) -> int:
    """Runs `command` without and with the plan's variables, and prints what each run used. The exit code is the first that is not
    0."""
    _tell("compare  the command runs twice: first as it is")
    plain = start_and_wait(command, os.environ)
    _tell(f"as it is {plain}")
    if plain.status:
        return end_as(plain.status)
    ours = start_and_wait(command, {**os.environ, **plan.variables})
    _tell(f"set so   {ours}")
    if ours.status == 0:
        change = 100 * (1 - ours.wall / plain.wall)
        _tell(f"so it takes {abs(change):.0f} % {'less' if change >= 0 else 'more'} time, {plain.faults:,} -> {ours.faults:,} page faults; "
              "one run each: a few per cent are noise")
    return end_as(ours.status)


def main(words: Sequence[str]) -> int:
    """`words`: the words after `headrace run`. Returns the exit code of the command; raises `Error` if it can't be started."""
    options, command = parse(words)
    if "--help" in options:
        print(HELP, end="")
        return 0
    check(command)
    plan = plan_for(command, os.environ, this_machine())
    if "--quiet" in options:
        _become(command, {**os.environ, **plan.variables})
    _announce(plan)
    if "--compare" in options:
        return compare(command, plan)
    usage = start_and_wait(command, {**os.environ, **plan.variables})
    _tell(str(usage))
    return end_as(usage.status)
