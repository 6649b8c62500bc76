"""Tests of bench/step/turns.py: programs that take turns, how their times are judged, and what is refused."""
import argparse
import contextlib
import io
import json
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "step"))
import shapes  # noqa: E402
import turns  # noqa: E402

# Answers as a peer does: a first line, then a round for each line; its requests are recorded in a file.
PEER = """
import json, sys
name, ms, parameters, notes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
work = {"parameters": parameters, "trained_parameters": 1, "batch": [{"x": [2]}], "device_name": "stand-in", "torch": "0"}
print(json.dumps(work), flush=True)
for i, line in enumerate(sys.stdin):
    open(notes, "a").write(name)
    print(json.dumps({"ms": [1000.0] * 3 if i == 0 else [ms, ms + 1, ms + 2]}), flush=True)
"""


def program(name, ms, notes, parameters=7):
    return turns.Program([sys.executable, "-c", PEER, name, str(ms), str(parameters), str(notes)])


class Turns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.notes = Path(folder.name) / "notes"

    def started(self, **those):
        programs = {name: program(name, ms, self.notes) for name, ms in those.items()}
        self.assertEqual(turns.started(programs), {})
        return programs

    def test_programs_take_turns_and_the_first_round_does_not_count(self):
        times = turns.take_turns(self.started(a=10, b=20), rounds=3)
        self.assertEqual(times, {"a": [11.0] * 3, "b": [21.0] * 3})
        self.assertEqual(self.notes.read_text(), "abababab")

    def test_no_round_begins_after_the_time_but_the_least(self):
        times = turns.take_turns(self.started(a=10), rounds=50, within=1e-6)
        self.assertEqual(len(times["a"]), turns.LEAST_ROUNDS)

    def test_different_work_is_refused(self):
        programs = {"a": program("a", 10, self.notes), "b": program("b", 10, self.notes, parameters=8)}
        turns.started(programs)
        with self.assertRaises(SystemExit) as refusal:
            turns.take_turns(programs, rounds=1)
        self.assertIn("compute different things", str(refusal.exception))
        for each in programs.values():
            each.close()

    def test_what_gives_no_answer_is_left_out_and_named(self):
        programs = {"a": program("a", 10, self.notes), "dead": turns.Program([sys.executable, "-c", "pass"])}
        with contextlib.redirect_stdout(io.StringIO()) as said:
            left_out = turns.started(programs)
        self.assertEqual((list(programs), list(left_out)), (["a"], ["dead"]))
        self.assertIn("left out: dead", said.getvalue())
        programs["a"].close()

    def test_what_does_not_answer_in_time_is_ended_and_left_out(self):
        programs = {"late": turns.Program([sys.executable, "-c", "import time; time.sleep(1000)"]), "a": program("a", 10, self.notes)}
        with contextlib.redirect_stdout(io.StringIO()):
            turns.started({"a": programs["a"]})
            left_out = turns.started(programs, within=0.2)
        self.assertEqual((list(programs), list(left_out)), (["a"], ["late"]))
        self.assertIn("no answer in time", left_out["late"])
        programs["a"].close()

    def test_times_have_medians_intervals_and_ratios_to_the_fastest(self):
        said = turns.said_of_times({"ours": [1.0, 2.0, 3.0], "eager": [2.0, 4.0, 6.0]})
        self.assertEqual(said["step_ms"], {"ours": 2.0, "eager": 4.0})
        self.assertEqual(said["fastest_of_all"], "ours")
        self.assertEqual(said["of_the_fastest"]["eager"], (2.0, 2.0, 2.0))
        self.assertEqual(said["step_ms_interval"]["ours"], (2.0, 1.0, 3.0))

    def test_the_machine_is_what_the_programs_said(self):
        programs = self.started(a=10)
        self.assertEqual(turns.said_of_machine(programs)["device_name"], "stand-in")
        programs["a"].close()


class Options(unittest.TestCase):
    def settled(self, *words):
        parser = argparse.ArgumentParser()
        turns.add_options(parser, rounds=9, steps=3)
        options = parser.parse_args(["millrace", *words])
        with contextlib.redirect_stderr(io.StringIO()):
            turns.settle(parser, options)
        return options

    def test_a_cpu_has_bars_and_two_formats_a_gpu_three_and_none(self):
        cpu, gpu = self.settled(), self.settled("--device", "cuda")
        self.assertEqual((cpu.shape, cpu.dtypes, cpu.has_bars), ("cpu-small", ["fp32", "bf16"], True))
        self.assertEqual((gpu.shape, gpu.dtypes, gpu.has_bars), ("gpu-small", ["fp32", "tf32", "bf16"], False))

    def test_tf32_is_of_a_gpu(self):
        with self.assertRaises(SystemExit):
            self.settled("--dtypes", "tf32")

    def test_both_sides_get_the_same_device_shape_and_format(self):
        options = self.settled("--device", "cuda", "--shape", "gpu-guide")
        for dtype, precision, tf32 in (("fp32", "fp32", "off"), ("tf32", "fp32", "on"), ("bf16", "bf16", "on")):
            ours = turns.own_words(options, dtype, "cosmology")
            self.assertEqual(ours[ours.index("--precision") + 1], precision)
            self.assertEqual(ours[ours.index("--shape") + 1], "gpu-guide")
            self.assertIn("--device.name=cuda", ours)
            self.assertIn(f"--device.tf32={tf32}", ours)
            self.assertIn(["--device", "cuda", "--shape", "gpu-guide", "--dtype", dtype], [turns.peer_words(options, dtype)[:6]])
        self.assertFalse([word for word in turns.own_words(self.settled(), "fp32", "cosmology") if "tf32" in word])

    def test_results_are_written_with_what_they_were_made_with(self):
        with tempfile.TemporaryDirectory() as folder:
            options = self.settled("--json", f"{folder}/out.json")
            turns.write(options, [{"dtype": "fp32"}])
            written = json.loads(Path(folder, "out.json").read_text())
        self.assertEqual((written["results"], written["device"], written["shape"]), ([{"dtype": "fp32"}], "cpu", "cpu-small"))


class TwoTorches(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        (self.folder / "torch").mkdir()
        (self.folder / "torch/version.py").write_text("from typing import Optional\n__version__ = '2.15.0+cu132'\n")

    def settled(self, *words):
        parser = argparse.ArgumentParser()
        turns.add_other_torch(parser)
        options = parser.parse_args(words)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                turns.settle_other_torch(parser, options)
            except SystemExit:
                return said.getvalue()
        return options

    def test_programs_of_both_have_names_of_their_own(self):
        self.assertEqual(turns.torches(self.settled()), [("", None)])
        self.assertEqual(turns.torches(self.settled("--other-torch", str(self.folder))), [("", None), (" 2.15", self.folder)])

    def test_a_folder_without_torch_is_refused(self):
        self.assertIn("no torch in /nowhere", self.settled("--other-torch", "/nowhere"))
        self.assertIn("goes with --other-torch", self.settled("--other-program", "millrace"))

    def test_the_other_torch_does_not_get_the_stand_ins_of_the_first(self):
        (self.folder / "tools").mkdir()
        peer = self.folder / "tools/python-peer"
        peer.write_text('#!/bin/sh\nprintf \'{"torch": "%s", "paths": "%s %s", "words": "%s"}\' "$MILLRACE_TORCH" "$LD_LIBRARY_PATH" "$PYTHONPATH" "$*"\n')
        peer.chmod(0o755)
        given = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/a/.deps/stubs-2.11:/kept", "PYTHONPATH": "/a/.deps/stubs-2.11"}
        with unittest.mock.patch.object(turns, "HERE", self.folder / "bench/step"):
            made = turns.python_program(["peer.py", "--steps"], given, self.folder)
        self.assertEqual(made.read(), {"torch": str(self.folder), "paths": "/kept ", "words": "peer.py --steps"})
        made.close()
        here = turns.python_program(["-c", "print(1)"])
        self.assertEqual(here.child.args[0], sys.executable)
        here.close()


class Sizes(unittest.TestCase):
    def test_every_recipe_has_the_three_shapes(self):
        recipes = {path.parent.name for path in (ROOT / "recipes").glob("*/entry.cpp")}
        self.assertEqual(set(shapes.SHAPES), recipes)
        for sizes in shapes.SHAPES.values():
            self.assertEqual(list(sizes), ["cpu-small", "gpu-small", "gpu-guide"])
            self.assertEqual(len({tuple(each) for each in sizes.values()}), 1)

    def test_sizes_can_be_changed_by_their_names_alone(self):
        self.assertEqual(shapes.sized("neural_response", "cpu-small", ["units=3,4", "rows=2"]), {"units": [3, 4], "rows": 2})
        with self.assertRaisesRegex(ValueError, "filters="):
            shapes.sized("cosmology", "cpu-small", ["depth=3"])


if __name__ == "__main__":
    unittest.main()
