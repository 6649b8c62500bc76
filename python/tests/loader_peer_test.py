"""headrace.Loader over libheadrace.so of the build: batches, epochs, resumes, life and death of its memory and threads."""
import ctypes
import gc
import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import warnings
import weakref
from pathlib import Path
from unittest import mock

import h5py
import numpy as np

PACKAGE = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("MILLRACE_BUILD") or PACKAGE.parent / "build/release").resolve()
os.environ.setdefault("HEADRACE_LIBRARY", str(BUILD / "libheadrace.so"))
sys.path.insert(0, str(PACKAGE))
import headrace as mr  # noqa: E402

ROWS = 50
needs_torch = unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
needs_pillow = unittest.skipUnless(importlib.util.find_spec("PIL"), "Pillow is not installed")


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class LoaderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory()
        cls.folder = Path(cls._folder.name)
        draws = np.random.default_rng(0)
        cls.x = draws.random((ROWS, 3, 4), dtype=np.float32)
        np.save(cls.folder / "x.npy", cls.x)
        np.save(cls.folder / "n.npy", np.arange(ROWS))
        with h5py.File(cls.folder / "sky.h5", "w") as file:
            file.create_dataset("x", data=cls.x, chunks=(1, 3, 4), compression="gzip")
            file["n"] = np.arange(ROWS)

    @classmethod
    def tearDownClass(cls):
        cls._folder.cleanup()

    def rows(self):
        return mr.npy({"x": self.folder / "x.npy", "n": self.folder / "n.npy"})

    def setUp(self):
        warnings.simplefilter("ignore", mr.LoaderWarning)  # that tests keep many batches is meant

    def loader(self, pipeline=None, batch_size=8, **options):
        loader = mr.Loader(pipeline or self.rows(), batch_size, **options)
        self.addCleanup(loader.close)
        return loader

    def python(self, code, **options):
        """A script in a process of its own, which must end by itself."""
        prologue = f"import sys; sys.path.insert(0, {str(PACKAGE)!r})\nimport headrace as mr, os, time\nos.chdir({str(self.folder)!r})\n"
        return subprocess.run([sys.executable, "-c", prologue + code], capture_output=True, text=True, timeout=120, **options)


class Batches(LoaderTest):
    @needs_torch
    def test_torch_tensors_of_the_rows(self):
        import torch
        for batch in self.loader(shuffle=True):
            self.assertEqual((batch["x"].dtype, batch["n"].dtype), (torch.float32, torch.int64))
            self.assertTrue(np.array_equal(batch["x"].numpy(), self.x[batch["n"].numpy()]))

    def test_numpy_arrays_of_hdf5(self):
        pipeline = mr.hdf5(str(self.folder / "*.h5"), {"x": "/x", "n": "/n"})
        seen = [batch["n"] for batch in self.loader(pipeline, as_="numpy")]
        self.assertTrue(np.array_equal(np.concatenate(seen), np.arange(ROWS)))
        for batch in self.loader(pipeline, as_="numpy", shuffle=True):
            self.assertTrue(np.array_equal(batch["x"], self.x[batch["n"]]))

    def test_groups_and_selections(self):
        train, held_out = self.rows().split(0.8, seed=2)
        loader = self.loader(mr.groups({"a": train, "b": held_out.repeat(2)}), as_="numpy")
        seen = {"a": [], "b": []}
        for batch in loader:
            for name, group in batch.items():
                seen[name].extend(group["n"].tolist())
        self.assertEqual(sorted(set(seen["a"]) | set(seen["b"])), list(range(ROWS)))
        self.assertFalse(set(seen["a"]) & set(seen["b"]))
        some = self.loader(self.rows().subset([4, 2, 4]), as_="numpy")
        self.assertEqual(next(iter(some))["n"].tolist(), [4, 2, 4])
        self.assertEqual(len(self.loader(mr.concat([self.rows().take(3), self.rows()])).dataset), ROWS + 3)

    def test_augmentation_is_the_same_for_any_number_of_readers(self):
        pipeline = self.rows().augment("x", mr.random_flip([-1]), mr.random_roll([-2]), mr.gaussian_noise(0.1))
        streams = [np.concatenate([b["x"] for _ in range(2) for b in self.loader(pipeline, readers=readers, as_="numpy", seed=4)])
                   for readers in (0, 3)]
        self.assertTrue(np.array_equal(*streams))
        self.assertFalse(np.array_equal(streams[0][:ROWS], self.x))

    def test_functions(self):
        def scaled(sample, draws):
            return {"y": sample["x"].sum(axis=0) * draws.integers(1, 9)}

        pipeline = self.rows().map(scaled, {"y": ("f32", (4,))}, drops=["x"])
        streams = [np.concatenate([b["y"] for b in self.loader(pipeline, readers=readers, as_="numpy")]) for readers in (0, 2)]
        self.assertTrue(np.array_equal(*streams))
        ratio = streams[0] / self.x.sum(axis=1)
        self.assertTrue(np.allclose(ratio, ratio.round()) and ratio.max() > 1)

    def test_a_function_by_its_address(self):
        @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.c_void_p)
        def twice(fields, made, seed, context):
            ctypes.c_int64.from_address(made[0]).value = 2 * ctypes.c_int64.from_address(fields[0]).value  # n and x: sorted by name
            return 0

        pipeline = self.rows().map(ctypes.cast(twice, ctypes.c_void_p).value, {"m": ("i64", ())}, name="twice")
        for batch in self.loader(pipeline, as_="numpy", shuffle=True):
            self.assertTrue(np.array_equal(batch["m"], 2 * batch["n"]))

    def test_a_function_that_fails_is_the_cause(self):
        with self.assertRaises(mr.DataError) as caught:
            list(self.loader(self.rows().map(lambda s, d: {"y": 1 // (int(s["n"]) - 3)}, {"y": ("f64", ())}, name="pole")))
        self.assertIsInstance(caught.exception.__cause__, ZeroDivisionError)
        self.assertIn("row 3", caught.exception.where)

    def test_the_cause_is_of_the_latest_call_that_failed(self):
        def odd(sample, draws, at, error):
            if sample["n"] == at:
                raise error
            return {"a": 1}

        for first, second in ((1, 40), (40, 1)):
            data = self.rows().map(lambda s, d: odd(s, d, first, KeyError("first")), {"a": ("i64", ())}).map(
                lambda s, d: odd(s, d, second, ValueError("second")), {"a": ("i64", ())})
            with self.assertRaises(mr.DataError) as caught:
                list(self.loader(data, readers=0, bad_samples="skip", max_bad_fraction=0.02))
            self.assertIsInstance(caught.exception.__cause__, KeyError if first == 40 else ValueError)

    def test_numbers_are_not_taken_for_the_bits_of_bf16(self):
        def loader(made):
            return self.loader(self.rows().map(lambda s, d: {"y": made}, {"y": ("bf16", ())}), as_="numpy")

        self.assertEqual(next(iter(loader(np.uint16(0x3FC0))))["y"][0], 0x3FC0)
        with self.assertRaises(mr.DataError) as caught:
            next(iter(loader(np.float32(1.5))))
        self.assertIn("NumPy has no bf16", str(caught.exception.__cause__))

    def test_numbers_that_the_dtype_cannot_hold_are_refused(self):
        def made(value, dtype):
            return next(iter(self.loader(self.rows().map(lambda s, d: {"y": value}, {"y": (dtype, ())}), as_="numpy")))["y"][0]

        for value, dtype in ((0.7, "u8"), (300, "u8"), (-1, "u16"), (float("nan"), "i64")):
            with self.subTest(value), self.assertRaises(mr.DataError) as caught:
                made(value, dtype)
            self.assertIn("can't hold", str(caught.exception.__cause__))
        self.assertEqual([made(3.0, "u8"), made(7, "f32"), made(2, "bool")], [3, 7, True])

    def test_ranks_share_an_epoch(self):
        seen = []
        for rank in range(3):
            loader = self.loader(shuffle=True, rank=rank, ranks=3, as_="numpy")
            self.assertEqual(len(loader), 3)
            seen += [n for batch in loader for n in batch["n"].tolist()]
        self.assertEqual(sorted(seen), list(range(ROWS)))


    def test_ranks_are_those_of_torch_distributed(self):
        world = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: 3, get_rank=lambda: 1)
        with mock.patch.dict(sys.modules, {"torch.distributed": world}):
            loader = self.loader(as_="numpy")
        self.assertEqual((loader.rank, loader.ranks, len(loader)), (1, 3, 3))
        self.assertEqual(next(iter(loader))["n"].tolist(), list(range(8, 16)))

    def test_a_loader_that_was_made_before_the_ranks_were_is_refused(self):
        early, given = self.loader(as_="numpy"), self.loader(as_="numpy", rank=0, ranks=1)
        world = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: 3, get_rank=lambda: 1)
        with mock.patch.dict(sys.modules, {"torch.distributed": world}):
            with self.assertRaisesRegex(mr.MomentError, "made for rank 0 of 1, and this process is rank 1 of 3 now"):
                next(iter(early))
            self.assertEqual(len(next(iter(given))["n"]), 8)
        self.assertEqual(len(next(iter(early))["n"]), 8)

    def test_ranks_are_those_of_torchrun_before_torch_distributed_begins(self):
        with mock.patch.dict(os.environ, {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"}):
            loader = self.loader(as_="numpy")
            self.assertEqual((loader.rank, loader.ranks, next(iter(loader))["n"].tolist()), (2, 3, list(range(16, 24))))

    def test_numbers_of_numpy_are_numbers(self):
        loader = self.loader(self.rows().take(np.int64(20)).augment("x", mr.random_crop(np.array([2, 2]))), np.int32(4), seed=np.int64(3))
        self.assertEqual((len(loader), next(iter(loader))["x"].shape), (5, (4, 2, 2)))

    def test_pipelines_show_what_they_are(self):
        both = mr.groups({"kind": self.rows(), "b": self.rows().take(2)})
        self.assertEqual([repr(self.rows().take(2)), repr(both)], ["<headrace.Pipeline take < npy>", "<headrace.Pipeline groups>"])
        loader = self.loader(self.rows(), cache="ram")
        self.assertIn("50 samples in 7 batches", loader.plan())
        self.assertIn("<td>readers</td>", loader._repr_html_())
        loader.close()
        self.assertIn("closed", loader._repr_html_())

    @needs_pillow
    def test_centred_crops_of_pictures(self):
        from PIL import Image
        picture = np.random.default_rng(1).integers(0, 256, (12, 10, 3), dtype=np.uint8)
        (self.folder / "photos").mkdir()
        Image.fromarray(picture).save(self.folder / "photos/a[1].png")
        for path in (self.folder / "photos", self.folder / "photos/*.png", self.folder / "photos/a[1].png"):
            batch = next(iter(self.loader(mr.images(path, crop=(4, 6), random=False), 1, as_="numpy")))
            self.assertTrue(np.array_equal(batch["image"][0], picture[4:8, 2:8]))


class Epochs(LoaderTest):
    def stream(self, loader, count):
        """(epoch, numbers) of the next batches, over the ends of epochs; cuts the last epoch short."""
        some = []
        while True:
            for batch in loader:
                some.append((loader._epoch, batch["n"].tolist()))
                if len(some) == count:
                    return some

    def test_each_loop_is_the_next_epoch(self):
        loader = self.loader(shuffle=True, as_="numpy")
        self.assertEqual((len(loader), loader.epoch), (7, 0))
        iter(loader), iter(loader)  # nothing happens
        whole = [[batch["n"].tolist() for batch in loader] for _ in range(3)]
        self.assertEqual(loader.epoch, 3)
        again = self.loader(shuffle=True, as_="numpy")
        for batch in again:
            break
        self.assertEqual([batch["n"].tolist() for batch in again], whole[1])
        third = [batch["n"].tolist() for batch, _ in zip(again, range(7))]  # without the end of the epoch
        self.assertEqual((third, again.epoch), (whole[2], 3))
        self.assertEqual(next(iter(again))["n"].tolist(), next(iter(self.at(3)))["n"].tolist())

    def at(self, epoch):
        loader = self.loader(shuffle=True, as_="numpy")
        loader.load_state_dict({**loader.state_dict(), "epoch": epoch})
        return loader

    def test_a_resume_is_the_uninterrupted_run(self):
        pipeline = self.rows().augment("x", mr.random_flip([-1]))
        options = {"shuffle": True, "as_": "numpy", "seed": 9}
        expected = self.stream(self.loader(pipeline, **options), 30)
        draws = random.Random(1)
        for _ in range(12):
            cut, got = draws.randint(0, 25), []
            first = self.loader(pipeline, readers=draws.choice([0, 1, 3]), **options)
            if cut:
                got = self.stream(first, cut)
            state = first.state_dict()
            first.close()
            second = self.loader(pipeline, readers=draws.choice([0, 1, 3]), **options)
            second.load_state_dict(state)
            self.assertEqual(got + self.stream(second, 30 - cut), expected, cut)

    def test_a_state_may_have_numbers_of_numpy(self):
        loader = self.loader(as_="numpy")
        state = {**loader.state_dict(), "epoch": np.int64(1), "next_batch": np.uint32(2)}
        loader.load_state_dict(state)
        self.assertEqual((type(loader.epoch), next(iter(loader))["n"][0]), (int, 16))

    @needs_torch
    def test_a_state_survives_torch_save(self):
        import torch
        loader = self.loader()
        next(iter(loader))
        torch.save(loader.state_dict(), self.folder / "state.pt")
        self.assertLess(len(str(loader.state_dict())), 500)
        other = self.loader()
        other.load_state_dict(torch.load(self.folder / "state.pt", weights_only=True))
        self.assertEqual(next(iter(other))["n"][0].item(), 8)

    def test_files_that_changed_are_noticed(self):
        np.save(self.folder / "c.npy", self.x)
        state = self.loader(mr.npy({"x": self.folder / "c.npy"})).state_dict()
        (self.folder / "c.npy").rename(self.folder / "d.npy")
        self.loader(mr.npy({"x": self.folder / "d.npy"})).load_state_dict(state)
        np.save(self.folder / "d.npy", self.x + 1)
        changed = self.loader(mr.npy({"x": self.folder / "d.npy"}))
        with self.assertRaisesRegex(mr.StateError, "accept_changed=True"):
            changed.load_state_dict(state)
        changed.load_state_dict(state, accept_changed=True)

    def test_two_loops_at_once_are_refused(self):
        loader = self.loader()
        outer = iter(loader)
        next(outer)
        next(iter(loader))
        with self.assertRaisesRegex(mr.MomentError, "overtaken"):
            next(outer)


class Life(LoaderTest):
    def test_arrays_are_valid_while_they_are_held(self):
        loader = self.loader(as_="numpy")
        kept = [batch for batch in loader]
        loader.close()
        del loader
        gc.collect()
        self.assertTrue(np.array_equal(np.concatenate([batch["x"] for batch in kept]), self.x))

    @needs_torch
    def test_tensors_are_valid_after_the_close(self):
        loader = self.loader()
        row = next(iter(loader))["x"][2:4]  # a view alone keeps the batch
        loader.close()
        self.assertTrue(np.array_equal(row.numpy(), self.x[2:4]))
        with self.assertRaisesRegex(mr.MomentError, "closed"):
            next(iter(loader))

    def test_breaking_off_early_leaves_nothing(self):
        def broken_off(times):
            for _ in range(times):
                with mr.Loader(self.rows(), 8, shuffle=True, readers=2) as loader:
                    for batch in loader:
                        break
        broken_off(100)
        before, threads = resident(), threading.active_count()
        broken_off(300)
        self.assertLess(resident() - before, 4 << 20)
        self.assertEqual(threading.active_count(), threads)
        self.assertLess(len(os.listdir("/proc/self/task")), 40)

    def test_a_forgotten_loader_is_closed_at_once(self):
        gc.disable()
        self.addCleanup(gc.enable)
        loader = mr.Loader(self.rows(), 8, readers=2)
        for batch in loader:
            break
        closed = []
        weakref.finalize(loader, closed.append, True)
        del loader
        self.assertEqual(closed, [True])

    def test_a_fork_says_so(self):
        loader = self.loader()
        next(iter(loader))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                next(iter(loader))
            except mr.MomentError as error:
                code = 0 if "fork" in error.what else 2
            loader.close()
            os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(len(list(loader)), 7)

    def test_the_interpreter_ends_in_mid_epoch(self):
        for end in ("sys.exit(3)", "raise SystemExit(3)", "os._exit(3)"):
            done = self.python(f"l = mr.Loader(mr.hdf5('sky.h5', {{'x': '/x'}}), 4, readers=2, as_='numpy')\nb = next(iter(l))\n{end}")
            self.assertEqual((done.returncode, done.stderr), (3, ""))

    def test_ctrl_c_is_heard_while_a_reader_sleeps(self):
        # A signal that is ignored here, as after nohup, would be ignored in the program too.
        code = ("signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                "def slow(s, r):\n    time.sleep(20)\n    return {'y': 1}\n"
                "l = mr.Loader(mr.npy({'x': 'x.npy'}).map(slow, {'y': ('i64', ())}), 4, readers=1, as_='numpy')\nprint('begun', flush=True)\n"
                "try:\n    next(iter(l))\nexcept KeyboardInterrupt:\n    print('heard', flush=True)\n    os._exit(0)\n")
        prologue = f"import sys; sys.path.insert(0, {str(PACKAGE)!r})\nimport headrace as mr, os, signal, time\nos.chdir({str(self.folder)!r})\n"
        process = subprocess.Popen([sys.executable, "-c", prologue + code], stdout=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline(), "begun\n")
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.communicate(timeout=15)[0], "heard\n")

    def test_ctrl_c_is_heard_where_the_calling_thread_reads(self):
        def interrupted(sample, draws):
            raise KeyboardInterrupt

        data = self.rows().map(interrupted, {"y": ("i64", ())})
        for policy in ("fail", "skip"):
            with self.assertRaises(KeyboardInterrupt):
                next(iter(self.loader(data, readers=0, bad_samples=policy, max_bad_fraction=1, as_="numpy")))

    def test_no_handlers_and_no_other_names(self):
        names = subprocess.run(["nm", "-D", "--defined-only", os.environ["HEADRACE_LIBRARY"]], capture_output=True, text=True, check=True).stdout
        names = [line.split()[-1] for line in names.splitlines()]
        self.assertTrue(names and all(name.startswith("headrace_") for name in names), names)
        before = Path("/proc/self/status").read_text().split("SigCgt:")[1].split()[0]
        list(self.loader())
        self.assertEqual(Path("/proc/self/status").read_text().split("SigCgt:")[1].split()[0], before)


class Mistakes(LoaderTest):
    def test_a_wrong_word_is_one_exception(self):
        with mock.patch("sys.unraisablehook") as hook:
            with self.assertRaisesRegex(TypeError, "batchsize"):
                mr.Loader(self.rows(), batchsize=3)
            gc.collect()
        hook.assert_not_called()

    def refused(self, kind, word, call):
        with self.assertRaises(kind) as caught:
            call()
        self.assertIn(word, str(caught.exception))
        self.assertTrue(caught.exception.what and caught.exception.next, caught.exception)

    def test_each_is_an_exception_with_a_remedy(self):
        rows, loader = self.rows(), self.loader()
        for kind, word, call in [
            (FileNotFoundError, "no file matches", lambda: mr.hdf5("no-*.h5", {"x": "/x"})),
            (FileNotFoundError, "no-such", lambda: mr.npy({"x": "no-such.npy"})),
            (mr.DataError, "sky.h5", lambda: mr.Loader(mr.hdf5(self.folder / "sky.h5", {"x": "/y"}))),
            (mr.DataError, "x.npy", lambda: mr.Loader(mr.hdf5(self.folder / "x.npy", {"x": "/x"}))),
            (ValueError, "batch_size", lambda: mr.Loader(rows, 0)),
            (ValueError, "batch_size", lambda: mr.Loader(rows, "3")),
            (ValueError, "drop_last", lambda: mr.Loader(rows, 64, drop_last=True)),
            (ValueError, "off, ram", lambda: mr.Loader(rows, cache="disk")),
            (ValueError, "readers", lambda: mr.Loader(rows, readers=-2)),
            (ValueError, "rank", lambda: mr.Loader(rows, rank=1)),
            (ValueError, "as_", lambda: mr.Loader(rows, as_="jax")),
            (ValueError, '"z"', lambda: mr.Loader(rows.augment("z", mr.random_flip([-1])))),
            (ValueError, "axis", lambda: mr.Loader(rows.augment("x", mr.random_flip([-7])))),
            (ValueError, "share", lambda: rows.split(2)),
            (ValueError, "rank 3, ranks 2", lambda: mr.Loader(rows, rank=3, ranks=2)),
            (TypeError, "a loader of list", lambda: mr.Loader([1, 2])),
            (TypeError, "a step is", lambda: rows.augment("x", "flip")),
            (TypeError, "function of a map", lambda: rows.map("f", {})),
            (ValueError, "no state", lambda: loader.load_state_dict({"epoch": 1})),
            (ValueError, "seed", lambda: loader.load_state_dict(self.loader(seed=5).state_dict())),
            (TypeError, "an index is False, a bool", lambda: rows.subset(np.arange(ROWS) == 3)),
            (TypeError, "an index is 1.5", lambda: rows.subset([1.5])),
            (TypeError, "'x.npy' is no pipeline", lambda: mr.concat(["x.npy"])),
            (TypeError, "'x.npy' is no pipeline", lambda: mr.groups({"a": "x.npy"})),
            (TypeError, "makes is", lambda: rows.map(len, {"y": "f32"})),
            (TypeError, "makes is", lambda: rows.map(len, {"y": ("f32", 3)})),
            (TypeError, "neither a number nor a text", lambda: mr.Loader(rows, np.array([2, 3]))),
            (ValueError, "can't be passed on", lambda: mr.Loader(rows, max_bad_fraction=float("nan"))),
            (ValueError, "can't be passed on", lambda: mr.Loader(mr.npy({"x": self.not_unicode()}))),
            (RuntimeError, "copied", lambda: __import__("pickle").dumps(loader)),
        ]:
            with self.subTest(word):
                self.refused(kind, word, call)

    def not_unicode(self):
        name = os.fsencode(self.folder) + b"/raw\xff.npy"
        with open(name, "wb") as file:
            np.save(file, self.x)
        return os.fsdecode(name)

    def test_the_name_of_a_file_stays_as_it_is(self):
        for name in ("data.npy", "x=true.npy"):
            (self.folder / name).write_bytes(b"nonsense")
            with self.assertRaises(mr.DataError) as caught:
                mr.Loader(mr.npy({"x": self.folder / name}))
            self.assertIn(f"/{name}", caught.exception.where)

    def test_words_are_those_of_python(self):
        with self.assertRaises(mr.Error) as caught:
            mr.Loader(self.rows(), 64, drop_last=True)
        self.assertNotIn("data.", str(caught.exception))
        self.assertIn("drop_last=False", caught.exception.next)
        loader = self.loader()
        with self.assertRaises(mr.StateError) as caught:
            loader.load_state_dict({**loader.state_dict(), "seed": 5})
        self.assertEqual(caught.exception.next, "make the loader with that seed")

    def test_bad_samples_are_left_out_with_a_warning(self):
        folder = self.folder / "some"
        folder.mkdir()
        for i in range(20):
            np.savez(folder / f"{i:02}.npz", n=np.array(i))
        (folder / "07.npz").write_bytes(b"nothing")
        data = mr.npz(folder)
        with self.assertRaisesRegex(mr.DataError, "07.npz"):
            list(self.loader(data, 4))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loader = self.loader(data, 4, bad_samples="skip", max_bad_fraction=0.1, as_="numpy")
            seen = [n for batch in loader for n in batch["n"].tolist()]
        self.assertEqual(seen, [n for n in range(20) if n != 7])
        self.assertIn("07.npz", "".join(str(one.message) for one in caught))
        self.assertEqual({one.filename for one in caught}, {__file__})
        self.assertEqual(loader.counters()["bad_samples"], 1)


if __name__ == "__main__":
    unittest.main()
