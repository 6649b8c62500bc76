"""A type checker sees the names that the package has, each of the module that has it."""
import ast
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import headrace


class Names(unittest.TestCase):
    def test_a_type_checker_sees_what_a_program_gets(self):
        seen = {}
        for node in ast.walk(ast.parse(Path(headrace.__file__).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headrace"):
                seen.update({name.asname: node.module.removeprefix("headrace").lstrip(".") for name in node.names})
        modules = {name: "" for name in ("errors", "hf", "lightning")}
        self.assertEqual(seen, {**headrace._PLACES, **modules})


if __name__ == "__main__":
    unittest.main()
