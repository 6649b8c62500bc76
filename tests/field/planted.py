"""Faults planted in copies of sound data: each is told before the first step, with its file, and sound data are told nothing of the kind."""
import re
from typing import Callable, NamedTuple

from field import FieldTest


class Fault(NamedTuple):
    name: str
    plant: Callable  # changes a sound copy; what it takes is its test's
    file: str        # that must be named
    words: str       # a pattern of what must be said


class PlantedTest(FieldTest):
    def check_told(self, said, faults):
        """Each of the faults has a line of its own, with its file."""
        for fault in faults:
            with self.subTest(fault=fault.name):
                lines = [line for line in said.splitlines() if re.search(fault.words, line) and fault.file in line]
                self.assertEqual(len(lines), 1, f"{fault.words!r} and {fault.file!r} in\n{said}")

    def check_refused(self, said, faults):
        """Each of the faults is in the error, which names its file."""
        self.assertRegex(said, "(Data|Config)Error")
        for fault in faults:
            with self.subTest(fault=fault.name):
                self.assertRegex(said, fault.words)
                self.assertIn(fault.file, said)

    def check_sound(self, said, faults):
        for fault in faults:
            with self.subTest(fault=fault.name):
                self.assertNotRegex(said, fault.words)
