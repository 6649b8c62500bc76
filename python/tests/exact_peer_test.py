"""`headrace.exact`: one order and one set of random numbers, whatever the workers, the ranks, and where a run was cut."""
import importlib.util
import pickle
import random
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
import headrace
import kills

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import numpy
    import torch
    from torch.utils.data import IterableDataset
needs_torch = unittest.skipUnless(HAS_TORCH, "there is no torch in this Python")


class Numbers:
    """The sample i is the number i."""

    def __init__(self, length=10):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return index


def seen(loader):
    return [batch.tolist() for batch in loader]


def flat(loader):
    return [index for batch in loader for index in batch.tolist()]


@needs_torch
class Order(unittest.TestCase):
    def test_each_loop_is_the_next_epoch_with_every_sample_once(self):
        loader = headrace.exact(Numbers(), 3, shuffle=True, seed=5)
        first, second = flat(loader), flat(loader)
        self.assertEqual(sorted(first), list(range(10)))
        self.assertEqual(sorted(second), list(range(10)))
        self.assertNotEqual(first, second)
        self.assertEqual(seen(headrace.exact(Numbers(), 3)), [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]])
        self.assertEqual(seen(headrace.exact(Numbers(), 3, drop_last=True)), [[0, 1, 2], [3, 4, 5], [6, 7, 8]])

    def test_the_order_of_a_seed_never_changes(self):
        # Written down: a run must find its order again under another torch, NumPy or Python.
        self.assertEqual(flat(headrace.exact(Numbers(), 5, shuffle=True, seed=5)), [5, 7, 9, 2, 3, 1, 6, 4, 8, 0])

    def test_a_loop_that_is_left_early_ends_its_epoch(self):
        loader, whole = headrace.exact(Numbers(), 3, shuffle=True), headrace.exact(Numbers(), 3, shuffle=True)
        next(iter(loader))
        flat(whole)
        self.assertEqual(flat(loader), flat(whole))

    def test_iter_alone_changes_nothing(self):
        loader = headrace.exact(Numbers(), 3)
        first = iter(loader)
        iter(loader)
        self.assertEqual(next(first).tolist(), [0, 1, 2])
        self.assertEqual(loader.state_dict()["position"], 3)

    def test_length_is_the_batches_of_an_epoch(self):
        for size, drop in ((3, False), (3, True), (5, False), (20, False)):
            loader = headrace.exact(Numbers(), size, drop_last=drop)
            self.assertEqual(len(loader), len(seen(loader)))

    def test_ranks_share_an_epoch_in_equal_parts(self):
        for size, drop in ((2, False), (3, False), (3, True), (4, True)):
            parts = [seen(headrace.exact(Numbers(11), size, shuffle=True, seed=3, rank=rank, ranks=2, drop_last=drop)) for rank in range(2)]
            self.assertEqual([len(batch) for batch in parts[0]], [len(batch) for batch in parts[1]])
            self.assertEqual(len(parts[0]), len(headrace.exact(Numbers(11), size, rank=0, ranks=2, drop_last=drop)))
            together = [index for pair in zip(*parts) for batch in pair for index in batch]
            alone = flat(headrace.exact(Numbers(11), 1, shuffle=True, seed=3))
            expected = alone[:11 // (2 * size) * 2 * size] if drop else alone
            self.assertEqual(together[:len(expected)], expected)
            self.assertEqual(set(together), set(expected))

    def test_ranks_of_torchrun_count_unless_ranks_are_given(self):
        with unittest.mock.patch.dict("os.environ", {"RANK": "1", "WORLD_SIZE": "2"}):
            self.assertEqual(seen(headrace.exact(Numbers(8), 2)), [[2, 3], [6, 7]])
            self.assertEqual(flat(headrace.exact(Numbers(4), 2, rank=0, ranks=1)), [0, 1, 2, 3])

    def test_set_epoch_moves_only_to_another_epoch(self):
        loader, plain = headrace.exact(Numbers(), 3, shuffle=True), headrace.exact(Numbers(), 3, shuffle=True)
        expected = [flat(plain) for _ in range(4)]
        for epoch in range(2):
            loader.set_epoch(epoch)
            self.assertEqual(flat(loader), expected[epoch])
        loader.set_epoch(3)
        self.assertEqual(flat(loader), expected[3])
        loader.set_epoch(2)
        loop = iter(loader)
        begun = next(loop).tolist()
        state = loader.state_dict()
        loader = headrace.exact(Numbers(), 3, shuffle=True)
        loader.load_state_dict(state)
        loader.set_epoch(2)  # as the Trainer of transformers does after a resume
        self.assertEqual(begun + flat(loader), expected[2])


@needs_torch
class Resume(unittest.TestCase):
    def test_workers_change_no_number(self):
        def digests(workers):
            loader = kills.make_loader(workers)
            return [kills.digest_of(batch) for _ in range(2) for batch in loader]

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "more workers than cores"
            expected = digests(0)
            for workers in (1, 8):
                self.assertEqual(digests(workers), expected)

    def test_killed_at_random_batches_it_sees_what_a_whole_run_sees(self):
        expected = kills.reference()
        self.assertEqual(len(expected), kills.STEPS)
        self.assertEqual(kills.killed_often(kills.plain, 60, random.Random(4), expected, [0]), (60, []))
        self.assertEqual(kills.killed_often(kills.plain, 4, random.Random(2), expected, [1, 2]), (4, []))

    def test_a_saved_end_of_an_epoch_loses_no_epoch(self):
        loader, whole = headrace.exact(Numbers(6), 3, shuffle=True), headrace.exact(Numbers(6), 3, shuffle=True)
        flat(whole)
        second = flat(whole)
        loop = iter(loader)
        next(loop), next(loop)
        inside = loader.state_dict()        # after the last batch, in the loop
        self.assertRaises(StopIteration, next, loop)
        behind = loader.state_dict()        # after the loop
        loader = headrace.exact(Numbers(6), 3, shuffle=True)
        loader.load_state_dict(inside)
        self.assertEqual([flat(loader), flat(loader)], [[], second])
        loader.load_state_dict(behind)
        self.assertEqual(flat(loader), second)

    def test_batch_size_and_ranks_may_change_in_mid_epoch(self):
        whole = flat(headrace.exact(Numbers(20), 4, shuffle=True))
        loader = headrace.exact(Numbers(20), 4, shuffle=True)
        loop = iter(loader)
        begun = next(loop).tolist() + next(loop).tolist()
        parts = []
        for rank in range(2):
            part = headrace.exact(Numbers(20), 3, shuffle=True, rank=rank, ranks=2)
            part.load_state_dict(loader.state_dict())
            parts.append(seen(part))
        self.assertEqual(begun + [index for pair in zip(*parts) for batch in pair for index in batch], whole)

    def test_transforms_with_generators_of_their_own_are_seeded_too(self):
        class Transform:
            def __init__(self, name):
                self.random = random.Random()
                setattr(self, name, self.random.seed)

        class Transformed(Numbers):
            def __init__(self, name):
                super().__init__()
                self.transform = Transform(name)

            def __getitem__(self, index):
                return self.transform.random.random()

        for name in ("set_random_state", "set_random_seed"):
            for wrap in (lambda data: data, lambda data: torch.utils.data.Subset(data, range(10)), lambda data: torch.utils.data.ConcatDataset([data])):
                whole = headrace.exact(wrap(Transformed(name)), 3, shuffle=True)
                expected, loop = seen(headrace.exact(wrap(Transformed(name)), 3, shuffle=True)), iter(whole)
                next(loop)
                resumed = headrace.exact(wrap(Transformed(name)), 3, shuffle=True)
                resumed.load_state_dict(whole.state_dict())
                self.assertEqual(seen(resumed), expected[1:])

    def test_numbers_of_albumentations_are_the_same_in_workers(self):
        expected = seen(headrace.exact(Augmented(), 3, shuffle=True))
        self.assertEqual(len({number for batch in expected for number in batch}), 10)
        self.assertEqual(seen(headrace.exact(Augmented(), 3, shuffle=True, num_workers=1)), expected)

    def test_a_transform_that_replaces_another_between_epochs_is_seeded(self):
        def second_epoch(state=None, **options):
            data = Augmented()
            loader = headrace.exact(data, 3, shuffle=True, **options)
            if state is None:
                flat(loader)
            else:
                loader.load_state_dict(state)
            state = loader.state_dict()
            data.transform = Augmentation()
            return state, seen(loader)

        state, expected = second_epoch()
        for options in ({}, {"num_workers": 1, "persistent_workers": False}):
            self.assertEqual(second_epoch(**options), (state, expected))
            self.assertEqual(second_epoch(state, **options), (state, expected))

    def test_the_callers_generators_stay_where_they_are(self):
        def drawn(read):
            torch.manual_seed(1), numpy.random.seed(1), random.seed(1)
            if read:
                flat_ = [kills.digest_of(batch) for batch in kills.make_loader(0)]
                self.assertEqual(len(flat_), 6)
            return torch.rand(1).item(), numpy.random.rand(), random.random()

        self.assertEqual(drawn(True), drawn(False))

    def test_ranks_draw_other_numbers_and_the_same_as_one_process(self):
        whole = headrace.exact(kills.Noisy(), 4, seed=11, shuffle=True)
        rows = torch.cat([batch for batch in whole])
        parts = [torch.cat(list(headrace.exact(kills.Noisy(), 2, seed=11, shuffle=True, rank=rank, ranks=2))) for rank in range(2)]
        together = torch.cat([torch.cat([a, b]) for a, b in zip(parts[0].split(2), parts[1].split(2))])
        self.assertTrue(torch.equal(together[:len(rows)], rows))


def of_lightning(epoch, batch, states, is_last=False):
    """The part of a checkpoint of Lightning that counts: (ready, started, processed, completed) of epochs and of the epoch's batches."""
    def progress(counts):
        return {kind: dict(zip(("ready", "started", "processed", "completed"), counts)) for kind in ("total", "current")}

    return {"loops": {"fit_loop": {"state_dict": {"combined_loader": states}, "epoch_loop.state_dict": {"_batches_that_stepped": 5}, "epoch_progress": progress(epoch),
                                   "epoch_loop.batch_progress": {**progress(batch), "is_last_batch": is_last}}}}


class Lightning(unittest.TestCase):
    def mended(self, *arguments, **more):
        from headrace._lightning import _Exactness
        checkpoint, callback = of_lightning(*arguments, **more), _Exactness()
        callback.on_load_checkpoint(None, None, checkpoint)
        loop = checkpoint["loops"]["fit_loop"]
        return (tuple(loop["epoch_progress"]["current"].values()), tuple(loop["epoch_loop.batch_progress"]["current"].values()),
                [state["epoch"] for state in loop["state_dict"]["combined_loader"]], callback._between)

    def test_an_epoch_that_is_over_counts_once_and_the_loader_begins_the_next(self):
        inside, over = [{"headrace": 1, "epoch": 1, "position": 8}], [{"headrace": 1, "epoch": 2, "next_batch": 0}]
        done, begun = (2, 2, 2, 2), (2, 2, 1, 1)
        for states in (inside, over):
            with self.subTest(states=states):
                self.assertEqual(self.mended((2, 2, 2, 1), (6, 6, 6, 6), states, is_last=True), (done, (0,) * 4, [2], True))   # on_train_epoch_end
                self.assertEqual(self.mended(begun, (6, 6, 6, 5), states, is_last=True), (done, (0,) * 4, [2], True))          # on_train_batch_end
                self.assertEqual(self.mended(begun, (6, 6, 6, 6), states, is_last=True), (begun, (6,) * 4, [2], False))        # on_validation_end
        self.assertEqual(self.mended((2, 1, 1, 1), (6, 6, 6, 6), inside, is_last=True), ((1,) * 4, (0,) * 4, [2], True))       # on_train_epoch_start
        self.assertEqual(self.mended(begun, (3, 3, 3, 2), inside), (begun, (3, 3, 3, 2), [1], False))                          # in mid-epoch
        self.assertEqual(self.mended(begun, (4, 3, 3, 3), inside), (begun, (3, 3, 3, 3), [1], False))                          # inside a step
        self.assertEqual(self.mended(begun, (1, 0, 0, 0), inside), (begun, (0,) * 4, [2], False))                              # inside the first step

    def test_a_checkpoint_without_our_loader_stays_as_it_is(self):
        for states in ([], [{"epoch": 1, "position": 3}]):
            self.assertEqual(self.mended((2, 2, 2, 1), (6, 6, 6, 6), states), ((2, 2, 2, 1), (6, 6, 6, 6), [1] * len(states), False))

    # tools/python-peer hides torchvision, which lightning imports, beside a torch for which torchvision was not made.
    @unittest.skipUnless(HAS_TORCH and importlib.util.find_spec("lightning"), "there is no lightning in this Python")
    @unittest.skipIf(sys.modules.get("torchvision", True) is None, "lightning needs a torchvision for this torch")
    def test_killed_at_random_batches_it_sees_what_a_whole_run_sees(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertEqual(kills.killed_often(kills.lightning, 40, random.Random(3), kills.reference(), [0]), (40, []))


class Augmentation:
    """Its generators are its own, as those of Albumentations: set_random_state takes generators, and in a worker process newer versions add
    torch's seed to the one that is given."""

    def __init__(self):
        self.random = random.Random()

    def set_random_state(self, random_generator, py_random):
        self.random = py_random

    def _get_effective_seed(self, seed):
        return seed if torch.utils.data.get_worker_info() is None else (seed + torch.initial_seed()) % (1 << 32)

    def set_random_seed(self, seed):
        self.random.seed(self._get_effective_seed(seed))


class Augmented(Numbers):
    def __init__(self):
        super().__init__()
        self.transform = Augmentation()

    def __getitem__(self, index):
        return self.transform.random.random()


class Raises(Numbers):
    def __getitem__(self, index):
        if index == 7:
            raise ZeroDivisionError("no such voxel")
        return index


class Odd(Numbers):
    def __getitem__(self, index):
        return {"none": None, "shape": torch.zeros(index % 2 + 1)}[self.kind] if index == 5 else torch.zeros(1)

    def __init__(self, kind):
        super().__init__()
        self.kind = kind


class Endless(Numbers if not HAS_TORCH else IterableDataset):
    def __iter__(self):
        return iter(range(3))


class Unsized:
    def __getitem__(self, index):
        return index


class Growing(Numbers):
    def __len__(self):
        self.length += 1
        return self.length


def state(**changes):
    return {**headrace.exact(Numbers()).state_dict(), **changes}


def two_loops():
    loader = headrace.exact(Numbers(), 2)
    first, second = iter(loader), iter(loader)
    next(first), next(second), next(first)


def moved_in_a_loop():
    loader = headrace.exact(Numbers(), 2)
    for _ in loader:
        loader.load_state_dict(state())


def too_few_for_the_ranks():
    with unittest.mock.patch.dict("os.environ", {"RANK": "1", "WORLD_SIZE": "4"}):
        flat(headrace.exact(Numbers(), 4, drop_last=True))


class Local(Numbers):
    def __init__(self):
        super().__init__()
        self.transform = lambda x: x


def mistakes():
    """(what the user writes, the exception, what it says, what to do next)."""
    exact = headrace.exact
    return [
        (lambda: exact(Endless(), 2), TypeError, "Endless is an IterableDataset, whose samples have no positions", "__getitem__ and __len__"),
        (lambda: exact(Unsized(), 2), TypeError, "Unsized has no length", "add __len__"),
        (lambda: exact(7, 2), TypeError, "int is no map-style dataset", "give an object with __getitem__ and __len__"),
        (lambda: exact("data/", 2), TypeError, "str is no map-style dataset", "give an object with __getitem__"),
        (lambda: exact({"a": 1}, 2), TypeError, "dict is no map-style dataset", "give an object with __getitem__"),
        (lambda: exact(Numbers, 2), TypeError, "Numbers is a class, not a dataset", "headrace.exact(Numbers(...))"),
        (lambda: exact(torch.utils.data.DataLoader(Numbers()), 2), TypeError, "the first argument is a DataLoader", "loader.dataset"),
        (lambda: exact([], 2), ValueError, "the dataset has no samples", "len(dataset) is 0"),
        (lambda: exact(Numbers(), 0), ValueError, "batch_size is 0", "give 1 or more"),
        (lambda: exact(Numbers(), "16"), TypeError, "batch_size is '16', a str", "write batch_size=16"),
        (lambda: exact(Numbers(), 2.0), TypeError, "batch_size is 2.0, a float", "write batch_size=2"),
        (lambda: exact(Numbers(), None), TypeError, "batch_size is None", "give a whole number"),
        (lambda: exact(Numbers(), 2, num_workers=-1), ValueError, "num_workers is -1", "give 0 or more"),
        (lambda: exact(Numbers(), 2, num_workers=None), TypeError, "num_workers is None", "give a whole number"),
        (lambda: exact(Numbers(), 2, shuffle=1), TypeError, "shuffle is 1, a int", "write shuffle=True or shuffle=False"),
        (lambda: exact(Numbers(), 2, seed=None), TypeError, "seed is None", "give a whole number"),
        (lambda: exact(Numbers(), 2, seed=-3), ValueError, "seed is -3", "give a number from 0 to"),
        (lambda: exact(Numbers(), 2, sampler=[1, 2]), ValueError, "sampler is no argument", "torch.utils.data.Subset"),
        (lambda: exact(Numbers(), 2, batch_sampler=[[1]]), ValueError, "batch_sampler is no argument", "give batch_size"),
        (lambda: exact(Numbers(), 2, generator=torch.Generator()), ValueError, "generator is no argument", "give seed="),
        (lambda: exact(Numbers(), 2, in_order=False), ValueError, "in_order is no argument", "leave it out"),
        (lambda: exact(Numbers(), batchsize=2), TypeError, "has no argument batchsize", "did you mean batch_size?"),
        (lambda: exact(Numbers(), 2, collate_fn=[]), TypeError, "collate_fn is [], not a function", "without parentheses"),
        (lambda: exact(Numbers(), 2, rank=1), ValueError, "rank is given without ranks", "give both"),
        (lambda: exact(Numbers(), 2, rank=2, ranks=2), ValueError, "rank is 2 of 2", "give 0 to 1"),
        (lambda: exact(Numbers(), 2, prefetch_factor=4), ValueError, "prefetch_factor is of worker processes", "num_workers=1 or more"),
        (lambda: exact(Numbers(3), 4, drop_last=True), ValueError, "no batch is left", "a smaller batch_size"),
        (too_few_for_the_ranks, ValueError, "no batch is left: the dataset has 10 samples, fewer than the 16 of a step", "a smaller batch_size"),
        (lambda: exact(Numbers()).load_state_dict(None), TypeError, "the state is None", "loader.state_dict() returned"),
        (lambda: exact(Numbers()).load_state_dict({"weight": 1}), ValueError, "not the state of a headrace loader: its keys are weight", "loader.state_dict() returned"),
        (lambda: exact(Numbers()).load_state_dict({"loader": state()}), ValueError, "not the state of a headrace loader", "load_state_dict(state['loader'])"),
        (lambda: exact(Numbers(9)).load_state_dict(state()), ValueError, "the dataset has 9 samples, the state is of one with 10", "the dataset of then"),
        (lambda: exact(Numbers(), seed=4).load_state_dict(state()), ValueError, "seed is 4, the state is of seed 0", "seed=0"),
        (lambda: exact(Numbers(), shuffle=True).load_state_dict(state()), ValueError, "shuffle is True, the state is of shuffle=False", "shuffle=False"),
        (lambda: exact(Numbers()).load_state_dict(state(headrace=9)), ValueError, "the state has version 9", "use the headrace that saved it"),
        (lambda: exact(Numbers()).set_epoch("1"), TypeError, "epoch is '1', a str", "write epoch=1"),
        (lambda: flat(exact(Growing(), 2)), ValueError, "samples when the loader was made and has", "make a new loader"),
        (lambda: flat(exact(Raises(), 2)), RuntimeError, "sample 7 of the dataset raised ZeroDivisionError: no such voxel", "dataset[7]"),
        (lambda: flat(exact(Raises(), 2, num_workers=1)), RuntimeError, "sample 7 of the dataset raised ZeroDivisionError: no such voxel", "dataset[7]"),
        (lambda: seen(exact(Odd("none"), 2)), RuntimeError, "sample 5 of the dataset is None", "return a sample for every index"),
        (lambda: seen(exact(Odd("shape"), 2)), RuntimeError, "samples 4, 5 make no batch: RuntimeError", "give collate_fn"),
        (lambda: seen(exact(Local(), 2, num_workers=1, multiprocessing_context="spawn")), TypeError, "can't be sent to worker processes", "without lambda"),
        (two_loops, RuntimeError, "this loop is over: another one began", "make two loaders"),
        (moved_in_a_loop, RuntimeError, "this loop is over", "before a loop"),
        (headrace.sample_seed, RuntimeError, "no sample is being read", "__getitem__"),
        (lambda: headrace.hf.attach(None, exact(Numbers())), TypeError, "NoneType is no transformers.Trainer", "give the trainer first"),
    ]


@needs_torch
class Mistakes(unittest.TestCase):
    def test_each_is_an_exception_that_says_what_where_and_next(self):
        self.assertGreaterEqual(len(mistakes()), 30)
        for number, (write, kind, what, following) in enumerate(mistakes()):
            with self.subTest(number=number, what=what), self.assertRaises(headrace.Error) as caught:
                write()
            error = caught.exception
            with self.subTest(number=number, what=what):
                self.assertIsInstance(error, kind)
                self.assertIn(what, error.what)
                self.assertTrue(error.where)
                self.assertIn(following, error.next)
                self.assertEqual(str(error).splitlines()[0], error.what)

    def test_the_exception_of_the_dataset_is_the_cause(self):
        for workers in (0, 1):
            with self.subTest(workers=workers), self.assertRaises(headrace.DataError) as caught:
                flat(headrace.exact(Raises(), 2, num_workers=workers))
            self.assertIsInstance(caught.exception.__cause__, ZeroDivisionError)
            self.assertEqual(caught.exception.where, "epoch 0, position 7")

    def test_a_worker_that_dies_is_told(self):
        class Dies(Numbers):
            def __getitem__(self, index):
                import os
                os._exit(1)

        with self.assertRaises(headrace.DataError) as caught:
            flat(headrace.exact(Dies(), 2, num_workers=1))
        self.assertIn("a worker process of the loader ended", caught.exception.what)


class Errors(unittest.TestCase):
    def test_they_cross_processes_and_read_as_three_lines(self):
        for kind, also in ((headrace.UsageError, ValueError), (headrace.KindError, TypeError), (headrace.MissingError, FileNotFoundError),
                           (headrace.PackageError, ImportError), (headrace.StateError, ValueError), (headrace.DataError, RuntimeError)):
            error = pickle.loads(pickle.dumps(kind("a is 0\nb too", "f(a=0)", "give 1")))
            self.assertIsInstance(error, also)
            self.assertEqual(str(error), "a is 0\n  b too\n  where    f(a=0)\n  next     give 1")
            self.assertEqual(error.text().splitlines()[0], kind.__name__ + "  a is 0")
            self.assertEqual(str(kind("a")), "a")

    def test_importing_brings_neither_torch_nor_numpy(self):
        code = "import sys, headrace, headrace.__main__, headrace.run; sys.exit(' '.join({'torch', 'numpy'} & set(sys.modules)))"
        found = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(Path(headrace.__file__).parents[1])}, capture_output=True, text=True)
        self.assertEqual(found.stderr.strip(), "")


if __name__ == "__main__":
    unittest.main()
