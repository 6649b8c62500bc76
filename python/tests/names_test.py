"""A type checker sees the names that the package has, each of the module that has it."""
import ast
import contextlib
import io
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import headrace
from headrace.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("HEADRACE_LIBRARY", str(Path(os.environ.get("MILLRACE_BUILD", ROOT / "build/release")) / "libheadrace.so"))


class Names(unittest.TestCase):
    def test_a_type_checker_sees_what_a_program_gets(self):
        seen = {}
        for node in ast.walk(ast.parse(Path(headrace.__file__).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headrace"):
                seen.update({name.asname: node.module.removeprefix("headrace").lstrip(".") for name in node.names})
        modules = {name: "" for name in ("errors", "hf", "lightning")}
        self.assertEqual(seen, {**headrace._PLACES, **modules})

    def test_the_version_is_the_programs(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            self.assertEqual(main(["--version"]), 0)
        self.assertIn(f'"{headrace.__version__}"', (ROOT / "src/millrace/base/version.h").read_text())
        self.assertEqual(said.getvalue(), f"headrace {headrace.__version__}\n")


if __name__ == "__main__":
    unittest.main()
