"""Measures how long a thread was ready to run but had no core, as the kernel counts it."""
from __future__ import annotations

import ctypes
import os
import threading

_local = threading.local()


class RunDelay:
    """Belongs to the thread that makes it. A reading takes about 1.5 µs and does not release the interpreter's lock."""

    def __init__(self) -> None:
        try:
            self.file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel that does not count these times
            self.file = -1
        self.text = ctypes.create_string_buffer(64)
        self.pread = ctypes.PyDLL(None).pread64
        self.pread.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
        self.pread.restype = ctypes.c_ssize_t

    def read(self) -> int:
        """Nanoseconds since the thread began; 0 if the kernel does not count them."""
        count = self.pread(self.file, self.text, 64, 0)
        return int(self.text.raw[:count].split()[1]) if count > 0 else 0


def of_this_thread() -> RunDelay:
    """The object of this thread. It is made again in a fork, which has another thread."""
    if getattr(_local, "process", 0) != os.getpid():
        _local.process, _local.delay = os.getpid(), RunDelay()
    return _local.delay
