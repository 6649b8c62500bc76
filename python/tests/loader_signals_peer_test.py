"""headrace.Loader where a signal comes while the loop waits: Ctrl-C, and handlers that save the loader's state."""
import sys
import unittest
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import loader_peer_test as host
import headrace as mr


class Odd(BaseException):
    """What a signal handler raises: KeyboardInterrupt, SystemExit."""


class Library:
    """The library, with a signal at the end of the next call that gives a batch: Python hears it behind that call."""

    def __init__(self, loader):
        self._real, self.handler = loader._library, None
        loader._library = self

    def __getattr__(self, name):
        return getattr(self._real, name)

    def next(self, *arguments):
        code = self._real.next(*arguments)
        if code == 1 and self.handler is not None:
            handler, self.handler = self.handler, None
            handler()
        return code


class Signals(host.LoaderTest):
    """Ctrl-C and handlers while the loop waits for a batch."""

    def raises(self):
        raise Odd

    def numbers(self, loop):
        return [batch["n"].tolist() for batch in loop]

    def test_an_exception_loses_no_batch(self):
        whole = self.numbers(self.loader(shuffle=True, as_="numpy"))
        for had in range(7):
            loader = self.loader(shuffle=True, as_="numpy")
            library, loop = Library(loader), iter(loader)
            seen = [next(loop)["n"].tolist() for _ in range(had)]
            library.handler = self.raises
            self.assertRaises(Odd, next, loop)
            state = loader.state_dict()
            self.assertEqual((state["epoch"], state["next_batch"], loader.counters()["batches"], loader.counters()["samples"]), (0, had, had, 8 * had))
            other = self.loader(shuffle=True, as_="numpy")
            other.load_state_dict(state)
            self.assertEqual(seen + self.numbers(other), whole)
            if had % 2:
                loader.load_state_dict(state)
                loop = loader
            self.assertEqual(seen + self.numbers(loop), whole)

    def test_the_next_loop_is_a_whole_epoch(self):
        whole = self.loader(shuffle=True, as_="numpy")
        expected = [self.numbers(whole) for _ in range(2)]
        for had in (0, 2):
            loader = self.loader(shuffle=True, as_="numpy")
            library, loop = Library(loader), iter(loader)
            for _ in range(had):
                next(loop)
            library.handler = self.raises
            self.assertRaises(Odd, next, loop)
            self.assertEqual(self.numbers(loader), expected[had > 0])

    def test_a_handler_saves_the_place_of_the_loop(self):
        loader, states = self.loader(as_="numpy"), []
        library, loop = Library(loader), iter(loader)
        next(loop)
        library.handler = lambda: states.append(loader.state_dict())
        self.assertEqual(next(loop)["n"][0], 8)
        self.assertEqual((states[0]["next_batch"], loader.state_dict()["next_batch"]), (1, 2))

    def test_an_exception_while_arrays_are_made_loses_no_batch(self):
        loader, seen = self.loader(as_="numpy"), []
        loop, made = iter(loader), loader._arrays.made
        for number in range(7):
            loader._arrays.made = lambda batch, slot: (made(batch, slot), self.raises())
            self.assertRaises(Odd, next, loop)
            self.assertEqual((loader.state_dict()["next_batch"], loader.counters()["batches"]), (number, number))
            loader._arrays.made = made
            seen.append(next(loop)["n"].tolist())
        self.assertEqual(seen, self.numbers(self.loader(as_="numpy")))

    def test_a_handler_may_close_or_move_the_loader(self):
        first = self.loader(as_="numpy").state_dict()
        for when in ("behind the call", "while arrays are made"):
            for act, said in ((lambda loader: loader.close(), "closed"), (lambda loader: loader.load_state_dict(first), "another place")):
                loader = self.loader(as_="numpy")
                library, loop, made = Library(loader), iter(loader), loader._arrays.made
                next(loop)
                if when == "behind the call":
                    library.handler = lambda: act(loader)
                else:
                    loader._arrays.made = lambda batch, slot: (act(loader), made(batch, slot))[1]
                with self.subTest(when, said=said), self.assertRaisesRegex(mr.MomentError, said):
                    next(loop)
                loader._arrays.made = made
                if said != "closed":
                    self.assertEqual(len(self.numbers(loader)), 7)

    def test_a_handler_may_close_the_loader_before_a_batch_is_there(self):
        loader = self.loader(as_="numpy")
        library = Library(loader)
        library.next = lambda *arguments: loader.close() or 2  # NOT_YET
        with self.assertRaisesRegex(mr.MomentError, "closed"):
            next(iter(loader))

    def test_no_memory_is_left_behind(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error", mr.LoaderWarning)  # it would say that batches are kept
            loader = self.loader(as_="numpy")
            library = Library(loader)
            for _ in range(50):
                library.handler = self.raises
                self.assertRaises(Odd, next, iter(loader))
                next(iter(loader))
            self.assertEqual(len(self.numbers(loader)), 7)


if __name__ == "__main__":
    unittest.main()
