#!/usr/bin/env python3
"""The original's program under its old name: same arguments. Under torchrun or torch.distributed.launch the first process
trains; a run is one process here, so the others end at once."""
import os
import sys

if int(os.environ.get("RANK", "0")) > 0:
    print(f"rank {os.environ['RANK']}: a run is one process here, rank 0 trains", file=sys.stderr)
    sys.exit(0)
program = os.environ.get("MILLRACE", "millrace")
os.execvp(program, [program, "train", "autoencoder_3d", *sys.argv[1:]])
