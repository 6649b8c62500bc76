"""Tests of the parts of tools/gpu-proof: their verdicts, and the steps that need a GPU, with programs that replace it."""
import json
import sys
import unittest
from unittest import mock

from gpu_proof import benches, nvml, trace, training
from gpu_proof.parts import feed, life, parity, sanitizer, steps
from gpu_proof.parts import tests as tests_part
from gpu_proof_test import Folder


class Judging(Folder):
    def test_losses_that_differ_are_told_apart(self):
        self.assertLess(training.distance_of([1.00001, 2], [1, 2]), 1e-4)
        self.assertGreater(training.distance_of([1.01, 2], [1, 2]), 1e-3)
        self.assertAlmostEqual(training.distance_of([0.1, 2], [0.0, 2]), 0.1)  # a loss near zero is compared with the usual loss
        with self.assertRaises(ValueError):
            training.distance_of([1], [1, 2])
        self.assertGreater(training.loss_distance({"a": [1], "b": [2]}, {"a": [1], "b": [1]}), 0.9)
        with self.assertRaisesRegex(ValueError, "objectives"):
            training.loss_distance({"a": [1]}, {"b": [1]})

    def test_planted_losses_are_differs(self):
        """A program whose losses are others than the reference's, and one that computed in another format."""
        program = self.folder / "program"
        program.write_text(f"""#!{sys.executable}
import json, pathlib, sys
run = pathlib.Path(sys.argv[sys.argv.index("--run") + 1])
run.mkdir(parents=True)
losses = [1.1, 0.9] if any("bf16" in word for word in sys.argv) else [1.0, 0.9]
(run / "log.jsonl").write_text("".join(json.dumps({{"kind": "step", "loss": loss}}) + "\\n" for loss in losses))
(run / "plan.json").write_text(json.dumps([{{"option": "precision.dtype", "value": next(word.split("=")[1] for word in sys.argv if "dtype" in word).replace("fp16", "fp32")}}]))
""")
        program.chmod(0o755)
        proof = self.proof(program=str(program))
        for form in (parity.FORMATS[0], *parity.FORMATS[2:]):
            parity.losses(proof, "language_model", form, {"losses": {"loss": [1.0, 0.9]}, "scatter": 1e-6}, True)
        self.assertEqual([entry["verdict"] for entry in self.said()], ["ok", "differs", "left out"])
        self.assertIn("computed in fp32", self.said()[2]["why"])

    def test_a_run_that_goes_on_to_another_state_differs(self):
        for state, verdict in (("'a'", "ok"), ("run.name", "differs")):
            program = self.folder / "program"
            program.write_text(f"""#!{sys.executable}
import json, pathlib, sys, time
run = pathlib.Path(sys.argv[sys.argv.index("--run") + 1])
saved = run / "snapshots/step-00000005/manifest.json"
again = saved.exists()
saved.parent.mkdir(parents=True, exist_ok=True)
saved.touch()
if "killed" in run.name and not again:
    time.sleep(1000)
(run / "summary.json").write_text(json.dumps(dict(state_sha256={state}, loss=dict(last=1.0))))
""")
            program.chmod(0o755)
            life.killed(self.proof(program=str(program)), f"language_model_{verdict}")
            self.assertEqual([entry["verdict"] for entry in self.said()], [verdict])

    def test_a_run_that_cannot_be_killed_is_left_out(self):
        with mock.patch.object(life, "kill_once_saved", return_value=False), mock.patch.object(life, "train"):
            life.killed(self.proof(), "language_model")
        self.assertEqual(self.said()[0]["verdict"], "left out")

    def test_a_trace_of_a_gpu(self):
        events = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "ts": 1000 * i, "dur": 1000} for i in (1, 2)]
        events += [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1000, "dur": 600}, {"ph": "X", "cat": "kernel", "name": "k", "ts": 1500, "dur": 500},
                   {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy", "ts": 2500, "dur": 500}, {"ph": "M", "name": "process_name"},
                   {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "ts": 2400, "dur": 600},
                   {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1000, "dur": 10}]
        file = self.folder / "trace.json"
        file.write_text(json.dumps({"traceEvents": events}))
        self.assertEqual(trace.read(file), {"steps": 2, "step_ms": 1.0, "operations": 0.5, "kernels": 1.0, "copies": 0.5, "waits": 0.5, "wait_ms": 0.3, "idle": 0.25})

    def test_a_trace_without_steps_is_refused(self):
        (self.folder / "trace.json").write_text('{"traceEvents": []}')
        with self.assertRaisesRegex(ValueError, "no steps"):
            trace.read(self.folder / "trace.json")


RUN = """#!{python}
# A program that trains nothing: it writes the folder of a run as the words ask.
import json, os, pathlib, signal, sys
words = dict(word.removeprefix("--").split("=", 1) for word in sys.argv if word.startswith("--") and "=" in word)
run = pathlib.Path(sys.argv[sys.argv.index("--run") + 1])
run.mkdir(parents=True, exist_ok=True)
dtype = words.get("precision.dtype", "fp32")
lines = [dict(kind="step", loss=loss, accounts=dict(data_wait=1.0, copy=2.0, forward=1.0)) for loss in (1.0, 0.9)]
lines += [dict(kind="memory", text="cut in two")] * (words.get("data.batch_size") == "2500")
lines += [dict(kind="snapshot", blocked_ms=2.0)]
(run / "log.jsonl").write_text("".join(json.dumps(line) + "\\n" for line in lines))
(run / "plan.json").write_text(json.dumps([dict(option="precision.dtype", value=dtype)]))
(run / "summary.json").write_text(json.dumps(dict(skipped_steps=1, steps=2, samples_per_s=3.0, loss=dict(first=1.0, last=0.9), exit_reason="max_steps",
                                                  step_ms=dict(p50=1.0), state_sha256="a")))
(run / "snapshots/step-00000002").mkdir(parents=True, exist_ok=True)
(run / "snapshots/step-00000002/model.safetensors").write_bytes(bytes(8))
"""


class OnGpu(Folder):
    """The steps that need a GPU, run with programs that replace it, so that typing mistakes are found without a GPU."""

    def setUp(self):
        super().setUp()
        self.program = self.script("millrace", RUN.format(python=sys.executable))

    def script(self, name, text):
        file = self.folder / name
        file.write_text(text)
        file.chmod(0o755)
        return str(file)

    def gpu(self, **setup):
        return self.proof(**{"device": "cuda", "small": False, "program": self.program, **setup})

    def verdicts(self):
        return [(entry["what"], entry["verdict"]) for entry in self.said()]

    def test_all_formats_are_held_against_the_reference(self):
        proof = self.gpu()
        expected = {"losses": {"loss": [1.0, 0.9]}, "losses_without_dropout": {"loss": [1.0, 0.9]}, "scatter": 0.0}
        with mock.patch.object(parity, "gradients", lambda proof, recipe, form: proof.row(f"{recipe} {form.name}: gradients", "", "ok")):
            for job in parity.jobs_of(proof, "language_model", expected):
                job()
        self.assertEqual([verdict for _, verdict in self.verdicts()], ["ok"] * 7 + ["left out", "ok"])  # in fp16 the program skips a step
        self.assertEqual({what.split(":")[0] for what, _ in self.verdicts()}, {f"language_model {form.name}" for form in parity.FORMATS})

    def test_another_program_takes_the_memory_up_while_a_run_outgrows_it(self):
        holder = self.script("holder", "#!/bin/sh\necho held\ncat > /dev/null\n")
        life.outgrows(self.gpu(python=holder))
        self.assertEqual(self.verdicts(), [("out of memory and recovered", "ok")])
        life.outgrows(self.gpu(python="/bin/false"))
        self.assertIn("could not be taken up", self.said()[0]["why"])

    def test_readers_and_how_busy_the_gpu_is(self):
        class Library:
            nvmlInit_v2 = nvmlDeviceGetHandleByIndex_v2 = staticmethod(lambda *_: 0)

            @staticmethod
            def nvmlDeviceGetUtilizationRates(device, found):
                found._obj.gpu = 80
                return 0

        with mock.patch.object(nvml.ctypes, "CDLL", lambda name: Library), mock.patch.object(nvml, "INTERVAL", 0.001):
            feed.run(self.gpu())
        self.assertEqual([verdict for _, verdict in self.verdicts()], ["measured"] * 8)
        self.assertIn("2 ms for 0.0 MB", self.said()[0]["figure"])
        self.assertIn("wait for data 25.0 %, copy 50.0 %", self.said()[2]["figure"])
        self.assertIn("80 %", self.said()[3]["figure"])

    def test_without_nvml_the_row_says_so(self):
        with mock.patch.object(nvml.ctypes, "CDLL", side_effect=OSError):
            feed.readers(self.gpu(), 1, 2)
        self.assertEqual(self.said()[1]["why"], "no NVML (libnvidia-ml.so.1)")

    def test_what_the_sanitizer_finds_is_a_failure(self):
        for errors, verdict in ((0, "ok"), (3, "failed")):
            tool = self.script("compute-sanitizer", f"#!/bin/sh\necho '========= ERROR SUMMARY: {errors} errors'\n")
            with mock.patch.object(sanitizer, "PLACES", (tool,)):
                sanitizer.run(self.gpu(tests=["/bin/true"]))
            self.assertEqual([found for _, found in self.verdicts()], [verdict] * 2)
        with mock.patch.object(sanitizer, "PLACES", ()):
            sanitizer.run(self.gpu())
        self.assertEqual(self.verdicts(), [("compute-sanitizer", "left out")])

    def test_comparisons_are_called_until_the_time_is_over(self):
        compare = """import json, sys
words = sys.argv
dtypes = words[words.index("--dtypes") + 1:words.index("--rounds")]
assert words[words.index("--device") + 1] == "cuda"
row = lambda dtype: dict(dtype=dtype, chosen="ours", step_ms=dict(ours=1.0, eager=2.0, compile_x=1.5), fastest="compile_x", ratio=[0.5, 0.4, 0.6],
                         peak_bytes=dict(ours=1e6, eager=2e6), left_out={} if "--compile" in words else dict(graphs_x="no"))
json.dump(dict(results=[row(dtype) for dtype in dtypes if dtype != "fp32"]), open(words[words.index("--json") + 1], "w"))
"""
        (self.folder / "bench/step").mkdir(parents=True)
        for bench in benches.BENCHES.values():
            (self.folder / "bench/step" / bench.script).write_text(compare)
        steps.run(self.gpu(recipes=["cosmology"], limit=1000))
        said = self.said()
        self.assertEqual(said[0]["figure"], "ours 1.00 ms, compile_x 1.50, eager 2.00; ours / compile_x 0.500 (0.400..0.600); peak 1 and at least 2 MB")
        self.assertEqual([entry["verdict"] for entry in said], ["measured", "measured", "failed", "measured"])  # fp32 is missing
        steps.run(self.gpu(recipes=["cosmology"], limit=1))
        self.assertEqual({entry["why"] for entry in self.said()}, {"no time was left"})


class TestReports(Folder):
    def planted(self, device, case, status=0):
        program = self.folder / "planted_test"
        program.write_text(f"""#!{sys.executable}
import os, sys
open(os.environ["GTEST_OUTPUT"].removeprefix("xml:"), "w").write('<a><testcase classname="S" name="one" status="run"/>{case}</a>')
sys.exit({status})
""")
        program.chmod(0o755)
        tests_part.run(self.proof(device=device, tests=[str(program)]))
        return [entry["verdict"] for entry in self.said()]

    def test_cases_are_told_apart(self):
        self.assertEqual(self.planted("cpu", '<testcase classname="S" name="two" status="run"><failure message="x"/></testcase>', 1), ["ok", "failed"])
        self.assertEqual(self.planted("cpu", "", 3), ["ok", "failed"])

    def test_a_test_that_finds_no_plugin_on_a_gpu_has_failed(self):
        skipped = '<testcase classname="S" name="two" status="run"><skipped message="the CUDA plugin does not load"/></testcase>'
        self.assertEqual(self.planted("cpu", skipped), ["ok", "skipped"])
        self.assertEqual(self.planted("cuda", skipped), ["ok", "failed"])


if __name__ == "__main__":
    unittest.main()
