"""The command `headrace`, also as `python -m headrace`."""
from __future__ import annotations

import difflib
import importlib
import sys
from typing import Sequence

from headrace.errors import Error, UsageError

# Maps each command to the module whose main(words) runs it, and to its summary.
COMMANDS = {
    "run": ("headrace.run", "start a training script, in the environment that makes it fast on a CPU"),
    "doctor": ("headrace.doctor", "start a training script, and say at its end what held it back and what mending that would gain"),
    "tune": ("headrace.tune", "try values for a training script in short runs, and say which lines to change"),
    "follow": ("headrace.follow", "send what a run logs to Weights & Biases or MLflow, also after a resume into the same tracker run"),
}


def usage() -> str:
    lines = [f"  headrace {name:<8} {what}" for name, (_, what) in COMMANDS.items()]
    return "\n".join(["headrace COMMAND ...", "", *lines, "", "headrace COMMAND --help says more. headrace --version prints the version.", ""])


def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit code. Errors go to stderr in three parts: 2 for wrong words, 127 for a missing program or file, 1 otherwise."""
    words = sys.argv[1:] if words is None else list(words)
    if not words or words[0] in ("--help", "-h", "help"):
        print(usage(), end="")
        return 0 if words else 2
    try:
        if words[0] == "--version":
            print(f"headrace {importlib.import_module('headrace').__version__}")
            return 0
        if words[0] not in COMMANDS:
            near = difflib.get_close_matches(words[0], COMMANDS, 1)
            raise UsageError(f"there is no command {words[0]}", f"headrace {' '.join(words)}",
                             f"did you mean headrace {near[0]}?" if near else f"commands: {', '.join(COMMANDS)}")
        return importlib.import_module(COMMANDS[words[0]][0]).main(words[1:])
    except Error as error:
        print(error.text(), file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 127 if isinstance(error, FileNotFoundError) else 1


if __name__ == "__main__":
    sys.exit(main())
