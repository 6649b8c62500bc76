"""The scripts of bench/headrace/doctor: each fault can be planted and mended, and what the doctor prints is put in word for word."""
import ast
import sys
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench/headrace/doctor"
sys.path.insert(0, str(BENCH))
import remedies
from faults import FAULTS, mended_by_hand, planted

SCRIPT = """\
losses = []
for epoch in range(2):
    loader = DataLoader(data, batch_size=4, num_workers=0)
    check = torch.utils.data.DataLoader(
        held_out,
    )
    losses.append(loss)
"""


def text_of(fault):
    return (BENCH / "scripts" / f"{fault.script}.py").read_text()


class Faults(unittest.TestCase):
    def test_each_is_a_script_that_differs(self):
        for fault in FAULTS:
            with self.subTest(fault.name):
                text = planted(text_of(fault), fault)
                self.assertNotEqual(text, text_of(fault))
                ast.parse(text)

    def test_each_that_is_mended_by_hand_is_a_script(self):
        for fault in FAULTS:
            if fault.by_hand:
                with self.subTest(fault.name):
                    text = planted(text_of(fault), fault)
                    self.assertNotEqual(mended_by_hand(text, fault, 50), text)
                    ast.parse(mended_by_hand(text, fault, 50))

    def test_ten_scripts(self):
        self.assertEqual(len(list((BENCH / "scripts").glob("*.py"))), 10)


class Remedies(unittest.TestCase):
    def test_arguments_are_set_in_the_call_that_is_named(self):
        text, words, variables = remedies.applied(SCRIPT, {"call": "DataLoader", "where": "train.py:3", "set": {"num_workers": 4, "persistent_workers": True}})
        self.assertIn("DataLoader(data, batch_size=4, num_workers=4, persistent_workers=True)\n", text)
        self.assertEqual((words, variables), ([], {}))
        text, _, _ = remedies.applied(SCRIPT, {"call": "DataLoader", "where": "train.py:4", "set": {"worker_init_fn": {"code": "lambda worker: torch.set_num_threads(1)"}}})
        self.assertIn("held_out,\n    worker_init_fn=lambda worker: torch.set_num_threads(1))", text)
        ast.parse(text)

    def test_a_line_is_replaced(self):
        text, _, _ = remedies.applied(SCRIPT, {"where": "train.py:7", "replace": {"losses.append(loss)": "losses.append(loss.detach())"}})
        self.assertIn("    losses.append(loss.detach())\n", text)

    def test_a_command_and_variables(self):
        text, words, variables = remedies.applied(SCRIPT, {"command": "headrace run -- python train.py", "environment": {"OMP_NUM_THREADS": "2"}})
        self.assertEqual((text, words, variables), (SCRIPT, ["headrace", "run"], {"OMP_NUM_THREADS": "2"}))

    def test_prose_is_not_applied(self):
        for finding in ({"remedy": "make them once"}, {"change": "save every 20 steps", "set": {"every_steps": 20}}, {"call": "Trainer", "set": {"log_every_n_steps": 50}},
                        {"where": "train.py:2", "replace": {"losses.append(loss)": "x"}}):
            with self.subTest(finding), self.assertRaises(remedies.NotApplicable):
                remedies.applied(SCRIPT, finding)


if __name__ == "__main__":
    unittest.main()
