"""headrace.Loader(device="cuda"): against a device that is simulated, whose copies and steps happen late and in any order that streams allow,
and on a GPU where there is one."""
import collections
import ctypes
import os
import random
import sys
import tempfile
import threading
import time
import unittest
import weakref
from pathlib import Path
from unittest import mock

import numpy as np
import torch

PACKAGE = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("MILLRACE_BUILD") or PACKAGE.parent / "build/release").resolve()
os.environ.setdefault("HEADRACE_LIBRARY", str(BUILD / "libheadrace.so"))
sys.path.insert(0, str(PACKAGE))
import headrace as mr  # noqa: E402
import loader_peer_test as host  # noqa: E402
from headrace import _device  # noqa: E402


class Stream:
    """Work that has been asked for and not yet been done: functions that return False while they must wait."""

    def __init__(self, machine):
        self.machine, self.work = machine, collections.deque()

    def wait_event(self, event):
        self.work.append(lambda: event.done)


class Event:
    def __init__(self, machine):
        self.machine, self.done = machine, False

    def query(self):
        return self.done

    def synchronize(self):
        self.machine.run(lambda: self.done)


class Machine:
    """Stands for headrace._device.Cuda. Device memory that dies is used again at once, for the same stream, as torch's allocator does it;
    queued work knows addresses alone, so that memory that is given back too early gives wrong numbers."""

    def __init__(self, seed, forgets_to_wait=False, holds=True):
        self.draws = random.Random(seed)
        self.copies, self.loop = Stream(self), Stream(self)
        self.registered, self.blocks, self.alive, self.most = {}, [], 0, 0
        self.forgets_to_wait, self.holds = forgets_to_wait, holds
        self.copied = 0

    def register(self, address, size):
        assert address not in self.registered
        self.registered[address] = size
        return ""

    def unregister(self, address):
        del self.registered[address]

    def stream(self):
        return self.loop

    def empty(self, size):
        fitting = [block for block in self.blocks if len(block) >= size]
        block = fitting[0] if fitting else np.zeros(size, np.uint8)
        if fitting:
            self.blocks = [other for other in self.blocks if other is not block]
        self.alive += 1
        self.most = max(self.most, self.alive)
        memory = type("Memory", (ctypes.c_ubyte * size,), {}).from_address(block.ctypes.data)
        weakref.finalize(memory, self.free, block)
        return torch.from_numpy(np.ndarray((size,), np.uint8, memory))

    def free(self, block):
        self.alive -= 1
        self.blocks.append(block)

    def mark(self, stream):
        event = Event(self)
        stream.work.append(lambda: setattr(event, "done", True))
        return event

    def copy(self, to, source, after):
        if not self.forgets_to_wait:
            self.copies.wait_event(self.mark(after))
        target, begin, size = to.data_ptr(), source.data_ptr(), len(source)
        assert any(start <= begin and begin + size <= start + length for start, length in self.registered.items())

        def move():
            self.copied += 1
            ctypes.memmove(target, begin, size)

        self.copies.work.append(move)
        event = self.mark(self.copies)
        if not self.holds:  # says too early that the host memory is free
            event.query = lambda: True
            event.synchronize = lambda: None
        return event

    def drain(self):
        self.run(lambda: not self.copies.work)

    def run(self, until):
        while not until():
            ready = [stream for stream in (self.copies, self.loop) if stream.work]
            assert ready, "all streams wait for each other"
            stream = self.draws.choice(ready)
            if stream.work[0]() is not False:
                stream.work.popleft()

    def some(self):
        """A little of what can be done."""
        for _ in range(self.draws.randrange(12)):
            stream = self.draws.choice([self.copies, self.loop])
            if stream.work and stream.work[0]() is not False:
                stream.work.popleft()

    def rest(self):
        self.run(lambda: not (self.copies.work or self.loop.work))

    def use(self, tensor, seen):
        """A step: looks at the tensor's memory when its turn comes."""
        address, shape, bits = tensor.data_ptr(), tuple(tensor.shape), tensor.numpy().dtype
        size = tensor.numel() * bits.itemsize

        def look():
            seen.append(np.frombuffer(ctypes.string_at(address, size), bits).reshape(shape))

        self.loop.work.append(look)


def at_once(machine):
    """The machine, with all work done when it is asked for."""
    copy = machine.copy

    def whole(*arguments):
        event = copy(*arguments)
        machine.rest()
        return event

    machine.copy = whole
    return machine


class OnADevice(host.LoaderTest):
    def simulated(self, machine):
        for name, value in (("device_of", lambda device: device), ("cuda_of", lambda place: machine)):
            patched = mock.patch.object(_device, name, value)
            patched.start()
            self.addCleanup(patched.stop)
        return machine

    def pair(self):
        """A pipeline of two data sets, one of which has no rows in some batches."""
        rows = self.rows().augment("x", mr.random_flip([-1]))
        return mr.groups({"a": rows, "b": rows.take(13)})

    def trained(self, machine, **options):
        """What steps see that run long after they were asked for."""
        self.simulated(machine)
        seen = []
        with mr.Loader(self.pair(), 4, shuffle=True, device="cuda", **options) as loader:
            for _ in range(3):
                for batch in loader:
                    for group in batch.values():
                        for tensor in group.values():
                            machine.use(tensor, seen)
                    del batch, group, tensor
                    machine.some()
            machine.rest()
            self.assertIn("one batch ahead", loader.plan())
        self.assertEqual(machine.registered, {})
        return seen

    def expected(self):
        with mr.Loader(self.pair(), 4, shuffle=True, as_="numpy") as loader:
            return [array.copy() for _ in range(3) for batch in loader for group in batch.values() for array in group.values()]

    @staticmethod
    def equal(some, others):
        return len(some) == len(others) and all(np.array_equal(*pair) for pair in zip(some, others))

    def test_nothing_is_torn(self):
        expected = self.expected()
        for seed in range(12):
            machine = Machine(seed)
            self.assertTrue(self.equal(self.trained(machine, readers=seed % 3), expected), seed)
            self.assertEqual(machine.copied, 39)
            self.assertLessEqual(machine.most, 3)

    def test_the_simulation_notices_what_is_torn(self):
        expected = self.expected()
        for planted in ({"forgets_to_wait": True}, {"holds": False}):
            self.assertFalse(all(self.equal(self.trained(Machine(seed, **planted), readers=2), expected) for seed in range(12)), planted)

    def test_a_kept_batch_stays(self):
        machine = self.simulated(at_once(Machine(0)))
        with mr.Loader(self.rows(), 8, device="cuda") as loader:
            kept = [batch["n"] for batch in loader]
        self.assertEqual([n for tensor in kept for n in tensor.tolist()], list(range(50)))
        self.assertEqual(machine.alive, 7)

    def test_a_field_may_be_changed_while_autograd_holds_another(self):
        self.simulated(at_once(Machine(0)))
        with mr.Loader(self.rows(), 8, device="cuda") as loader:
            batch = next(iter(loader))
            weight = torch.ones((), requires_grad=True)
            loss = (weight * batch["x"].float()).sum()
            batch["n"].add_(1)
            loss.backward()
        self.assertEqual(batch["n"].tolist(), list(range(1, 9)))

    def test_a_loader_that_is_closed_holds_a_batch_until_it_is_copied(self):
        machine, held = self.simulated(Machine(0)), []
        drain = machine.drain
        machine.drain = lambda: held.append(machine.alive) or drain()
        with mr.Loader(self.rows(), 8, readers=2, device="cuda") as loader:
            for batch in loader:
                del batch
                time.sleep(0.05)  # the next one is read
                if any(isinstance(each, _device.Copy) for each in loader._ahead):
                    break
        self.assertEqual(held, [1])
        self.assertEqual(machine.alive, 0)

    def test_a_failure_comes_at_its_batch(self):
        def fails(sample, draws):
            return {"y": 1 // (int(sample["n"]) - 20)}

        self.simulated(at_once(Machine(0)))
        for readers in (0, 2):
            with mr.Loader(self.rows().map(fails, {"y": ("i64", ())}), 8, device="cuda", readers=readers) as loader:
                seen = []
                with self.assertRaisesRegex(mr.DataError, "row 20"):
                    for batch in loader:
                        seen += batch["n"].tolist()
                self.assertEqual(seen, list(range(16)))

    def test_no_batch_is_lost_where_the_device_has_no_memory(self):
        machine = self.simulated(at_once(Machine(0)))
        empty, calls = machine.empty, []

        def full(size):
            calls.append(size)
            if len(calls) % 3 == 0:
                raise torch.OutOfMemoryError("out of memory")
            return empty(size)

        machine.empty = full
        seen = []
        with mr.Loader(self.rows(), 8, device="cuda") as loader:
            batches = iter(loader)
            while len(seen) < 50:
                try:
                    seen += next(batches)["n"].tolist()
                except torch.OutOfMemoryError:
                    pass
        self.assertEqual(seen, list(range(50)))

    def test_what_is_counted_is_what_the_loop_had(self):
        self.simulated(at_once(Machine(0)))

        def odd(sample, draws):
            return {"y": 1 // (int(sample["n"]) % 5)}

        options = {"bad_samples": "skip", "max_bad_fraction": 1}
        data = self.rows().map(odd, {"y": ("i64", ())})
        with mr.Loader(data, 8, device="cuda", **options) as loader, mr.Loader(data, 8, as_="numpy", **options) as other:
            for _ in zip(loader, other):
                ours, theirs = ({name: each.counters()[name] for name in ("batches", "samples", "bad_samples")} for each in (loader, other))
                self.assertEqual(ours, theirs)
                self.assertEqual(loader.state_dict(), other.state_dict())

    def test_memory_that_cannot_be_registered_is_said(self):
        machine = self.simulated(at_once(Machine(0)))
        machine.register = lambda address, size: machine.registered.update({address: size}) or "error 2"
        with self.assertWarnsRegex(mr.LoaderWarning, "error 2"), mr.Loader(self.rows(), 8, device="cuda") as loader:
            self.assertIn("pageable memory", loader.plan())
            self.assertEqual(len(list(loader)), 7)

    def test_a_forked_process_gets_no_copy_of_registered_memory(self):
        machine = self.simulated(at_once(Machine(0)))
        with mr.Loader(self.rows(), 8, device="cuda") as loader:
            next(iter(loader))
            begin, flags = 0, {}
            for line in Path("/proc/self/smaps").read_text().splitlines():
                if line.startswith("VmFlags:"):
                    flags[begin] = line.split()[1:]
                elif "-" in line.split()[0]:
                    begin = int(line.split("-")[0], 16)
            self.assertTrue(machine.registered)
            for address in machine.registered:
                self.assertIn("dc", flags[max(start for start in flags if start <= address)])  # don't copy

    def test_places_that_are_refused(self):
        for device, word in (("cuda", "finds no GPU"), ("mps", "leave it out"), ("gpu", "cuda:1")):
            if device == "cuda" and torch.cuda.is_available():
                continue
            with self.assertRaisesRegex(ValueError, word):
                mr.Loader(self.rows(), device=device)
        with self.assertRaisesRegex(ValueError, "NumPy"):
            mr.Loader(self.rows(), device="cuda", as_="numpy")
        self.assertEqual(next(iter(self.loader(device="cpu")))["n"].device.type, "cpu")


class EpochsOnADevice(host.Epochs):
    """Epochs, states and resumes are those of a loader in host memory, though the library is a batch ahead."""

    def loader(self, pipeline=None, batch_size=8, **options):
        with mock.patch.object(_device, "device_of", lambda device: device), \
                mock.patch.object(_device, "cuda_of", lambda place: at_once(Machine(0))):
            return super().loader(pipeline, batch_size, **{**options, "as_": "torch", "device": "cuda"})


class Calls(unittest.TestCase):
    """The calls of torch.cuda, in their order."""

    def test_a_copy_waits_and_is_recorded_on_its_own_stream(self):
        calls = mock.MagicMock()
        calls.cudart().cudaHostRegister.return_value = 0
        calls.reset_mock()
        with mock.patch.object(torch, "cuda", calls):
            cuda = _device.Cuda(torch.device("cpu"))
            self.assertEqual(cuda.register(4096, 64), "")
            source, to = torch.arange(8, dtype=torch.uint8), cuda.empty(8)
            event = cuda.copy(to, source, "the loop's")
            cuda.unregister(4096)
        self.assertEqual(to.tolist(), list(range(8)))
        own = calls.Stream.return_value
        self.assertEqual([name for name, _, _ in own.mock_calls if "__" not in name], ["wait_stream", "record_event"])
        own.wait_stream.assert_called_once_with("the loop's")
        calls.stream.assert_called_once_with(own)
        self.assertIs(event, own.record_event.return_value)
        calls.cudart().cudaHostRegister.assert_called_once_with(4096, 64, 0)
        calls.cudart().cudaHostUnregister.assert_called_once_with(4096)

    def test_a_failed_registration_leaves_its_error_in_no_thread_that_launches(self):
        calls, threads = mock.MagicMock(), []
        calls.cudart().cudaHostRegister.side_effect = lambda *_: threads.append(threading.get_ident()) or 801
        calls.cudart().cudaGetErrorString.side_effect = {801: "operation not supported"}.get
        with mock.patch.object(torch, "cuda", calls):
            self.assertEqual(_device.Cuda(torch.device("cpu")).register(4096, 64), "cudaHostRegister: operation not supported (error 801)")
        self.assertNotEqual(threads, [threading.get_ident()])
        self.assertEqual(len(threads), 1)


@unittest.skipUnless(torch.cuda.is_available(), "there is no GPU")
class OnAGpu(host.LoaderTest):
    def test_batches_are_those_of_host_memory(self):
        data = mr.groups({"a": self.rows().repeat(20), "b": self.rows()})
        with mr.Loader(data, 8, shuffle=True, as_="numpy", readers=2) as loader, mr.Loader(data, 8, shuffle=True, device="cuda") as other:
            for epoch in range(4):
                for expected, batch in zip(loader, other):
                    for group, fields in expected.items():
                        for name, array in fields.items():
                            self.assertEqual(batch[group][name].device.type, "cuda")
                            self.assertTrue(np.array_equal(batch[group][name].cpu().numpy(), array))
            self.assertIn("one batch ahead", other.plan())


if __name__ == "__main__":
    unittest.main()
