"""Tests of bench/bytes: what an operation moves, the step that is cut out of a list, and the table of three sides."""
import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "bytes"))
import compare  # noqa: E402
from operands import Moved, Operand, moved, sums  # noqa: E402


def reads(size):
    return Operand(0, size, True, False)


def writes(size):
    return Operand(0, size, False, True)


def both(size):
    return Operand(0, size, True, True)


class Moves(unittest.TestCase):
    def test_each_operand_is_moved_once(self):
        self.assertEqual(moved("aten::add", [reads(8), reads(4), writes(8)]), Moved("aten::add", "rest", 20))
        self.assertEqual(moved("aten::add_", [both(8), reads(4)]).bytes, 20)

    def test_what_is_written_over_is_not_read(self):
        self.assertEqual(moved("aten::copy_", [reads(4), both(8)]).bytes, 12)
        self.assertEqual(moved("aten::fill_.Scalar", [both(8)]).bytes, 8)

    def test_a_lookup_reads_what_it_gives(self):
        self.assertEqual(moved("aten::embedding", [reads(1000), reads(2), writes(10)]).bytes, 22)

    def test_norms_of_libtorch_read_twice(self):
        self.assertEqual(moved("aten::native_batch_norm", [reads(10), writes(10)]).bytes, 30)
        self.assertEqual(moved("millrace::norm_forward", [reads(10), writes(10)]).bytes, 20)

    def test_the_bias_of_a_convolution_is_a_pass_of_its_own(self):
        self.assertEqual(moved("aten::convolution", [reads(10), reads(3), writes(10)]).bytes, 23)
        self.assertEqual(moved("aten::convolution", [reads(10), reads(3), reads(1), writes(10)]).bytes, 44)
        backward = [reads(10), reads(9), reads(3), writes(9), writes(3)]
        self.assertEqual(moved("aten::convolution_backward", backward).bytes, 34)
        self.assertEqual(moved("aten::convolution_backward", [*backward, writes(1)]).bytes, 45)

    def test_kinds(self):
        for name, kind in {"aten::addmm": "products", "aten::mm.default": "products", "aten::convolution_backward": "convolutions",
                           "aten::_scaled_dot_product_flash_attention_backward": "attention", "aten::_fused_adamw_": "update",
                           "aten::_foreach_norm.Scalar": "update", "millrace::soft_pool": "rest"}.items():
            self.assertEqual(moved(name, [reads(1), writes(1)]).kind, kind, name)


class Steps(unittest.TestCase):
    @staticmethod
    def lines(*sizes):
        """A list of steps, each of one operation of this size, with something after the last update."""
        lines = []
        for size in sizes:
            lines += [json.dumps({"operation": "aten::mm", "operands": [[0, size, 1, 0]]}), json.dumps({"step": True})]
        return [*lines, json.dumps({"operation": "aten::mm", "operands": [[0, 99, 1, 0]]})]

    def test_the_last_whole_step_counts(self):
        self.assertEqual([each.bytes for each in compare.operations_of(self.lines(7, 2, 3), 3)], [3])

    def test_a_step_of_two_objectives_has_two_updates(self):
        self.assertEqual([each.bytes for each in compare.operations_of(self.lines(1, 2, 3, 4, 5, 6), 3)], [5, 6])

    def test_updates_that_are_no_steps_are_refused(self):
        with self.assertRaisesRegex(compare.Failed, "4 updates in 3 steps"):
            compare.operations_of(self.lines(1, 2, 3, 4), 3)


class Table(unittest.TestCase):
    SIDES = {"ours": {"a": [Moved("x", "rest", 3_000_000)], "b": [Moved("x", "rest", 2_000_000), Moved("mm", "products", 500_000)]},
             "eager": {"": [Moved("x", "rest", 9_000_000)]},
             "compile": {"cat": [Moved("x", "rest", 4_000_000), Moved("mm", "products", 500_000)]}}

    def test_the_way_that_moves_least_is_shown(self):
        self.assertEqual(compare.table("toy", self.SIDES),
                         ["| toy, MB | ours b | eager | compile cat | ours / compile |", "|---|---:|---:|---:|---:|",
                          "| products | 0.5 | 0.0 | 0.5 | 1.00 |", "| rest | 2.0 | 9.0 | 4.0 | 0.50 |", "| all | 2.5 | 9.0 | 4.5 | 0.56 |"])

    def test_sums_have_all_kinds(self):
        self.assertEqual(sums(self.SIDES["ours"]["b"]), {"products": 500_000, "convolutions": 0, "attention": 0, "update": 0, "rest": 2_000_000, "all": 2_500_000})

    def test_each_recipe_has_a_peer(self):
        for recipe, (script, eager, compiled) in compare.PEERS.items():
            self.assertTrue((ROOT / "bench" / "step" / f"{script}.py").exists(), recipe)
            self.assertTrue(eager and compiled, recipe)


if __name__ == "__main__":
    unittest.main()
