"""How long a thread could run and had no core, as the kernel counts it."""
from __future__ import annotations

import ctypes
import os
import threading

_local = threading.local()


class RunDelay:
    """Of the thread that makes it. Asked without letting go of the interpreter's lock, in about 1.5 µs."""

    def __init__(self) -> None:
        try:
            self.file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel that does not count
            self.file = -1
        self.text = ctypes.create_string_buffer(64)
        self.pread = ctypes.PyDLL(None).pread64
        self.pread.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
        self.pread.restype = ctypes.c_ssize_t

    def read(self) -> int:
        """Nanoseconds since the thread began; 0 where the kernel does not count them."""
        count = self.pread(self.file, self.text, 64, 0)
        return int(self.text.raw[:count].split()[1]) if count > 0 else 0


def of_this_thread() -> RunDelay:
    """Kept for the thread; made anew in a fork, whose thread is another."""
    if getattr(_local, "process", 0) != os.getpid():
        _local.process, _local.delay = os.getpid(), RunDelay()
    return _local.delay
