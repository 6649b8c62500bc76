#!/usr/bin/env python3
"""AGI2's program under its old name: each advice of AGI2's guide switched on, one after the other."""
import os
import shlex
import sys

program = os.environ.get("MILLRACE", "millrace")
command = [program, "bench", "language_model", *sys.argv[1:]]
print("runs: " + shlex.join(command), flush=True)
os.execvp(program, command)
