"""Sharp and blurred photographs, JPEG: python quality.py FOLDER"""
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

folder = Path(sys.argv[1])
torch.manual_seed(0)
looks = transforms.Compose([transforms.RandomCrop(64), transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
loader = DataLoader(datasets.ImageFolder(folder / "photos", looks), batch_size=8, shuffle=True)
pictures, sharp, began = 0, 0, time.perf_counter()
for batch, labels in loader:
    pictures, sharp = pictures + len(batch), sharp + int(labels.sum())
print(f"{pictures} pictures of {list(batch.shape[1:])}, {sharp} sharp")
print(f"{time.perf_counter() - began:.2f} s", file=sys.stderr)
