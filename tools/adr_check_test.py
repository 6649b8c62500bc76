"""Tests of tools/adr_check.py: a record that holds, and stale checks planted in it one by one."""
import tempfile
import unittest
from pathlib import Path

import adr_check

RECORD = """# 0001 Doors

## Context
c

## How to check it still holds
`millrace_base_test --gtest_filter=Door*`, `Door.Opens` and `Door*` walk through; `--off=lock` in `tests/doors`; see `tools/tidy.py`.

```sh
# nothing calls it
! grep -rn "window" src
grep -q Door \\
  src/millrace/base/door_test.cpp
```
"""
GOOD = {
    "docs/decisions/0001-doors.md": RECORD,
    "src/millrace/base/door_test.cpp": "TEST(Door, Opens) {\n}\n",
    "tests/doors/CMakeLists.txt": "mr_test(doors_test unit)\n",
    "tests/cli/golden/list_switches.txt": "lock   bits   it is locked\n",
    "tools/tidy.py": "x\n",
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

    def expect(self, old, new, words):
        self.assertIn(old, RECORD)
        (self.root / "docs/decisions/0001-doors.md").write_text(RECORD.replace(old, new))
        found, _ = adr_check.check(self.root)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0][1])

    def test_a_record_that_holds(self):
        self.assertEqual(adr_check.check(self.root), ([], 8))

    def test_a_command_that_fails(self):
        self.expect('grep -rn "window"', 'grep -rn "Opens"', "no longer holds")

    def test_a_command_that_prints(self):
        self.expect("grep -q Door", "grep Door", "no longer holds")

    def test_a_program_that_is_gone(self):
        self.expect("millrace_base_test", "millrace_door_test", "no test program")

    def test_a_filter_that_takes_nothing(self):
        self.expect("=Door*", "=Gate*", "no test of that name")

    def test_a_test_that_is_gone(self):
        self.expect("Door.Opens", "Door.Shuts", "no test of that name")

    def test_a_switch_that_is_gone(self):
        self.expect("--off=lock", "--off=bolt", "--switches")

    def test_a_path_that_is_gone(self):
        self.expect("tests/doors", "tests/gates", "no such path")


if __name__ == "__main__":
    unittest.main()
