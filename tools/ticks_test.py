"""Tests of tools/ticks.py: a table that is true, false ticks planted in it one by one, and the tables of this tree."""
import tempfile
import unittest
from pathlib import Path

import ticks

ROOT = Path(ticks.__file__).resolve().parent.parent
HEAD = "# Recipe\n\n| its advice | here | seen by |\n|---|---|---|\n"
TABLE = HEAD + ("| cache it | kept | `Cache.Keeps`, `data.cache`, `--off=sample-cache` |\n"
                "| try sizes | a command | `tests/cli/golden`, `millrace max-batch`, `millrace bench step`, `bench/step` |\n"
                "| two GPUs | kept | `Cache.OnTwo`; not yet seen |\n"
                "| four GPUs | not written | not here |\n"
                "\n| promise | shown by |\n|---|---|\n"
                "| what was kept is the same without a GPU | `Cache.IsTheSame` |\n")
GOOD = {
    "recipes/toy/README.md": TABLE,
    "src/millrace/data/cache_test.cpp": "TEST_F(Cache, Keeps) {\n}\nTEST(Cache, IsTheSame) {\n}\nTEST(Cache, OnTwo) {\n}\n",
    "docs/reference/config.md": "| `data.cache` | word |\n",
    "tests/cli/golden/help.txt": "  max-batch RECIPE        the largest\n  bench step|loader WHAT  time it\n",
    "tests/cli/golden/list_switches.txt": "name equality what\nsample_cache bits kept\n",
    "bench/step/README.md": "x\n",
}


class Planted(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        for name, text in GOOD.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def expect(self, old, new, words, ran=None):
        path = self.root / "recipes/toy/README.md"
        self.assertIn(old, TABLE)
        path.write_text(TABLE.replace(old, new))
        found = ticks.problems(self.root, ran)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0][2])

    def test_a_true_table(self):
        self.assertEqual(ticks.problems(self.root, {"Cache.Keeps", "Cache.IsTheSame", "Cache.OnTwo"}), [])

    def test_a_test_that_does_not_exist(self):
        self.expect("Cache.Keeps", "Cache.Keps", "no test of that name")

    def test_a_test_that_did_not_run(self):
        self.expect("cache it", "cache", "did not run", {"Cache.IsTheSame", "Cache.OnTwo"})

    def test_a_key_that_does_not_exist(self):
        self.expect("`data.cache`", "`data.cash`", "no key")

    def test_a_command_that_does_not_exist(self):
        self.expect("max-batch", "most-batch", "no command")
        self.expect("bench step", "bench stop", "no command")

    def test_a_switch_that_does_not_exist(self):
        self.expect("--off=sample-cache", "--off=sample", "--switches")

    def test_a_path_that_does_not_exist(self):
        self.expect("`bench/step`", "`bench/stop`", "no such path")

    def test_a_word_that_names_nothing(self):
        self.expect("`bench/step`", "`always`", "neither")

    def test_a_row_without_a_tick(self):
        self.expect("`Cache.Keeps`, `data.cache`, `--off=sample-cache`", "always", "nothing shows it")

    def test_a_row_without_a_test(self):
        self.expect("`Cache.Keeps`, `data.cache`, `--off=sample-cache`", "`data.cache`, `--off=sample-cache`, `bench/step`", "nothing shows it")

    def test_what_is_not_written_is_not_just_unseen(self):
        self.expect("`Cache.OnTwo`; not yet seen", "not yet seen", "nothing shows it")
        self.expect("| not here |", "| not yet seen |", "nothing shows it")
        self.expect("| not here |", "| not here; not yet seen |", "can't be")

    def test_a_gpu_nobody_has_seen(self):
        self.expect("`Cache.OnTwo`; not yet seen", "`Cache.OnTwo`", "not yet seen")

    def test_a_part_of_the_proof(self):
        page = self.root / "docs/gpu.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("## A run's life\nnot yet\n")
        self.expect("; not yet seen", "; not yet seen, `gpu-proof life`", "no card")
        self.expect("; not yet seen", "; not yet seen, `gpu-proof lives`", "no part")
        page.write_text("## A run's life\nwords\n\n### Card A, driver 1\n1 ok\n")
        (self.root / "recipes/toy/README.md").write_text(TABLE.replace("`Cache.OnTwo`; not yet seen", "`gpu-proof life`"))
        self.assertEqual(ticks.problems(self.root), [])

    def test_a_promise_that_nothing_shows(self):
        self.expect("`Cache.IsTheSame`", "`Cache.IsSame`", "no test of that name")
        self.expect("`Cache.IsTheSame`", "the code", "nothing shows it")
        self.expect("without a GPU", "on a GPU", "not yet seen")
        self.expect("| `Cache.IsTheSame` |", "| here | `Cache.IsTheSame` |", "nothing shows it")

    def test_a_readme_without_a_table(self):
        self.expect(HEAD, "# Recipe\n", "no guide table")


class ThisTree(unittest.TestCase):
    def test_every_tick_names_something_that_exists(self):
        self.assertEqual(ticks.problems(ROOT), [])


if __name__ == "__main__":
    unittest.main()
