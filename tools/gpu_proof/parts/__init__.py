"""The parts of the proof. Each module has run(proof), which says what it finds by proof.row(): see proof.py.

ALL is the order in which they run. Limits are seconds; those that do not run beside another add up to less than runner.WHOLE_SECONDS.
"""
import dataclasses

from ..runner import WHOLE_SECONDS, Part

ALL = [
    Part("loads", 25, "Does it load"),
    Part("ceilings", 25, "Ceilings of the card"),
    Part("tests", 30, "Tests that need a GPU"),
    Part("compiling", 145, "The peers compile", beside=("parity", "life")),
    Part("parity", 75, "Parity with the CPU"),
    Part("life", 65, "A run's life"),
    Part("steps", 165, "A step beside Python"),
    Part("feed", 65, "The loader feeds the device"),
    Part("profile", 30, "Where a step's time goes"),
    Part("sanitizer", 35, "compute-sanitizer"),
]


def chosen(names):
    """These parts, all of them where `names` is empty. What the others leave of the time is for the comparison of steps, which has never enough."""
    parts = [part for part in ALL if not names or part.name in names]
    spare = WHOLE_SECONDS - sum(part.limit for part in parts if not part.beside)
    return [dataclasses.replace(part, limit=part.limit + spare) if part.name == "steps" else part for part in parts]
