"""Watches a user's training script from inside its process: `headrace doctor -- python train.py`, `headrace.watch`.

`borders` replaces the functions of torch at which a training loop changes its work. `accounts` adds up the time between them.
`loaders` knows DataLoaders and their workers. `looks` samples the loop's thread from time to time. `watcher` holds all of them and
writes the evidence. `folder` and `verdict` make a run folder and a text from the evidence, outside the script.

Two rules apply to all of it: the script's results do not change, and an error in this code is one line on stderr.
"""
