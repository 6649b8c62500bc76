#!/usr/bin/env python3
"""3d_ldm's program under its old name: same arguments. Under torchrun or torch.distributed.launch each process is a rank
of one run."""
import os
import shlex
import sys

program = os.environ.get("MILLRACE", "millrace")
command = [program, "train", "autoencoder_3d", *sys.argv[1:]]
print("runs: " + shlex.join(command), flush=True)
os.execvp(program, command)
