"""Detects whether the process holds more and more memory."""
from __future__ import annotations

EVERY = 1.0          # seconds between two samples
MOST = 256           # number of samples that are kept
LEAST = 32           # least number of samples for a statement
LEAST_BYTES = 100 << 20
LEAST_PART = 0.1     # least growth, as a share of the memory that the process held
PARTS = 8            # number of parts of the second half of the run; memory must have grown in each of them


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class Memory:
    """Evenly spaced samples: every second at first, then every two seconds..."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, int]] = []  # step, bytes
        self.stride = self.left = 1

    def see(self, step: int, held: int) -> None:
        self.left -= 1
        if self.left:
            return
        self.samples.append((step, held))
        if len(self.samples) >= MOST:
            del self.samples[1::2]
            self.stride *= 2
        self.left = self.stride

    def rising(self) -> str:
        """The text for the rule memory_growing; "" if memory does not grow."""
        later = self.samples[len(self.samples) // 2:]
        if len(self.samples) < LEAST:
            return ""
        marks = [later[part * (len(later) - 1) // PARTS] for part in range(PARTS + 1)]
        (began, before), (_, now) = marks[0], marks[-1]
        if now - before < max(LEAST_BYTES, LEAST_PART * before) or any(held <= earlier for (_, earlier), (_, held) in zip(marks, marks[1:])):
            return ""
        return f"the process holds more and more memory: {before / 1e9:.3g} GB at step {began:,}, {now / 1e9:.3g} GB now"
