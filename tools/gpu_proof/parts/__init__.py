"""The parts of the proof. Each module has run(proof), which says what it finds by proof.row(): see proof.py.

ALL is the order in which they run. Limits are seconds. The comparison of steps, which has never enough, is last: it has what the others leave.
"""
from ..runner import WHOLE_SECONDS, Part

ALL = [
    Part("loads", 25, "Does it load"),
    Part("ceilings", 25, "Ceilings of the card"),
    Part("tests", 30, "Tests that need a GPU"),
    Part("compiling", 145, "The peers compile", beside=("parity", "life")),
    Part("parity", 75, "Parity with the CPU"),
    Part("life", 65, "A run's life"),
    Part("feed", 65, "The loader feeds the device"),
    Part("profile", 30, "Where a step's time goes"),
    Part("sanitizer", 45, "compute-sanitizer"),
    Part("steps", WHOLE_SECONDS, "A step beside Python"),
]


def chosen(names):
    """These parts, all of them where `names` is empty."""
    return [part for part in ALL if not names or part.name in names]
