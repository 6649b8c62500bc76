"""The workloads of compare_files.py: their files, their description for our side, and two Python peers each.

documented   a map-style data set as a library's documentation shows it, with PyTorch's DataLoader and its default collate
best         the best Python we know how to write for it: whole batches made by threads of one process, a few ahead
"""

import collections
import concurrent.futures
import gzip
import json
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

try:
    import h5py
except ImportError:
    h5py = None
try:
    from isal import igzip, isal_zlib
except ImportError:
    igzip = isal_zlib = None
try:
    import spdl.io
except ImportError:
    spdl = None

from PIL import Image

THREADS = os.cpu_count() or 2
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def ahead(make, items, threads=THREADS, depth=None):
    """Calls make(item) in threads, and yields the results in order, a few ahead."""
    depth = depth or 2 * threads
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        waiting = collections.deque()
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def shuffled_batches(count, batch_size):
    order = np.random.permutation(count)
    return [order[i : i + batch_size] for i in range(0, count, batch_size)]


class Workload:
    """`made` writes the files once; `description` is what our side reads; `fixed` the same without randomness, for the digest."""

    name = ""
    batch_size = 4
    workers = (0, 1, 2, 4)

    def __init__(self, folder, scale):
        self.folder, self.scale = folder, scale

    def count(self, full):
        return max(2 * self.batch_size, int(full * self.scale))

    def path(self, name):
        return os.path.join(self.folder, name)

    def describe(self):
        """name -> description."""
        return {self.name: self.description, self.name + "-fixed": {**self.description, "data": {**self.description["data"], **self.fixed}}}

    fixed = {}

    collate = staticmethod(torch.utils.data.default_collate)

    @property
    def rows(self):
        """Samples of a batch of the peers."""
        return self.batch_size

    def documented(self, workers, fixed=False, loader=DataLoader):
        return loader(
            self.dataset(fixed),
            batch_size=self.rows,
            shuffle=True,
            num_workers=workers,
            collate_fn=self.collate,
            persistent_workers=workers > 0,
        )


class Hdf5(Workload):
    """Pairs of 64^3 floats, gzip 4 and shuffle, one chunk a sample."""

    name, batch_size, bars = "hdf5", 4, {"documented": 3.5, "best": 2.0}
    needs = ["h5py", "isal"]

    def make(self):
        self.n = self.count(192)
        file = self.path("pairs.h5")
        if not os.path.exists(file):
            random = np.random.default_rng(0)
            with h5py.File(file + ".part", "w") as out:
                for name in ("x", "y"):
                    data = out.create_dataset(
                        name, (self.n, 64, 64, 64), "f4", chunks=(1, 64, 64, 64), compression="gzip", compression_opts=4, shuffle=True
                    )
                    for i in range(self.n):  # smooth and noisy: packs about 2 : 1, as measured fields do
                        smooth = np.add.outer(np.add.outer(np.arange(64), np.arange(64)), np.arange(64)) * 0.01
                        data[i] = np.round(smooth + random.standard_normal((64, 64, 64)), 2)
            os.rename(file + ".part", file)
        self.file = file
        data = {"kind": "hdf5", "files": ["pairs.h5"], "datasets": {"x": "/x", "y": "/y"}}
        self.description = {"data": data, "batch_size": self.batch_size}

    def dataset(self, fixed):
        path = self.file

        class Pairs(Dataset):
            def __init__(self):
                with h5py.File(path, "r") as file:
                    self.n = len(file["x"])
                self.file = None

            def __len__(self):
                return self.n

            def __getitem__(self, index):
                if self.file is None:  # in the worker, as h5py's documentation asks for
                    self.file = h5py.File(path, "r")
                return torch.from_numpy(self.file["x"][index]), torch.from_numpy(self.file["y"][index])

        return Pairs()

    def best(self, fixed=False):
        if not hasattr(self, "table"):
            with h5py.File(self.file, "r") as file:
                self.table = {
                    name: [file[name].id.get_chunk_info_by_coord((i, 0, 0, 0)) for i in range(self.n)] for name in ("x", "y")
                }
            self.table = {name: [(c.byte_offset, c.size) for c in chunks] for name, chunks in self.table.items()}
            self.descriptor = os.open(self.file, os.O_RDONLY)

        def make(indices):
            batch = []
            for name in ("x", "y"):
                out = np.empty((len(indices), 4, 64 * 64 * 64), dtype=np.uint8)
                rows = np.empty((len(indices), 64, 64, 64), dtype=np.float32)
                for row, index in enumerate(indices):
                    offset, size = self.table[name][index]
                    plain = isal_zlib.decompress(os.pread(self.descriptor, size, offset))
                    planes = np.frombuffer(plain, dtype=np.uint8).reshape(4, -1)
                    rows[row].reshape(-1).view(np.uint8).reshape(-1, 4)[:] = planes.T
                batch.append(torch.from_numpy(rows))
                del out
            return tuple(batch)

        return lambda: ahead(make, shuffled_batches(self.n, self.batch_size))


class Nifti(Workload):
    """.nii.gz of int16 128^3, one random 64^3 patch per decode."""

    name, batch_size, bars = "nifti", 4, {"documented": 6.0, "best": 2.5}
    needs = ["isal"]
    fixed = {"random": False}
    cached = False

    def make(self):
        self.n = self.count(64)
        names = [f"v{i:04}.nii.gz" for i in range(self.n)]
        random = np.random.default_rng(1)
        header = np.zeros(352, dtype=np.uint8)
        header[:4] = np.frombuffer(np.int32(348).tobytes(), np.uint8)
        header[40:56] = np.frombuffer(np.array([3, 128, 128, 128, 1, 1, 1, 1], np.int16).tobytes(), np.uint8)
        header[70:74] = np.frombuffer(np.array([4, 16], np.int16).tobytes(), np.uint8)
        header[76:108] = np.frombuffer(np.ones(8, np.float32).tobytes(), np.uint8)
        header[108:112] = np.frombuffer(np.float32(352).tobytes(), np.uint8)
        header[344:348] = np.frombuffer(b"n+1\0", np.uint8)
        for name in names:
            if os.path.exists(self.path(name)):
                continue
            volume = (random.standard_normal((128, 128, 128)) * 60 + 400).astype(np.int16)
            volume[random.random((128, 128, 128)) < 0.5] = 0
            with open(self.path(name) + ".part", "wb") as out:
                out.write(gzip.compress(header.tobytes() + volume.tobytes(), 6))
            os.rename(self.path(name) + ".part", self.path(name))
        self.files = [self.path(name) for name in names]
        self.description = {"data": {"kind": "nifti", "files": names, "crop": [64, 64, 64]}, "batch_size": self.batch_size}
        if self.cached:
            self.description["cache"] = "ram"
            self.description["cache_bytes"] = 1 << 33

    @staticmethod
    def place(fixed):
        return (32, 32, 32) if fixed else tuple(np.random.randint(0, 65, 3))

    def dataset(self, fixed):
        import nibabel

        files, place, cached = self.files, self.place, self.cached

        class Patches(Dataset):
            def __init__(self):
                self.kept = {}

            def __len__(self):
                return len(files)

            def __getitem__(self, index):
                volume = self.kept.get(index)
                if volume is None:
                    volume = np.asanyarray(nibabel.load(files[index]).dataobj)
                    if cached:
                        self.kept[index] = volume
                z, y, x = place(fixed)
                # nibabel's axes are x, y, z: the block is the same one, in the order of the file.
                return torch.from_numpy(np.ascontiguousarray(volume.T[z : z + 64, y : y + 64, x : x + 64]))

        return Patches()

    def best(self, fixed=False):
        kept = {}

        def volume_of(index):
            volume = kept.get(index)
            if volume is None:
                with open(self.files[index], "rb") as file:
                    plain = igzip.decompress(file.read())
                volume = np.frombuffer(plain, dtype=np.int16, offset=352).reshape(128, 128, 128)
                if self.cached:
                    kept[index] = volume
            return volume

        def make(indices):
            batch = np.empty((len(indices), 64, 64, 64), dtype=np.int16)
            for row, index in enumerate(indices):
                z, y, x = self.place(fixed)
                batch[row] = volume_of(index)[z : z + 64, y : y + 64, x : x + 64]
            return (torch.from_numpy(batch),)

        if self.cached:  # only copies, which threads would not make faster
            return lambda: (make(indices) for indices in shuffled_batches(self.n, self.batch_size))
        return lambda: ahead(make, shuffled_batches(self.n, self.batch_size))


class NiftiCached(Nifti):
    """The same volumes from a cache."""

    name, bars, cached = "nifti-cached", {"documented": 9.0, "best": 1.0}, True


class Jpeg(Workload):
    """JPEG 500 x 375: random crop 224, flip, normalise."""

    name, batch_size, bars = "jpeg", 16, {"documented": 3.0, "best": 2.0}
    fixed = {"random": False, "flip": False, "normalise": False}
    needs = []

    def make(self):
        self.n = self.count(512)
        names = [f"i{i:04}.jpg" for i in range(self.n)]
        random = np.random.default_rng(2)
        for name in names:
            if os.path.exists(self.path(name)):
                continue
            coarse = Image.fromarray(random.integers(0, 256, (24, 32, 3), dtype=np.uint8)).resize((500, 375), Image.BICUBIC)
            pixels = np.asarray(coarse, dtype=np.int16) + random.integers(-12, 13, (375, 500, 3))
            Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(self.path(name), quality=85)
        self.files = [self.path(name) for name in names]
        data = {"kind": "images", "files": names, "crop": [224, 224], "flip": True, "normalise": True}
        self.description = {"data": data, "batch_size": self.batch_size}

    @staticmethod
    def crop(pixels, fixed):
        height, width = pixels.shape[:2]
        if fixed:
            top, left = (height - 224) // 2, (width - 224) // 2
            return np.ascontiguousarray(pixels[top : top + 224, left : left + 224])
        top, left = np.random.randint(0, height - 223), np.random.randint(0, width - 223)
        pixels = pixels[top : top + 224, left : left + 224]
        return pixels[:, ::-1] if np.random.random() < 0.5 else pixels

    def dataset(self, fixed):
        files, crop = self.files, self.crop

        class Pictures(Dataset):
            def __len__(self):
                return len(files)

            def __getitem__(self, index):
                with Image.open(files[index]) as image:
                    pixels = crop(np.asarray(image.convert("RGB")), fixed)
                if fixed:
                    return torch.from_numpy(pixels)
                scaled = (pixels.astype(np.float32) / 255 - MEAN) / DEVIATION
                return torch.from_numpy(np.ascontiguousarray(scaled.transpose(2, 0, 1)))

        return Pictures()

    @staticmethod
    def normalised(batch):
        """A u8 batch [n, h, w, 3] as normalised f32, as fast as NumPy can: by one table for each channel."""
        tables = [((np.arange(256, dtype=np.float32) / 255 - MEAN[c]) / DEVIATION[c]).astype(np.float32) for c in range(3)]
        out = np.empty((len(batch), 3, 224, 224), dtype=np.float32)
        for channel in range(3):
            np.take(tables[channel], batch[..., channel], out=out[:, channel])
        return torch.from_numpy(out)

    def best(self, fixed=False):
        def pillow(indices):
            batch = np.empty((len(indices), 224, 224, 3), dtype=np.uint8)
            for row, index in enumerate(indices):
                with Image.open(self.files[index]) as image:
                    image.draft("RGB", None)
                    batch[row] = self.crop(np.asarray(image), fixed)
            return (torch.from_numpy(batch) if fixed else self.normalised(batch),)

        return lambda: ahead(pillow, shuffled_batches(self.n, self.batch_size))

    def others(self):
        """SPDL decodes by FFmpeg's threads, whose bytes differ from libjpeg's in the last bit: timed, not digested."""
        if spdl is None:
            return {}
        try:
            spdl.io.load_image_batch([self.files[0]], width=None, height=None, pix_fmt="rgb24")
        except Exception as error:  # no FFmpeg here
            print(f"  SPDL can't decode here ({error}): Pillow's threads are the best peer")
            return {}

        def make(indices):
            buffer = spdl.io.load_image_batch([self.files[i] for i in indices], width=None, height=None, pix_fmt="rgb24")
            whole = spdl.io.to_numpy(buffer)
            return (self.normalised(np.stack([self.crop(pixels, False) for pixels in whole])),)

        return {"SPDL threads": lambda: ahead(make, shuffled_batches(self.n, self.batch_size))}


class Grouped(Workload):
    """Batches of 64 over eight data sets of different widths, windows of 25 frames."""

    name, batch_size, bars = "grouped", 8, {"documented": 6.0, "best": 1.0}
    needs = []

    def make(self):
        self.n = self.count(4000)
        random = np.random.default_rng(3)
        self.arrays = {}
        for i in range(8):
            values = random.random((self.n + 24, 16 + 4 * i), dtype=np.float32)
            values.tofile(self.path(f"d{i}.bin"))
            self.arrays[f"d{i}"] = values
        groups = {
            name: {"kind": "memory", "arrays": {name: name + ".bin"}, "shapes": {name: [values.shape[1]]}, "window": 25}
            for name, values in self.arrays.items()
        }
        self.description = {"data": {"kind": "groups", "of": groups}, "batch_size": self.batch_size}

    rows = 64

    def dataset(self, fixed):
        arrays, n = list(self.arrays.values()), self.n

        class Windows(Dataset):
            def __len__(self):
                return 8 * n

            def __getitem__(self, index):
                dataset, start = divmod(index, n)
                return dataset, torch.from_numpy(arrays[dataset][start : start + 25])

        return Windows()

    @staticmethod
    def collate(samples):
        """By data set; the default collate can't: shapes differ."""
        groups = collections.defaultdict(list)
        for dataset, window in samples:
            groups[dataset].append(window)
        return tuple(torch.stack(windows) for windows in groups.values())

    def best(self, fixed=False):
        views = []
        for values in self.arrays.values():
            width = values.shape[1]
            views.append(np.lib.stride_tricks.as_strided(values, (self.n, 25, width), (width * 4, width * 4, 4), writeable=False))

        def epoch():
            orders = [np.random.permutation(self.n) for _ in views]
            for first in range(0, self.n, self.batch_size):
                part = slice(first, first + self.batch_size)
                yield tuple(torch.from_numpy(view[order[part]]) for view, order in zip(views, orders))

        return epoch


class Stragglers(Workload):
    """3 % of the reads wait 120 ms, the rest 2 ms, delivered in order."""

    name, batch_size, bars = "stragglers", 16, {"documented": 3.0, "best": 3.0}
    needs = []
    workers = (1, 2, 4, 8)

    def make(self):
        self.n = self.count(4000)
        self.description = {"data": {"kind": "sleeping", "samples": self.n}, "batch_size": self.batch_size}

    @staticmethod
    def read(index):
        slow = int((index + 1) * 0.03 + 1e-9) > int(index * 0.03 + 1e-9)
        time.sleep(0.12 if slow else 0.002)
        return np.full(64, index, dtype=np.float32)

    def dataset(self, fixed):
        n, read = self.n, self.read

        class Sleepers(Dataset):
            def __len__(self):
                return n

            def __getitem__(self, index):
                return torch.from_numpy(read(index))

        return Sleepers()

    def best(self, fixed=False):
        """Batches made in threads, as users write it; as many threads as the best number of workers."""

        def make(indices):
            return (torch.from_numpy(np.stack([self.read(index) for index in indices])),)

        return lambda: ahead(make, shuffled_batches(self.n, self.batch_size), threads=8)


ALL = [Hdf5, Nifti, NiftiCached, Jpeg, Grouped, Stragglers]


def write_descriptions(workload):
    for name, description in workload.describe().items():
        with open(workload.path(name + ".json"), "w") as file:
            json.dump(description, file, indent=1)
