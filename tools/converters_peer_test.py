"""Tests of tools/uvh5_to_vis.py and tools/pca_pt_to_safetensors.py on made-up input; skipped where numpy or torch is missing."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

try:
    import numpy as np
except ImportError:
    np = None
try:
    import torch
except (ImportError, OSError):
    torch = None


class FakeFile(dict):
    """As much of an h5py file as convert() asks for."""

    filename = "made-up.uvh5"


@unittest.skipIf(np is None, "no numpy")
class Uvh5(unittest.TestCase):
    def setUp(self):
        import uvh5_to_vis

        self.convert = uvh5_to_vis.convert
        times, ants, freqs = 6, [(0, 0), (0, 1), (0, 2)], 4
        rows = np.arange(times * len(ants) * freqs, dtype=float).reshape(-1, 1, freqs, 1)
        data = np.zeros(rows.shape, dtype=[("r", "<f8"), ("i", "<f8")])
        data["r"], data["i"] = rows, -rows
        header = {
            "ant_1_array": np.array([a for a, _ in ants] * times),
            "ant_2_array": np.array([b for _, b in ants] * times),
            "time_array": np.repeat(np.arange(times, dtype=float), len(ants)),
            "freq_array": np.array([[100e6, 101e6, 102e6, 103e6]]),
        }
        self.file = FakeFile({"Data/visdata": data, "Header": header})

    def test_axes_become_baseline_frequency_time(self):
        vis, freq, baselines = self.convert(self.file)
        self.assertEqual(vis.shape, (3, 4, 6))
        self.assertEqual(vis[2, 3, 5], complex((5 * 3 + 2) * 4 + 3, -((5 * 3 + 2) * 4 + 3)))
        self.assertEqual(list(freq), [100.0, 101.0, 102.0, 103.0])
        self.assertIsNone(baselines)

    def test_autos_and_late_times_are_left_out(self):
        vis, _, _ = self.convert(self.file, drop_autos=True, times=4, scale=2.0)
        self.assertEqual(vis.shape, (2, 4, 4))
        self.assertEqual(vis[0, 0, 0], complex(8, -8))

    def test_other_orders_are_refused(self):
        self.file["Header"]["ant_2_array"][4] = 2
        with self.assertRaises(SystemExit) as refused:
            self.convert(self.file)
        self.assertIn("same order at each time", str(refused.exception))


@unittest.skipIf(torch is None, "no torch")
class PcaComponents(unittest.TestCase):
    def test_missing_components_are_completed_orthogonally(self):
        from pca_pt_to_safetensors import convert

        basis = torch.linalg.qr(torch.randn(8, 8, dtype=torch.double))[0]
        tensors, metadata = convert({"fg_components": basis[:, :3].float(), "eigenvalues": torch.arange(8, 0, -1), "num_samples": 5}, "x")
        both = torch.cat([tensors["fg_components"], tensors["signal_components"]], 1)
        self.assertTrue(torch.allclose(both.T @ both, torch.eye(8, dtype=torch.double), atol=1e-6))
        self.assertEqual(metadata, {"N_FG": "3", "N_freq": "8", "num_samples": "5"})
        self.assertEqual(tensors["mean_per_freq"].shape, (8,))

    def test_other_files_are_refused(self):
        from pca_pt_to_safetensors import convert

        with self.assertRaises(SystemExit) as refused:
            convert({"state_dict": {}}, "model.pt")
        self.assertIn("no fg_components (has: state_dict)", str(refused.exception))


if __name__ == "__main__":
    unittest.main()
