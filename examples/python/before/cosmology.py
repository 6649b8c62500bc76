"""Radio maps of HDF5 with random shifts: python cosmology.py FOLDER STEPS. Started again, it goes on from FOLDER/last.pt."""
import sys
from pathlib import Path

import h5py
import torch
from torch.utils.data import DataLoader

folder, steps = Path(sys.argv[1]), int(sys.argv[2])


class Sky:
    def __init__(self, file):
        self.file = h5py.File(file)

    def __len__(self):
        return len(self.file["vis"])

    def __getitem__(self, index):
        shift = int(torch.randint(16, ()))
        return [torch.from_numpy(self.file[name][index]).roll(shift, -1) for name in ("vis", "truth")]


torch.manual_seed(0)
model = torch.nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular")
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Sky(folder / "sky.h5"), batch_size=4, shuffle=True)
parts = {"model": model, "optimizer": optimizer}
step = 0
if (folder / "last.pt").exists():
    saved = torch.load(folder / "last.pt")
    step = saved["step"]
    for name, part in parts.items():
        part.load_state_dict(saved[name])
while step < steps:
    for vis, truth in loader:
        loss = torch.nn.functional.mse_loss(model(vis), truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step == steps:
            break
torch.save({"step": step, **{name: part.state_dict() for name, part in parts.items()}}, folder / "last.pt")
print(f"step {step}, weights {model.weight.double().square().sum():.12f}")
