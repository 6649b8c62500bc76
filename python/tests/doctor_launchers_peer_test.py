"""`headrace doctor -- torchrun ...` and `-- python -m pytest`: ranks and tests compute what they would without, and rank 0 is judged."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("MILLRACE_BUILD") or PACKAGE.parent / "build/release").resolve()

# Two ranks; each leaves its losses to the bit. Rank 0 writes for TensorBoard where that is installed.
RANKS = """
import os, pathlib, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
writer = None
if dist.get_rank() == 0:
    try:
        from torch.utils.tensorboard import SummaryWriter
        writer = SummaryWriter("board")
    except ImportError:
        pass
losses = []
for epoch in range(2):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        if writer:
            writer.add_scalar("loss", loss.item(), len(losses))
pathlib.Path(f"rank-{dist.get_rank()}.txt").write_text(" ".join(losses) + f" {writer is not None}")
dist.destroy_process_group()
"""
TESTED = """
import torch

def test_training(capsys):
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader([(torch.full((4,), float(i)), torch.ones(1)) for i in range(12)], batch_size=2)
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    assert capsys.readouterr().out == ""
"""


@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
class Launchers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def call(self, *words, where="."):
        folder = self.folder / where
        folder.mkdir(exist_ok=True)
        path = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "PYTHONPATH": path, "HEADRACE_LIBRARY": str(BUILD / "libheadrace.so"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return done

    def evidence(self, where):
        return json.loads((self.folder / where / "run/evidence.json").read_text())

    def test_ranks_of_torchrun(self):
        (self.folder / "train.py").write_text(RANKS)
        torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "../train.py"]
        self.call(*torchrun, where="plain")
        said = self.call("headrace", "doctor", "--run", "run", "--", sys.executable, "-m", *torchrun, where="ours").stderr
        for rank in (0, 1):
            self.assertEqual((self.folder / f"ours/rank-{rank}.txt").read_text(), (self.folder / f"plain/rank-{rank}.txt").read_text())
        found = self.evidence("ours")
        self.assertEqual((found["rank"], found["evidence"]["step"]), ("0", 23))  # the first step is the start
        times = found["evidence"]["times"]
        self.assertAlmostEqual(sum(times["seconds"].values()), times["wall"], delta=0.01 * times["wall"])
        self.assertIn("kept in run", said)
        if (self.folder / "ours/rank-0.txt").read_text().endswith("True"):
            self.assertGreater(times["seconds"]["log"], 0)
            self.assertTrue(list((self.folder / "ours/board").iterdir()))

    @unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is not installed")
    def test_pytest(self):
        (self.folder / "ours").mkdir()
        (self.folder / "ours/test_train.py").write_text(TESTED)
        done = self.call("headrace", "doctor", "--run", "run", "--", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_train.py", where="ours")
        self.assertIn("1 passed", done.stdout)
        self.assertEqual(self.evidence("ours")["evidence"]["step"], 5)


if __name__ == "__main__":
    unittest.main()
