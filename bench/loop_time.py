"""What a whole run's loop took, for the benches that compare runs."""

import json
import subprocess

# As src/millrace/runs/steady_accounts.h: what comes once, what a short run has too much of, and what other programs took.
OUTSIDE = {"startup", "trials", "validate", "profile", "others"}
SHORT = ["--train.epochs=0", "--train.resume=never", "--train.validate_batches=1", "--log.images=false", "--log.doctor_trials=0"]


def seconds_a_sample(program, folder, words):
    """Of a new run in `folder`, of RECIPE and flags. CalledProcessError when it fails."""
    command = [program, "train", *words, *SHORT, "--fresh", "--json"]
    summary = json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout)
    return sum(s for account, s in summary["accounts"].items() if account not in OUTSIDE) / summary["samples"]
