"""The data of recipe image_pairs against PyTorch's DataLoader with torchvision's transforms.

    tools/python-peer bench/images/compare.py build/release/bench/images/bench_images [--rounds 9] [--json FILE]

Pairs of JPEG files of 1280 x 960, made here from waves and noise of several sizes, shuffled as in training: each image is in
several pairs of an epoch. Both sides deliver what the network takes: f32 of 336 x 336 after CLIP's transform (short side resized,
bicubic and antialiased, middle, normalised), equal to the bit, which is checked by digest first. Sides:
  off, ram     ours without a cache, and with the cache that a run chooses by itself where the images fit the memory
  decoded      DataLoader, torchvision.transforms on PIL images; the best of 0, 1, 2 and 4 persistent workers
  kept         like decoded, but each worker keeps its images as bytes once they are decoded and resized
  as bytes     ours without the last step, which a run on a GPU makes on the GPU
Every round times all sides one after the other; a figure is the median of the rounds' ratios with its 95 % interval.
"""

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SIDE, BATCH = 336, 16
HEIGHT, WIDTH = 960, 1280
MEAN, DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
LABELS = ("First", "Second", "Similar")
BAR = 3.0


def texture(random):
    """Waves, and noise of several sizes, so that a file has the bytes of a photograph."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    image = np.full((HEIGHT, WIDTH, 3), 127, dtype=np.float32)
    for _ in range(4):
        across, down, phase = random.uniform(-0.1, 0.1), random.uniform(-0.1, 0.1), random.uniform(0, 6.3)
        image += np.sin(across * x + down * y + phase)[..., None] * random.uniform(0, 25, 3).astype(np.float32)
    for size in (1, 2, 4, 8, 32):
        noise = random.normal(0, 3 + size, (HEIGHT // size, WIDTH // size, 3)).astype(np.float32)
        image += noise.repeat(size, 0).repeat(size, 1)
    return Image.fromarray(image.clip(0, 255).astype(np.uint8))


def make_data(folder, images, pairs):
    random = np.random.default_rng(0)
    os.makedirs(f"{folder}/images")
    names = [f"p{i:04d}.jpg" for i in range(images)]
    for name in names:
        texture(random).save(f"{folder}/images/{name}", quality=90)
    scores = random.integers(0, 7, images)

    def write(file, members, count):
        with open(f"{folder}/{file}", "w", newline="") as out:
            rows = csv.writer(out, lineterminator="\n")
            rows.writerow(["img1", "img2", "score1", "score2", "label"])
            for _ in range(count):
                a, b = random.choice(members, 2, replace=False)
                label = 2 if scores[a] == scores[b] else int(scores[b] > scores[a])
                rows.writerow([names[a], names[b], f"{scores[a]:.6f}", f"{scores[b]:.6f}", LABELS[label]])

    write("train.csv", np.arange(images - 2), pairs)
    write("val.csv", np.arange(images - 2, images), 1)
    return sum(os.path.getsize(f"{folder}/images/{name}") for name in names) / images


class Pairs(Dataset):
    """As a library's documentation shows it."""

    def __init__(self, folder):
        self.folder = folder
        with open(f"{folder}/train.csv", newline="") as file:
            self.rows = [(row["img1"], row["img2"], LABELS.index(row["label"])) for row in csv.DictReader(file)]
        resize = transforms.Resize(SIDE, interpolation=transforms.InterpolationMode.BICUBIC, antialias=True)
        self.crop = transforms.Compose([resize, transforms.CenterCrop(SIDE)])
        self.to_values = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)])

    def __len__(self):
        return len(self.rows)

    def image(self, name):
        with Image.open(f"{self.folder}/images/{name}") as file:
            return self.crop(file.convert("RGB"))

    def __getitem__(self, index):
        first, second, label = self.rows[index]
        return torch.stack([self.to_values(self.image(first)), self.to_values(self.image(second))]), label


class KeptPairs(Pairs):
    def __init__(self, folder):
        super().__init__(folder)
        self.kept = {}

    def image(self, name):
        if name not in self.kept:
            self.kept[name] = super().image(name)
        return self.kept[name]


class Endless:
    """Repeats a peer's epochs, so that a round need not begin an epoch."""

    def __init__(self, dataset, workers):
        self.loader = DataLoader(
            dataset, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=workers > 0
        )
        self.batches = None

    def rate(self, seconds):
        """Images a second; milliseconds of this process's processor time for each, as cpu_ms."""
        images = 0
        began, worked = time.perf_counter(), time.process_time()
        while True:
            if self.batches is None:
                self.batches = iter(self.loader)
            batch = next(self.batches, None)
            if batch is None:
                self.batches = None
                continue
            images += 2 * len(batch[0])
            passed = time.perf_counter() - began
            if passed >= seconds:
                self.cpu_ms = (time.process_time() - worked) / images * 1e3
                return images / passed


def digest(dataset, rows):
    total = 0
    for index in rows:
        pixels, label = dataset[index]
        value = pixels.numpy().tobytes() + np.int64(label).tobytes()
        total += int.from_bytes(hashlib.sha256(value).digest()[:8], "little")
    return str(total % 2**64)


class Ours:
    def __init__(self, program, folder):
        words = [program, folder, str(SIDE), str(BATCH), "-1"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"bench_images ended at \"{' '.join(map(str, words))}\"")
        return json.loads(line)


def median_with_interval(values):
    """Median and the order statistics that enclose it with a probability of 95 % or more (binomial)."""
    values = sorted(values)
    n = len(values)
    low, probability, term = 0, 0.0, 0.5**n
    for k in range(n // 2):
        probability += term
        if 2 * probability > 0.05:
            break
        low = k
        term = term * (n - k) / (k + 1)
    return float(np.median(values)), values[low], values[n - 1 - low]


def best_workers(dataset, seconds):
    rates, loaders = {}, {}
    for workers in (0, 1, 2, 4):
        loaders[workers] = Endless(dataset, workers)
        loaders[workers].rate(seconds / 2)
        rates[workers] = loaders[workers].rate(seconds)
    best = max(rates, key=rates.get)
    return best, rates, loaders[0].cpu_ms


def compare(ours, folder, pairs, rounds, seconds):
    documented, kept = Pairs(folder), KeptPairs(folder)
    expected = {cache: ours.ask(cache, "digest") for cache in ("off", "ram")}
    found = digest(documented, range(pairs))
    if {found} != {reply["digest"] for reply in expected.values()}:
        sys.exit(f"the delivered values differ: {expected} and {found}")
    workers, by_workers, cpu_ms = best_workers(documented, seconds)
    peers = {"decoded": Endless(documented, workers), "kept": Endless(kept, workers)}
    peers["kept"].rate(4 * seconds)  # fills its memory of images
    peers["decoded"].rate(seconds)
    rates = {side: [] for side in ("off", "ram", "off as bytes", "ram as bytes", *peers)}
    readers, ours_ms = "", {"off": [], "ram": []}
    for _ in range(rounds):
        for cache in ("off", "ram"):
            reply = ours.ask(cache, "time", seconds)
            readers = reply["readers"]
            ours_ms[cache].append(reply["cpu_s_per_1000"] / 2)
            rates[cache].append(reply["images_per_s"])
            rates[cache + " as bytes"].append(ours.ask(cache, "pixels", seconds)["images_per_s"])
        for name, peer in peers.items():
            rates[name].append(peer.rate(seconds))
    ratios = {}
    for ours_side, peer in (("off", "decoded"), ("ram", "decoded"), ("ram", "kept")):
        middle, low, high = median_with_interval([a / b for a, b in zip(rates[ours_side], rates[peer])])
        ratios[f"{ours_side} / {peer}"] = {"median": middle, "low": low, "high": high}
    return {
        "digest": found,
        "readers": readers,
        "workers": workers,
        "decoded_rate_by_workers": {str(k): v for k, v in by_workers.items()},
        "cpu_ms_per_image": {cache: float(np.median(values)) for cache, values in ours_ms.items()} | {"decoded": cpu_ms},
        "images_per_s": {side: float(np.median(values)) for side, values in rates.items()},
        "ratio": ratios,
    }


def main():
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # four workers on two cores are meant
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the built bench_images")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each side in a round")
    parser.add_argument("--images", type=int, default=96)
    parser.add_argument("--pairs", type=int, default=384)
    parser.add_argument("--json", help="write the figures there too")
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # as in each worker: with images this small more threads only wait for each other
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        file_bytes = make_data(folder, arguments.images, arguments.pairs)
        ours = Ours(arguments.program, folder)
        result = compare(ours, folder, arguments.pairs, arguments.rounds, arguments.seconds)
        ours.process.stdin.close()
        ours.process.wait()
    result |= {"torch": torch.__version__, "cpus": os.cpu_count(), "rounds": arguments.rounds}
    result |= {"load_average_before": load, "load_average_after": os.getloadavg()[0], "bytes_per_file": file_bytes}

    print(f"{arguments.images} JPEG files of {WIDTH} x {HEIGHT}, {file_bytes / 1e3:.0f} kB each; values equal to the bit")
    print(f"ours: {result['readers']}; DataLoader: {result['workers']} workers")
    for side, rate in result["images_per_s"].items():
        print(f"  {side:16}{rate:>10,.0f} images/s")
    for side, value in result["cpu_ms_per_image"].items():
        print(f"  {side:16}{value:>10.2f} ms of processor time an image")
    for name, ratio in result["ratio"].items():
        print(f"  {name:16}{ratio['median']:>10.2f}   [{ratio['low']:.2f}, {ratio['high']:.2f}]")
    print(f"{result['cpus']} CPUs, load average {load:.1f} before, {result['load_average_after']:.1f} after")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(result, file, indent=1)
    if result["ratio"]["ram / decoded"]["median"] < BAR:
        sys.exit(f"missed: ram / decoded below {BAR:g}")


if __name__ == "__main__":
    main()
