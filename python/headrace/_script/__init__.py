"""What watches somebody's training script from inside its process: `headrace doctor -- python train.py`, `headrace.watch`.

`borders` replaces the functions of torch at which the work of a training loop changes, `accounts` adds up the time between them,
`loaders` knows DataLoaders and their workers, `looks` looks at the loop's thread now and then, `watcher` holds all of them and writes
the evidence down. `folder` and `verdict` make a run folder and a text of it, outside the script.

Rule for all of it: the script computes what it would compute without, and a mistake in here is one line on stderr.
"""
