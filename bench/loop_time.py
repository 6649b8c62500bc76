"""The time of a whole run's loop, for the benches that compare runs."""

import json
import subprocess

# Accounts as in src/millrace/runs/steady_accounts.h: those that occur once, those that weigh too much in a short run, and other programs' time.
OUTSIDE = {"startup", "trials", "validate", "profile", "others"}
SHORT = ["--train.epochs=0", "--train.resume=never", "--train.validate_batches=1", "--log.images=false", "--log.doctor_trials=0"]


def seconds_a_sample(program, folder, words):
    """Seconds of the loop per sample in a new run in `folder`; `words`: RECIPE and flags. CalledProcessError if the run fails."""
    command = [program, "train", *words, *SHORT, "--fresh", "--json"]
    summary = json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout)
    return sum(s for account, s in summary["accounts"].items() if account not in OUTSIDE) / summary["samples"]
