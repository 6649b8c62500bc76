"""Volumes of NIfTI files: python medical.py FOLDER"""
import sys
import time
from pathlib import Path

import torch
import headrace

files = sorted(Path(sys.argv[1]).glob("*.nii.gz"))

torch.manual_seed(0)
loader = headrace.Loader(headrace.nifti(files), batch_size=2, shuffle=True)
voxels, total, began = 0, 0.0, time.perf_counter()
for volumes in (batch["volume"] for batch in loader):
    voxels, total = voxels + volumes.numel(), total + float(volumes.double().sum())
print(f"{voxels} voxels, mean {total / voxels:.6f}")
print(f"{time.perf_counter() - began:.2f} s", file=sys.stderr)
