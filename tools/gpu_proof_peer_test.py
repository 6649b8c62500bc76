"""Tests of what tools/gpu-proof computes with torch: gradients from two saved states, and how far two sets of them are apart;
the loops of a GPU with a stand-in."""
import contextlib
import io
import json
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

try:
    import torch
except ImportError:
    torch = None

RATE = 2.0**14


def write(path, tensors):
    header, content = {}, b""
    for name, (dtype, values) in tensors.items():
        data = values.numpy().tobytes() if dtype != "BF16" else values.view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [len(content), len(content) + len(data)]}
        content += data
    text = json.dumps({"__metadata__": {"a": "b"}, **header}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)


@unittest.skipUnless(torch, "no torch in this Python: ./dev test sets one up")
class Gradients(unittest.TestCase):
    def setUp(self):
        from gpu_proof import tensors
        self.tensors = tensors
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.file = Path(scratch.name) / "a.safetensors"
        torch.manual_seed(0)
        self.before = {"w": torch.randn(40, 30), "b": torch.zeros(30), "mean": torch.ones(3)}
        self.gradient = {"w": 1e-3 * torch.randn(40, 30), "b": 1e-4 * torch.randn(30)}

    def stepped(self, gradient):
        return {**self.before, **{name: self.before[name] - RATE * gradient[name] for name in gradient}}

    def test_a_file_is_read_as_it_was_written(self):
        kept = {"f": ("F32", torch.randn(2, 3)), "h": ("BF16", torch.randn(4).bfloat16()), "i": ("I64", torch.arange(2)), "none": ("F32", torch.zeros(0, 2))}
        write(self.file, kept)
        read = self.tensors.read(self.file)
        self.assertEqual(set(read), {"f", "h"})
        self.assertTrue(all(torch.equal(read[name], kept[name][1]) for name in read))

    def test_a_step_of_sgd_gives_the_gradient_back(self):
        found = self.tensors.moved(self.before, self.stepped(self.gradient), RATE)
        self.assertEqual(set(found), {"w", "b"})
        apart = self.tensors.apart(found, {name: value.double() for name, value in self.gradient.items()})
        self.assertLess(apart["relative"], 1e-6)
        self.assertGreater(apart["cosine"], 1 - 1e-12)

    def test_planted_differences_are_found(self):
        expected = self.tensors.moved(self.before, self.stepped(self.gradient), RATE)
        scaled = {name: 1.5 * value for name, value in self.gradient.items()}
        apart = self.tensors.apart(self.tensors.moved(self.before, self.stepped(scaled), RATE), expected)
        self.assertAlmostEqual(apart["relative"], 0.5, 5)
        self.assertGreater(apart["cosine"], 0.999999)
        turned = {**self.gradient, "b": -self.gradient["b"]}
        apart = self.tensors.apart(self.tensors.moved(self.before, self.stepped(turned), RATE), expected)
        self.assertEqual((apart["worst"], round(apart["worst_cosine"], 6)), ("b", -1.0))
        missing = {"w": self.gradient["w"]}
        apart = self.tensors.apart(self.tensors.moved(self.before, self.stepped(missing), RATE), expected)
        self.assertEqual((apart["worst"], apart["worst_cosine"]), ("b", 0.0))


class StandIn:
    """torch.cuda's events, streams and graphs on a machine without a GPU: work is done at once, a graph does nothing when it is replayed."""

    class Event:
        def __init__(self, enable_timing):
            self.at = 0.0

        def record(self):
            self.at = time.perf_counter()

        def synchronize(self):
            pass

        def elapsed_time(self, other):
            return 1e3 * (other.at - self.at)

    class CUDAGraph:
        def replay(self):
            pass

    Stream = contextlib.nullcontext
    stream = graph = staticmethod(contextlib.nullcontext)
    synchronize = staticmethod(lambda: None)


@unittest.skipUnless(torch, "no torch in this Python: ./dev test sets one up")
class Ceilings(unittest.TestCase):
    def test_the_loops_of_a_gpu_run_with_a_stand_in(self):
        from gpu_proof.parts import ceilings
        from gpu_proof.proof import Proof

        class OnGpu(Proof):
            on_gpu = True

        rows = io.StringIO()
        setup = {"device": "cpu", "small": False, "quick": False, "recipes": [], "folder": ".", "scratch": ".", "keep": ".", "python": "", "program": "",
                 "environment": {}, "limit": 100}
        ones = torch.ones
        with mock.patch.object(torch, "cuda", StandIn), mock.patch.object(torch, "ones", lambda *sizes, pin_memory, **words: ones(*sizes, **words)), \
                mock.patch.dict(ceilings.SIDE, {True: 16}), mock.patch.dict(ceilings.BLOCK, {True: 1 << 20}), mock.patch.object(ceilings, "HOST_BYTES", (64 << 10,)):
            ceilings.run(OnGpu(setup, rows))
        said = [json.loads(line) for line in rows.getvalue().splitlines()]
        self.assertEqual([(row["what"], row["why"]) for row in said if row["verdict"] != "measured"], [])
        self.assertEqual(len(said), 4 + 1 + 2 + 2)


if __name__ == "__main__":
    unittest.main()
