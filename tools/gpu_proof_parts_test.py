"""Tests of the parts of tools/gpu-proof: their verdicts, and the steps that need a GPU, with programs that replace it."""
import json
import sys
import unittest
from unittest import mock

from gpu_proof import benches, nvml, trace, training
from gpu_proof.parts import compiling, feed, graph, life, parity, profile, python, sanitizer, steps
from gpu_proof.parts import tests as tests_part
from gpu_proof_test import ROOT, Folder


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


class GpuFolder(Folder):
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


class OnGpu(GpuFolder):
    """The steps that need a GPU, run with programs that replace it, so that typing mistakes are found without a GPU."""

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
        said = ("ERROR SUMMARY: {} errors", "RACECHECK SUMMARY: {} hazards displayed ({} errors, 0 warnings)")
        for errors, memcheck, racecheck in ((0, "ok", "ok"), (3, "failed", "failed")):
            lines = [text.format(errors, errors) for text in said]
            tool = self.script("compute-sanitizer", f"""#!/bin/sh
case "$*" in *"--kernel-name kns=millrace"*) ;; *) exit 1 ;; esac  # LibTorch's kernels take too long
[ "$PYTORCH_NO_CUDA_MEMORY_CACHING" = 1 ] || exit 1  # in a piece of the allocator's nothing is outside
case "$*" in *memcheck*) echo '========= {lines[0]}' ;; *) echo '========= {lines[1]}' ;; esac
""")
            with mock.patch.object(sanitizer, "PLACES", (tool,)):
                sanitizer.run(self.gpu(tests=["/bin/true", f"/bin/{sanitizer.TEST}"]))
            self.assertEqual([found for _, found in self.verdicts()], [memcheck, racecheck])
        with mock.patch.object(sanitizer, "PLACES", (self.script("compute-sanitizer", "#!/bin/sh\n"),)):
            sanitizer.run(self.gpu(tests=[f"/bin/{sanitizer.TEST}"]))
        self.assertEqual([entry["why"] for entry in self.said()], ["the sanitizer gave no summary"] * 2)
        with mock.patch.object(sanitizer, "PLACES", ()):
            sanitizer.run(self.gpu())
        self.assertEqual(self.verdicts(), [("compute-sanitizer", "left out")])

    def test_what_a_loop_in_python_found_is_judged(self):
        python.run(self.gpu())
        self.assertEqual(self.verdicts(), [("headrace.Loader", "left out")])
        (self.folder / "bench/python_loader").mkdir(parents=True)
        (self.folder / python.LIBRARY).parent.mkdir(parents=True)
        (self.folder / python.LIBRARY).touch()
        torn = {"torn_rows": 0, "wrong_batches": 0, "batches": 10}
        compared = {"exposed": 0.01, "bar": 0.02, "best_peer": "DataLoader, 4 workers", "left_out": {"DataLoader, 8 workers": "Bus error"},
                    "ms": {"resident": 10.0, "headrace": 10.1, "DataLoader, 4 workers": 12.0}, "batch_bytes": 38e6, "plan": "readers"}
        alone = {**compared, "best_peer": None, "ms": {"resident": 10.0, "headrace": 10.1}}
        cases = [({**torn, **compared}, 0, ["ok", "ok"]), ({**torn, **compared, "torn_rows": 2, "exposed": 0.04}, 0, ["failed", "failed"]),
                 ({**torn, **alone}, 0, ["ok", "ok"]), (torn, 3, ["ok", "failed"]), ({**torn, **compared}, 139, ["ok", "failed", "ok"]), (None, 3, ["failed"])]
        for found, status, verdicts in cases:
            (self.folder / "python.json").unlink(missing_ok=True)
            (self.folder / "bench/python_loader/device.py").write_text(
                f"import os, sys\nassert os.environ['LD_LIBRARY_PATH'] == os.path.dirname(os.environ['HEADRACE_LIBRARY']) + ':/stubs'\n"
                f"assert 0 <= float(sys.argv[sys.argv.index('--seconds') + 1]) < 60\n"
                + (f"open(sys.argv[4], 'w').write({json.dumps(found)!r})\n" if found else "") + f"print('its last words', file=sys.stderr)\nsys.exit({status})\n")
            python.run(self.gpu(environment={"LD_LIBRARY_PATH": "/stubs"}))
            self.assertEqual([verdict for _, verdict in self.verdicts()], verdicts)
            if (found, status) == cases[0][:2]:
                self.assertIn("10.00 ms, 38 MB a batch; DataLoader, 4 workers 20.0%", self.said()[1]["figure"])
                self.assertEqual(self.said()[1]["why"], "DataLoader, 8 workers: Bus error")
            if status != 0:
                self.assertIn("its last words", self.said()[min(1, len(verdicts) - 1)]["why"])

    def plant_comparisons(self):
        compare = """import json, sys
words = sys.argv
dtypes = words[words.index("--dtypes") + 1:words.index("--rounds")]
assert words[words.index("--device") + 1] == "cuda"
print("a peer's last words", file=sys.stderr)
row = lambda dtype: dict(dtype=dtype, chosen="ours", step_ms=dict(ours=1.0, eager=2.0, compile_x=1.5), fastest="compile_x", ratio=[0.5, 0.4, 0.6],
                         peak_bytes=dict(ours=1e6, eager=2e6, graphs_x=1e3), left_out={} if "--compile" in words else dict(graphs_x="no"))
json.dump(dict(results=[row(dtype) for dtype in dtypes if dtype != "fp32"]), open(words[words.index("--json") + 1], "w"))
"""
        (self.folder / "bench/step").mkdir(parents=True)
        for bench in benches.BENCHES.values():
            (self.folder / "bench/step" / bench.script).write_text(compare)

    def test_comparisons_are_called_until_the_time_is_over(self):
        self.plant_comparisons()
        steps.run(self.gpu(recipes=["cosmology"], limit=1000))
        said = self.said()
        self.assertEqual(said[0]["figure"], "ours 1.00 ms, compile_x 1.50, eager 2.00; ours / compile_x 0.500 (0.400..0.600); peak 1 and at least 2 MB")
        self.assertEqual([entry["verdict"] for entry in said], ["measured", "measured", "measured", "failed"])  # fp32 is missing
        self.assertEqual([entry["why"] for entry in said[:2]], ["", "left out: graphs_x; a peer's last words"])
        steps.run(self.gpu(recipes=["cosmology"], limit=1))
        self.assertEqual({entry["why"] for entry in self.said()}, {"no time was left"})

    def test_small_shapes_come_first_and_what_is_compiled_is_what_is_compared(self):
        cells = benches.cells(training.RECIPES, True, False, True)
        self.assertEqual([cell.recipe for cell in cells[:9]], training.RECIPES + benches.GUIDES)
        self.assertEqual((cells[-1].recipe, cells[-1].shape), ("image_pairs", "gpu-guide"))
        proof = self.gpu(recipes=training.RECIPES, thorough=True)
        compiled = {(cell.recipe, cell.shape, way) for cell, way in compiling.wanted(proof)}
        for cell in cells:
            names = [name for name in benches.programs_of(cell) if name not in benches.BENCHES[cell.recipe].eager]
            ways = {name.removeprefix(mode).strip("_") for name in names for mode in benches.MODES if name.startswith(mode)}
            self.assertTrue(all((cell.recipe, cell.shape, way) in compiled for way in ways), cell)
        self.assertEqual([cell.ways for cell in benches.cells(training.RECIPES, True, False, False)][:9], [1] * 5 + [0] * 4)

    def test_peers_that_find_the_memory_full_compile_again_when_they_are_alone(self):
        peer = self.folder / "bench/step" / benches.BENCHES["language_model"].peer
        peer.parent.mkdir(parents=True)
        peer.write_text("""import json, pathlib, sys
been = pathlib.Path("been-" + sys.argv[sys.argv.index("--shape") + 1] + sys.argv[sys.argv.index("--mode") + 1])
if "gpu-guide" in sys.argv and not been.exists():
    been.touch()
    sys.exit("torch.OutOfMemoryError: CUDA out of memory")
print(json.dumps({"first_step_s_since_process_start": 2.0}))
""")
        with mock.patch.dict(compiling.AT_ONCE, {True: 1}):
            compiling.run(self.gpu(recipes=["language_model"], thorough=True))
        self.assertEqual([(entry["what"], entry["figure"]) for entry in self.said()[1:2]], [("language_model gpu-small", "first step after 2.0 s, 2.0 s with CUDA graphs")])
        self.assertEqual((self.said()[2]["what"], self.said()[2]["verdict"]), ("language_model gpu-guide", "left out"))  # it found it full twice

    def test_a_recipe_that_takes_long_to_profile_leaves_the_others_their_time(self):
        limits, asked = [], []
        with mock.patch.object(profile.training, "smoke", lambda *words: words), mock.patch.object(profile.trace, "read", side_effect=ValueError("planted")):
            proof = self.gpu(recipes=["a", "b", "c"], limit=30)
            proof.run = lambda words, limit: (limits.append(limit), asked.append(words))
            profile.run(proof)
        self.assertEqual([round(limit) for limit in limits], [16, 20, 20])
        self.assertEqual([verdict for _, verdict in self.verdicts()], ["failed"] * 3)
        skipped = int(next(word for word in asked[0] if str(word).startswith("--profile.skip=")).partition("=")[2])
        self.assertGreaterEqual(skipped, 10)  # until then a GPU's steps are recorded, or launched twice
        self.assertGreaterEqual(asked[0][2], skipped + profile.STEPS)  # steps of the run


STAND_IN = """#!{python}
# Stands in for both sides of a comparison: a peer says first that it is there, ours answers each line.
import json, sys
work = dict(parameters=1, trained_parameters=1, batch=[], device="cuda", device_name="stand-in", torch="0", tensor_peak_bytes=2e6, first_step_s_since_process_start=1.0)
if "bench" not in sys.argv:
    print(json.dumps(work), flush=True)
for line in sys.stdin:
    print(json.dumps(dict(work, ms=[1.0], memory=dict(step_peak_bytes=1e6))), flush=True)
"""


class Comparisons(GpuFolder):
    def test_the_scripts_know_what_they_are_asked_for(self):
        """The scripts of bench/step themselves, with stand-ins for Python's ways and for the program."""
        place = self.folder / "bench/step"
        place.mkdir(parents=True)
        for script in (ROOT / "bench/step").glob("*.py"):
            (place / script.name).write_text(STAND_IN.format(python=sys.executable) if script.name.endswith("_peer.py") else script.read_text())
        cells = benches.cells(training.RECIPES, True, False, True)
        chosen = [*cells[:9], cells[9], cells[-1]]
        quick = {shape: ["--rounds", 1, "--steps", 1, "--threads", 2, "--within", 9] for shape in steps.PACE}
        with mock.patch.object(benches, "cells", return_value=chosen), mock.patch.dict(steps.PACE, quick):
            steps.run(self.gpu(program=self.script("ours", STAND_IN.format(python=sys.executable)), limit=1000))
        said = self.said()
        self.assertEqual([(entry["verdict"], entry["why"]) for entry in said], [("measured", "")] * 12)
        for cell, entry in zip([*chosen[:10], *chosen[9:]], said):
            self.assertEqual(sorted(name for name in entry["data"]["result"]["step_ms"] if not name.startswith("ours")), sorted(benches.programs_of(cell)), cell)


STEP_GRAPH = """#!{python}
# A program whose steps have the loss and the time that the test plants, and whose runs have the state that it plants.
import json, pathlib, sys
off = "step_graph" in sys.argv
words = dict(word.removeprefix("--").split("=", 1) for word in sys.argv if word.startswith("--") and "=" in word)
if sys.argv[1] == "train":
    run = pathlib.Path(sys.argv[sys.argv.index("--run") + 1])
    run.mkdir(parents=True)
    lines = [dict(kind="step", loss={loss} if off else 1.0)] + ([] if off else [dict(kind="step_graph", step=10, taken={taken}, reason="planted")])
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\\n" for line in lines))
    (run / "summary.json").write_text(json.dumps(dict(steps=40, state_sha256=str({loss}) if off else "1.0", loss=dict(last=1.0))))
    sys.exit()
# It is known after ten steps whether a step becomes a graph, and the program makes them, in which the loss changes.
more = 0 if off else max(0, 10 - 1 - int(sys.argv[sys.argv.index("--warmup") + 1]))
for line in sys.stdin:
    print(json.dumps(dict(shape="gpu-small", ms=[2.0 if off else 1.0], loss_last={loss} if off else 1.0 - 0.01 * more, memory=dict(step_peak_bytes=1e6),
                          step_graph=dict(taken=not off and {taken}, reason="planted"))), flush=True)
"""


class Graph(GpuFolder):
    def ran(self, loss=1.0, taken=True, recipes=("language_model",)):
        program = self.script("graph-program", STEP_GRAPH.format(python=sys.executable, loss=loss, taken=taken))
        graph.run(self.gpu(program=program, recipes=list(recipes)))
        return self.said()

    def test_time_and_losses_with_and_without_a_graph(self):
        said = self.ran()
        self.assertEqual([(entry["what"], entry["verdict"]) for entry in said],
                         [("language_model bf16: a run with and without a graph", "ok"), ("language_model fp32: a run with and without a graph", "ok"),
                          ("language_model gpu-small bf16", "ok"), ("language_model gpu-small fp32", "ok")])
        self.assertIn("state the same to the bit; 40 steps", said[0]["figure"])
        self.assertEqual(said[2]["figure"], "step 1.00 ms as a graph, 2.00 ms without, 2.00 times (2.00..2.00); losses equal to the bit, "
                                            "two without a graph to the bit; peak 1 and 1 MB")
        self.assertEqual([entry["why"] for entry in said], [""] * 4)

    def test_losses_that_differ_fail_and_a_graph_that_was_not_taken_says_why(self):
        said = self.ran(loss=1.0005, taken=False)
        self.assertEqual([entry["verdict"] for entry in said], ["ok", "differs", "ok", "failed"])  # bf16 may be 1e-3 apart, fp32 not
        self.assertIn("state not the same; losses equal to 3 digits", said[0]["figure"])
        self.assertEqual([entry["why"] for entry in said[:3]], ["no graph: planted"] * 3)
        self.assertIn("5.0e-04 apart, 1.0e-05 allowed; no graph: planted", said[3]["why"])

    def test_a_program_that_ends_is_a_failure_and_the_next_cell_goes_on(self):
        program = self.script("ends", "#!/bin/sh\necho 'there is no row step_graph' >&2\nexit 2\n")
        graph.run(self.gpu(program=program, recipes=["cosmology"]))
        self.assertEqual([verdict for _, verdict in self.verdicts()], ["failed"] * 3)
        self.assertIn("bench step cosmology ended: there is no row step_graph", self.said()[2]["why"])

    def test_a_program_that_hangs_is_ended(self):
        with mock.patch.object(graph, "FIRST_LIMIT", 0.5):
            graph.steps(self.gpu(program=self.script("hangs", "#!/bin/sh\nexec sleep 1000\n"), recipes=["cosmology"]))
        self.assertIn("gave no answer", self.said()[0]["why"])

    def test_digits(self):
        self.assertEqual([graph.alike(distance) for distance in (0, 3e-7, 0.5, float("nan"))], ["to the bit", "to 6 digits", "to 0 digits", "in no digit"])


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
