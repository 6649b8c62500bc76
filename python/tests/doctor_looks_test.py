"""What `headrace doctor` sees when it looks at a script, and tells of it: the line that it is at, reads of single values, lists and memory
that grow, the time of a step."""
import collections
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from headrace import _library  # noqa: E402
from headrace._script import borders, looks, verdict, watcher  # noqa: E402
from headrace._script.kept import Kept  # noqa: E402
from headrace._script.memory import Memory  # noqa: E402


class Reads(unittest.TestCase):
    """Which calls read a value of a tensor, at the moment of the call."""

    TEXT = """
one = x.item()
two = float(x)
three = score([x[0].item() for _ in range(1)])
four = (x.argmax(1) == x).sum().item()
five = x.masked_fill(x, float("-inf")).float()
six = x.float() + score(x.float())
seven = score("a text",
              x.cpu())
"""

    def test_calls(self):
        found = []

        class Tensor:
            def read(self, *_):
                found.append((sys._getframe(1).f_lineno, looks._is_reading(sys._getframe(1))))
                return self
            item = cpu = read

            def __float__(self):
                self.read()
                found[-1] = (sys._getframe(1).f_lineno, looks._is_reading(sys._getframe(1)))
                return 1.0

            def other(self, *_):
                self.item()
                found[-1] = (sys._getframe(1).f_lineno, looks._is_reading(sys._getframe(1)))
                return self
            argmax = masked_fill = sum = float = __getitem__ = __add__ = __eq__ = other
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            Path(path).write_text(self.TEXT)
            x = Tensor()
            exec(compile(self.TEXT, path, "exec"), {"x": x, "score": lambda *_: x.other() and x})
        if hasattr(compile("", "", "exec"), "co_positions"):
            of_lines = {line: [reads for at, reads in found if at == line] for line in range(2, 10)}
            self.assertEqual(of_lines, {2: [True], 3: [True], 4: [False, True], 5: [False, False, False, True], 6: [False, False], 7: [False] * 3, 8: [], 9: [True]})

    def test_a_jump_that_has_no_line(self):  # of Python 3.10; others give each a line
        frame = types.SimpleNamespace(f_lineno=None, f_lasti=6, f_code=types.SimpleNamespace(
            co_filename="train.py", co_firstlineno=3, co_lines=lambda: iter([(0, 4, 5), (4, 8, None), (8, 10, 9)])))
        self.assertEqual(borders.line_of(frame), ("train.py", 5))
        self.assertFalse(looks._is_reading(frame))


class Installed(unittest.TestCase):
    """Whose a source file is, if torch is not in a folder called site-packages."""

    def users(self, *files, of_target=True, inside=False):
        """Which of the files below the folder that has torch are the user's."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("torch", *["torch-2.15.0.dist-info"] * of_target):
                Path(folder, name).mkdir()
            main = types.SimpleNamespace(__file__=os.path.join(folder if inside else tempfile.gettempdir(), "train.py"))
            with mock.patch.object(borders, "_LIBRARIES", borders._LIBRARIES), mock.patch.dict(sys.modules, {"__main__": main}):
                self.assertTrue(borders.is_users(f"{folder}/torch/_tensor.py"))
                for _ in range(2):  # watching may begin again
                    borders.count_as_installed(types.SimpleNamespace(__file__=f"{folder}/torch/__init__.py"))
                return [borders.is_users(f"{folder}/{file}") for file in files]

    def test_a_target_folder_of_pip_has_no_file_of_the_user(self):
        self.assertEqual(self.users("torch/_tensor.py", "lightning/loop.py"), [False, False])

    def test_of_a_tree_in_which_torch_was_built_only_torch_is_installed(self):
        self.assertEqual(self.users("torch/_tensor.py", "mine.py", of_target=False), [False, True])

    def test_packages_beside_the_script_leave_the_script_the_users(self):
        self.assertEqual(self.users("torch/_tensor.py", "train.py", inside=True), [False, True])


class Loss:
    """What a backward pass is called on."""

    grad_fn = True


class KeptLosses(unittest.TestCase):
    def follow(self, container, steps=400):
        kept = Kept()
        for step in range(steps):
            loss = Loss()
            container.append(loss)
            kept.see(loss, step, sys._getframe())
        return kept.evidence(steps, lambda line: "")

    def test_a_list_grows(self):
        self.assertEqual(self.follow([])["list"], "container")

    def test_losses_that_are_kept_for_a_time(self):
        self.assertIsNone(self.follow(collections.deque(maxlen=30)))


class HeldMemory(unittest.TestCase):
    def test_memory_that_grows_to_the_end(self):
        def said(held, seconds=100):
            memory = Memory()
            for second in range(seconds):
                memory.see(20 * second, int(1e9 * held(second)))
            self.assertLess(len(memory.samples), 300)
            return memory.rising()
        self.assertIn("more and more memory: 1.5 GB at step 1,000, 1.99 GB now", said(lambda second: 1 + 0.01 * second))
        self.assertIn("at step", said(lambda second: 1 + 0.001 * second, 1000))
        for held in (lambda second: 1 + 0.01 * min(second, 80), lambda second: 1 + 0.5 * (second % 30) / 30, lambda second: 1 + 1e-4 * second, lambda _: 1):
            self.assertEqual(said(held), "")
        self.assertEqual(said(lambda second: 1 + second, 20), "")


class Cadence(unittest.TestCase):
    def test_later_looks_are_fewer_and_count_more(self):
        watching = mock.MagicMock(busy="forward", thread=0)
        seen = looks.Looks(watching)
        seen.delay, seen.delayed = mock.MagicMock(read=lambda: 0), 0
        with mock.patch.object(looks, "EVERY", 1e-4), mock.patch.object(seen._ending, "wait", return_value=False) as wait:
            for count in (0, looks.DENSE):
                seen.count = count
                self.assertTrue(seen._wait())
                seen._look()
        self.assertEqual([call.args[0] for call in wait.call_args_list], [1e-4, 4e-4])
        self.assertEqual(seen.in_step, 1 + 4)


class Speed(unittest.TestCase):
    def test_a_step_is_told_in_ms_or_in_seconds(self):
        told = [verdict._speed({"steps": 1071, "step_ms_p50": ms}) for ms in (0.3, 999.4, 999.6, 1072.0)]
        self.assertEqual(told, ["1,071 steps of 0.3 ms", "1,071 steps of 999 ms", "1,071 steps of 1 s", "1,071 steps of 1.07 s"])


class Text(unittest.TestCase):
    TIMES = {"steps": 71, "step_ms_p50": 950.0, "wall": 112.0, "seconds": {"startup": 2.0, "data_wait": 40.0, "validate": 30.0, "forward": 40.0}}
    FINDINGS = [{"id": "no_readers", "text": "no_readers: steps wait", "gain": 0.3, "change": "DataLoader(..., num_workers=1)", "where": "train.py:9", "heed": ["make the loader once"]},
                {"id": "neighbours", "text": "neighbours: other programs", "gain": 0.2}]

    def test_the_first_finding_is_said_once(self):
        said = verdict.text("train.py", {"times": self.TIMES}, {"verdict": "Steps wait.", "findings": self.FINDINGS}).splitlines()
        self.assertEqual(said[1], "  Steps wait.")
        self.assertEqual(said[-5:], ["  1.  no_readers: see above", "      write    DataLoader(..., num_workers=1)   (train.py:9)", "      and      make the loader once",
                                     "  2.  neighbours: other programs", "  Each gain is that of one change alone; they do not add up. Make the first change, then ask again."])

    def test_one_gain_has_nothing_to_be_added_to(self):
        said = verdict.text("train.py", {"times": self.TIMES}, {"verdict": "Steps wait.", "findings": self.FINDINGS[:1]})
        self.assertNotIn("add up", said)

    def test_a_hint_stands_at_the_loader_that_it_is_about(self):
        found = {"verdict": "Steps wait.", "findings": [{"id": name, "text": name, "set": {"num_workers": 1, "persistent_workers": True}} for name in ("no_readers", "validation_input")]}
        with mock.patch.multiple(_library, library=mock.DEFAULT, text=mock.Mock(return_value=found)):
            said = verdict.diagnose({}, {"num_workers": "it is iterable", "validation.persistent_workers": "make it once"})
        self.assertEqual([finding["heed"] for finding in said["findings"]], [["it is iterable"], ["make it once"]])
        self.assertEqual((said["verdict"], said["findings"][1]["text"]), ("Steps wait. It is iterable.", "validation_input; make it once"))


class AnotherGpu(unittest.TestCase):
    """A script that trains on cuda:1, while the current device is cuda:0."""

    def setUp(self):
        self.torch = mock.MagicMock()
        self.torch.cuda.current_stream = lambda device=None: ("stream", device)
        self.torch.cuda.current_device.return_value = 0
        patched = mock.patch.dict(sys.modules, {"torch": self.torch, "torch.cuda": self.torch.cuda})
        patched.start()
        self.addCleanup(patched.stop)

    def test_a_loss_is_read_when_the_stream_that_copies_it_has_done_so(self):
        loss, watching = mock.MagicMock(), mock.MagicMock()
        watcher.Watcher._send_for(watching, loss, 0, 0)
        self.torch.cuda.Event.return_value.record.assert_called_once_with(("stream", loss.device))

    def test_the_gpu_that_is_watched_is_that_of_the_loss(self):
        loss = mock.MagicMock(is_cuda=True)
        loss.device.index = 1
        watching, library = mock.MagicMock(looks=None, pending_loss=None), mock.MagicMock()
        watching._start_looking = lambda gpu: watcher.Watcher._start_sampler(watching, gpu)
        self.torch.cuda.is_current_stream_capturing.return_value = True
        with mock.patch.object(borders, "plain_tensor", lambda _: loss), mock.patch.object(_library, "library", lambda: library), \
                mock.patch.object(_library, "text", lambda said: said):
            watcher.Watcher.look(watching, 0, loss)
            library.sampler_start.assert_called_once_with(1)
            watcher.Watcher._start_sampler(watching, None)
        library.sampler_start.assert_called_with(0)


if __name__ == "__main__":
    unittest.main()
