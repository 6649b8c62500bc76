"""The parts of the proof. Each module has run(proof), which says what it finds by proof.row(): see proof.py.

ALL is the order in which they run. Limits are seconds. The comparison of steps, which has never enough, is last: it has what the others leave.
"""
from ..runner import WHOLE_SECONDS, Part

ALL = [
    Part("loads", 20, "Does it load"),
    Part("ceilings", 20, "Ceilings of the card"),
    Part("tests", 20, "Tests that need a GPU"),
    Part("compiling", 145, "The peers compile", beside=("parity", "life")),
    Part("parity", 55, "Parity with the CPU"),
    Part("life", 75, "A run's life"),
    Part("feed", 65, "The loader feeds the device"),
    Part("profile", 55, "Where a step's time goes"),
    Part("sanitizer", 55, "compute-sanitizer"),
    Part("steps", WHOLE_SECONDS, "A step beside Python"),
]


def chosen(names):
    """These parts, all of them where `names` is empty."""
    return [part for part in ALL if not names or part.name in names]
