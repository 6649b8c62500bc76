#!/usr/bin/env python3
"""LMOL's check of everything that training needs, under its old name; without arguments on photographs of its own."""
import os
import shlex
import sys

program = os.environ.get("MILLRACE", "millrace")
command = [program, "doctor", "image_pairs", "--verify", *(sys.argv[1:] or ["--preset", "smoke"])]
print("runs: " + shlex.join(command), flush=True)
os.execvp(program, command)
