"""Sharp and blurred photographs, JPEG: python quality.py FOLDER"""
import sys
import time
from pathlib import Path

import torch
import headrace

folder = Path(sys.argv[1])
torch.manual_seed(0)
loader = headrace.Loader(headrace.images(labelled=folder / "photos", crop=(64, 64), normalise=True), batch_size=8, shuffle=True)
pictures, sharp, began = 0, 0, time.perf_counter()
for batch, labels in ((each["image"], each["label"]) for each in loader):
    pictures, sharp = pictures + len(batch), sharp + int(labels.sum())
print(f"{pictures} pictures of {list(batch.shape[1:])}, {sharp} sharp")
print(f"{time.perf_counter() - began:.2f} s", file=sys.stderr)
