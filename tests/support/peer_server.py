"""Runs Python scripts of the tests, each in a fork of this process, because to import torch takes longer than most of them.

usage: peer_server.py, with a socket as standard input. A request is a line of fields between tabs: the file for all that the script says
(empty: where this process's own output goes), modules to import before the fork, between commas, of which some may not be installed, the
script, and its arguments. The answer is a line with the script's exit status, which is 128 + N if signal N ended it.
"""

import contextlib
import importlib
import os
import runpy
import socket
import sys
import traceback
from pathlib import Path

import safetensors.torch
import torch

with contextlib.suppress(Exception):  # a script that needs it meets the error too, and says so
    import torch._dynamo  # torch's optimisers import it when they are used first


def run(said, words):
    """In the fork: the script, as if `python script argument...` had begun it."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if said:
        file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
    sys.argv = words
    sys.path[0] = str(Path(words[0]).parent)
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main():
    requests = socket.socket(fileno=os.dup(0))
    for line in requests.makefile():
        said, modules, *words = line.rstrip("\n").split("\t")
        for module in filter(None, modules.split(",")):
            with contextlib.suppress(Exception):  # the script meets it too, and says so
                importlib.import_module(module)
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = run(said, words)
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        requests.sendall(f"{code if code >= 0 else 128 - code}\n".encode())


if __name__ == "__main__":
    main()
