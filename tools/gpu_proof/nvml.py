"""How busy a GPU is, by the driver's own library (NVML), ten times a second beside what is measured."""
import ctypes
import threading

INTERVAL = 0.1  # seconds


class Utilisation(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Busy:
    """with Busy() as busy: ...; then busy.values, percent. No values where there is no NVML; `why` says so."""

    def __init__(self, index=0):
        self.values, self.why, self.index = [], "", index
        self.ended = threading.Event()
        self.thread = None

    def __enter__(self):
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            self.why = "no NVML (libnvidia-ml.so.1)"
            return self
        device = ctypes.c_void_p()
        if library.nvmlInit_v2() != 0 or library.nvmlDeviceGetHandleByIndex_v2(self.index, ctypes.byref(device)) != 0:
            self.why = "NVML gives no GPU"
            return self
        self.thread = threading.Thread(target=self.watch, args=(library, device), daemon=True)
        self.thread.start()
        return self

    def watch(self, library, device):
        while not self.ended.wait(INTERVAL):
            found = Utilisation()
            if library.nvmlDeviceGetUtilizationRates(device, ctypes.byref(found)) == 0:
                self.values.append(found.gpu)

    def __exit__(self, *_):
        self.ended.set()
        if self.thread:
            self.thread.join()
