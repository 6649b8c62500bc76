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
            tracker = types.SimpleNamespace(last_step=-1, last_part=None, log=lambda part, step, values: sent.append(step), finish=sent.append)
            with open(folder / "lock") as lock, mock.patch.dict(follow.TRACKERS, {"wandb": lambda *_: tracker}), mock.patch("time.sleep", side_effect=KeyboardInterrupt), \
                    contextlib.redirect_stdout(io.StringIO()):
                fcntl.flock(lock, fcntl.LOCK_EX)
                self.assertEqual(follow.main([name, "--to", "wandb"]), 130)
        self.assertEqual(sent, [1, "running"])

    def test_steps_of_a_log_and_its_parts(self):
        lines = [{"kind": "start", "step": 0}, {"kind": "step", "step": 1, "loss": 3.0}, {"kind": "step", "step": 2, "loss": 9.0}, {"kind": "end", "step": 2},
                 {"kind": "start", "step": 1}, {"kind": "step", "step": 2, "loss": 2.0}, {"kind": "validation", "step": 2, "val_loss": 2.5}, {"kind": "step", "step": 3, "loss": 1.0}]
        self.assertEqual(list(follow.values_by_step(iter(lines))),
                         [(1, 1, {"loss": 3.0}), (1, 2, {"loss": 9.0}), (2, 2, {"loss": 2.0, "val_loss": 2.5}), (2, 3, {"loss": 1.0})])
        self.assertEqual((follow.made_again(iter(lines)), follow.made_again(iter(lines[:4]))), (1, 0))


if __name__ == "__main__":
    unittest.main()
