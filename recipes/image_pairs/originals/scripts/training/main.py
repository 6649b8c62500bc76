#!/usr/bin/env python3
"""LMOL's program under its old name: same arguments."""
import os
import shlex
import sys

program = os.environ.get("MILLRACE", "millrace")
command = [program, "train", "image_pairs", *sys.argv[1:]]
print("runs: " + shlex.join(command), flush=True)
os.execvp(program, command)
