"""Processes that end: a program with a time limit, and everything it started gone with it."""
import ctypes
import os
import signal
import subprocess
import time
from dataclasses import dataclass

PR_SET_CHILD_SUBREAPER = 36
LAST_LINES = 6


def adopt_orphans():
    """From now on what a child of this process leaves behind becomes this process's child, so that kill_all() finds it."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def parents():
    """{pid: pid of its parent} of all processes that are no zombies."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    state, parent = file.read().rsplit(")", 1)[1].split()[:2]
            except OSError:
                continue
            if state != "Z":
                found[int(name)] = int(parent)
    return found


def descendants(pid):
    children = {}
    for child, parent in parents().items():
        children.setdefault(parent, []).append(child)
    found, waiting = [], [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found.append(child)
            waiting.append(child)
    return found


def kill_all(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def kill_tree(pid):
    """Ends a process and all it started, also what they start meanwhile."""
    while True:
        family = [pid, *descendants(pid)] if pid in parents() else []
        if not family:
            return
        for one in family:  # stopped first: a process that is killed leaves children that a list made before does not have
            try:
                os.kill(one, signal.SIGSTOP)
            except ProcessLookupError:
                continue
        kill_all({pid, *descendants(pid)})
        time.sleep(0.02)


def kill_orphans(known):
    """Ends what ended processes left to this one; `known` are its own children."""
    for pid, parent in parents().items():
        if parent == os.getpid() and pid not in known:
            kill_tree(pid)
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                continue


def last_lines(text, count=LAST_LINES):
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-count:])


@dataclass
class Done:
    """A program that ended, or was ended at its limit (status None)."""
    words: list
    status: int | None
    out: str
    err: str
    seconds: float

    def why(self):
        name = os.path.basename(str(self.words[0]))
        if self.status is None:
            ending = f"{name} was stopped after {self.seconds:.0f} s"
        elif self.status < 0:
            ending = f"{name} ended by signal {-self.status}"
        else:
            ending = f"{name} ended with status {self.status}"
        said = last_lines(self.err or self.out)
        return ending + (f": {said}" if said else "")


def run(words, limit, environment=None, folder=None, text_in=None):
    """Runs a program to its end or its limit."""
    words = [str(word) for word in words]
    began = time.monotonic()
    try:
        child = subprocess.Popen(words, stdin=subprocess.PIPE if text_in is not None else subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, env=environment, cwd=folder, text=True, errors="replace")
    except OSError as error:
        return Done(words, 127, "", f"{words[0]}: {error.strerror}", 0.0)
    status = None
    try:
        out, err = child.communicate(text_in, timeout=max(limit, 0.1))
        status = child.returncode
    except subprocess.TimeoutExpired:
        kill_tree(child.pid)
        try:
            out, err = child.communicate(timeout=5)
        except subprocess.TimeoutExpired:  # somebody that left the family holds its end of the pipe
            out, err = "", ""
    return Done(words, status, out, err, time.monotonic() - began)
