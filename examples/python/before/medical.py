"""Volumes of NIfTI files: python medical.py FOLDER"""
import sys
import time
from pathlib import Path

import nibabel
import torch
from torch.utils.data import DataLoader

files = sorted(Path(sys.argv[1]).glob("*.nii.gz"))


def read(batch):
    return torch.stack([torch.from_numpy(nibabel.load(file).get_fdata(dtype="float32")) for file in batch])


torch.manual_seed(0)
loader = DataLoader(files, batch_size=2, shuffle=True, collate_fn=read)
voxels, total, began = 0, 0.0, time.perf_counter()
for volumes in loader:
    voxels, total = voxels + volumes.numel(), total + float(volumes.double().sum())
print(f"{voxels} voxels, mean {total / voxels:.6f}")
print(f"{time.perf_counter() - began:.2f} s", file=sys.stderr)
