"""What a part is given: the program, the device, and row(), by which it says at once what it found."""
import contextlib
import gzip
import json
import os
import shutil
import time
from pathlib import Path

from . import processes

# ok, differs, failed: judged. measured: a figure that nothing is held against. skipped, left out: not done, and why.
VERDICTS = ("ok", "differs", "failed", "measured", "skipped", "left out")
BAD = ("differs", "failed")
NO_GPU = "no GPU"
MOST_TEXT = 600  # of a row's figure or reason


def shortened(text, most):
    """The end of a long text, and where there is room for both its beginning."""
    if len(text) <= most:
        return text
    head = text[:most // 4] + " " if most >= 100 else ""
    return head + "… " + text[-(most - len(head) - 2):]


class Failure(Exception):
    """Something that a part tried did not work; the text says how."""


class Proof:
    """`setup` is what runner.py wrote for this part: device, small, quick, recipes, folder, scratch, keep, program, environment, limit.

    small: the sizes and numbers of a rehearsal; quick: of the short one. thorough: a call of a few parts
    that were named, which have its whole time. Threads of one part may call row() and run() at once.
    """

    def __init__(self, setup, rows):
        self.setup = setup
        self.device = setup["device"]
        self.small = setup["small"]
        self.quick = setup["quick"]
        self.thorough = setup.get("thorough", False)
        self.recipes = setup["recipes"]
        self.folder = Path(setup["folder"])
        self.scratch = Path(setup["scratch"])
        self.keep_folder = Path(setup["keep"])
        self.python = setup["python"]
        self.program = setup["program"]
        self.environment = {**os.environ, **setup["environment"]}
        self.stretch = setup.get("stretch", 1)  # of every limit
        self.deadline = time.monotonic() + setup["limit"]
        self.rows = rows

    @property
    def on_gpu(self):
        return self.device != "cpu"

    def left(self):
        """Seconds until the part is stopped."""
        return self.deadline - time.monotonic()

    def row(self, what, figure="", verdict="measured", why="", **data):
        """One line of the table, written at once. `data`: what the result file keeps beside it."""
        assert verdict in VERDICTS, verdict
        entry = {"what": what, "figure": str(figure)[:MOST_TEXT], "verdict": verdict, "why": shortened(str(why), MOST_TEXT), **({"data": data} if data else {})}
        self.rows.write(json.dumps(entry) + "\n")
        self.rows.flush()

    def skipped(self, what, why=NO_GPU):
        self.row(what, verdict="skipped", why=why)

    def run(self, words, limit=None, environment=None, folder=None, text_in=None):
        """A program's end; Failure where it does not end with status 0 in time. The part's own limit is the longest."""
        done = self.tried(words, limit, environment, folder, text_in)
        if done.status != 0:
            raise Failure(done.why())
        return done

    def tried(self, words, limit=None, environment=None, folder=None, text_in=None):
        """As run(), whatever the status."""
        longest = max(self.left() - 1, 0.1)
        return processes.run(words, min(limit * self.stretch if limit else longest, longest), {**self.environment, **(environment or {})}, folder or self.scratch, text_in)

    @contextlib.contextmanager
    def trying(self, what):
        """A failure in here is a row of its own, and what comes after goes on."""
        try:
            yield
        except Failure as failure:
            self.row(what, verdict="failed", why=str(failure))
        except (OSError, ValueError, KeyError, IndexError, TypeError, ZeroDivisionError) as error:
            self.row(what, verdict="failed", why=f"{type(error).__name__}: {error}")

    def keep(self, path, name):
        """A file for the archive, packed."""
        target = self.keep_folder / f"{name}.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "rb") as source, gzip.open(target, "wb", compresslevel=3) as packed:
            shutil.copyfileobj(source, packed)
