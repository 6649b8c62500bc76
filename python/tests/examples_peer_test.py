"""The scripts and the notebook of examples/python: they run, at most three lines of a script change, and it gains what docs/python.md says."""
import ast
import contextlib
import difflib
import importlib.util
import io
import json
import os
import runpy
import sys
import tempfile
import unittest
import unittest.mock
import warnings
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("MILLRACE_BUILD") or PACKAGE.parent / "build/release").resolve()
EXAMPLES = PACKAGE.parent / "examples/python"
SCRIPTS = ("cosmology", "neuroscience", "medical", "language", "quality")  # one for each guide
os.environ.setdefault("HEADRACE_LIBRARY", str(BUILD / "libheadrace.so"))
sys.path.insert(0, str(PACKAGE))


def has(*packages):
    return all(importlib.util.find_spec(package) for package in packages)


def lines(when, name):
    return (EXAMPLES / when / f"{name}.py").read_text().splitlines()


class Scripts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not has("torch", "h5py", "nibabel", "PIL"):
            raise unittest.SkipTest("the peers are not installed")
        cls._folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls._folder.cleanup)
        cls.data = Path(cls._folder.name) / "data"
        runpy.run_path(str(EXAMPLES / "data.py"))["write"](cls.data, large=False)

    def run_script(self, when, name, *words):
        """What it prints."""
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings(), \
                unittest.mock.patch.object(sys, "argv", [name, str(self.data), *words]):
            warnings.simplefilter("ignore")
            runpy.run_path(str(EXAMPLES / when / f"{name}.py"), run_name="__main__")
        return said.getvalue().strip()

    def test_at_most_three_lines_are_new(self):
        for name in SCRIPTS:
            new = [line for line in difflib.ndiff(lines("before", name), lines("after", name)) if line.startswith("+ ")]
            with self.subTest(name):
                self.assertLessEqual(len(new), 3)
                self.assertTrue(any("headrace." in line for line in new))
                self.assertLessEqual(max(map(len, lines("after", name))), 150)

    def test_the_same_data_come_out(self):
        for name in ("neuroscience", "medical", "quality"):
            if name == "quality" and not has("torchvision"):
                continue
            with self.subTest(name):
                self.assertEqual(self.run_script("after", name), self.run_script("before", name))

    def resumed(self, when, name, saved, whole, first, rest):
        """What a run in one piece prints, and one that was cut."""
        said = []
        for parts in ([whole], [first, rest]):
            for words in parts:
                last = self.run_script(when, name, *words)
            said.append(last)
            target = self.data / saved
            for file in sorted(target.rglob("*")) if target.is_dir() else ():
                file.unlink()
            target.rmdir() if target.is_dir() else target.unlink()
        return said

    def test_a_resume_is_exact_with_the_change_and_was_not_without(self):
        for name, saved, words in (("cosmology", "last.pt", (["14"], ["4"], ["14"])), ("language", "saved", (["12", "0"], ["7", "0"], ["12", "1"]))):
            if name == "language" and not has("accelerate"):
                continue
            with self.subTest(name):
                whole, cut = self.resumed("after", name, saved, *words)
                self.assertEqual(cut, whole)
                whole, cut = self.resumed("before", name, saved, *words)
                self.assertNotEqual(cut, whole)


class Names(unittest.TestCase):
    def test_no_script_has_the_name_of_a_module_that_it_imports(self):
        for script in sorted((PACKAGE.parent / "examples").rglob("*.py")):
            nodes = list(ast.walk(ast.parse(script.read_text())))
            imported = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
            imported |= {node.module.split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
            with self.subTest(str(script)):
                self.assertNotIn(script.stem, imported, "it would import itself: its own folder comes first on sys.path")


class Notebook(unittest.TestCase):
    def test_each_cell_runs_and_its_value_can_be_shown(self):
        program = BUILD / "millrace"
        if not has("torch") or not program.exists():
            self.skipTest("torch or the program is not there")
        notebook = json.loads((EXAMPLES / "headrace.ipynb").read_text())
        cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
        self.assertFalse(any(cell.get("outputs") for cell in notebook["cells"]), "outputs are not kept in the repository")
        self.addCleanup(os.chdir, os.getcwd())
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chdir(folder.name)
        names, shown = {"__name__": "__main__"}, []
        with unittest.mock.patch.dict(os.environ, {"MILLRACE": str(program)}), contextlib.redirect_stdout(io.StringIO()) as said:
            for number, text in enumerate(cells):
                tree = ast.parse(text, f"cell {number}")
                last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
                exec(compile(tree, f"cell {number}", "exec"), names)
                value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names) if last else None
                shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
        self.assertIn("lerning_rate", said.getvalue())
        self.assertTrue(any("language_model" in page and "done: max_steps" in page for page in shown), shown)


if __name__ == "__main__":
    unittest.main()
