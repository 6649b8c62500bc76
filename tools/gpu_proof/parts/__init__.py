"""The parts of the proof. Each module has run(proof), which says what it finds by proof.row(): see proof.py.

ALL is the order in which they run. Limits are seconds. The comparison of steps, which has never enough, is last: it has what the others leave.
"""
from ..runner import WHOLE_SECONDS, Part

ALL = [
    Part("loads", 15, "Does it load"),
    Part("ceilings", 18, "Ceilings of the card"),
    Part("tests", 15, "Tests that need a GPU"),
    Part("compiling", 200, "The peers compile", beside=("parity", "life")),
    Part("parity", 55, "Parity with the CPU"),
    Part("life", 70, "A run's life"),
    Part("graph", 75, "A step as a graph"),
    Part("feed", 60, "The loader feeds the device"),
    Part("profile", 55, "Where a step's time goes"),
    Part("python", 150, "headrace feeds a loop in Python", asked=True),
    Part("sanitizer", 130, "compute-sanitizer", asked=True),
    Part("steps", WHOLE_SECONDS, "A step beside Python"),
]


def chosen(names):
    """These parts; where `names` is empty all of them but those that have to be asked for."""
    return [part for part in ALL if part.name in names or not names and not part.asked]
