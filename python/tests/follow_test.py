"""`headrace follow` that is ended by Ctrl-C: what was sent is written, and the tracker knows that the training goes on."""
import contextlib
import fcntl
import io
import json
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from headrace import follow


class Interrupted(unittest.TestCase):
    def test_the_tracker_is_told(self):
        with tempfile.TemporaryDirectory() as name:
            folder, sent = Path(name), []
            lines = [{"kind": "start", "step": 0, "process": 7, "unix_time": 1.0}, *({"kind": "step", "step": step, "loss": 1.0} for step in (1, 2))]
            (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            (folder / "lock").touch()
            tracker = types.SimpleNamespace(last_step=-1, log=lambda step, values: sent.append(step), finish=sent.append)
            with open(folder / "lock") as lock, mock.patch.dict(follow.TRACKERS, {"wandb": lambda *_: tracker}), mock.patch("time.sleep", side_effect=KeyboardInterrupt), \
                    contextlib.redirect_stdout(io.StringIO()):
                fcntl.flock(lock, fcntl.LOCK_EX)
                self.assertEqual(follow.main([name, "--to", "wandb"]), 130)
        self.assertEqual(sent, [1, "running"])


if __name__ == "__main__":
    unittest.main()
