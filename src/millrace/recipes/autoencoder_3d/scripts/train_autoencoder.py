#!/usr/bin/env python3
"""The original's program under its old name: same arguments. Under torchrun or torch.distributed.launch the first process
trains; a run is one process here, so the others end at once."""
import os
import shlex
import sys

if int(os.environ.get("RANK", "0")) > 0:
    print(f"rank {os.environ['RANK']}: a run is one process here, rank 0 trains", file=sys.stderr)
    sys.exit(0)
program = os.environ.get("MILLRACE", "millrace")
command = [program, "train", "autoencoder_3d", *sys.argv[1:]]
print("runs: " + shlex.join(command), flush=True)
os.execvp(program, command)
