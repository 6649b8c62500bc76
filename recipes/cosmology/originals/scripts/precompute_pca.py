#!/usr/bin/env python3
"""hugh's program under its old name: same arguments, same JSON file."""
import os
import shlex
import sys

program = os.environ.get("MILLRACE", "millrace")
command = [program, "pca", "fit", *sys.argv[1:]]
print("runs: " + shlex.join(command), flush=True)
os.execvp(program, command)
