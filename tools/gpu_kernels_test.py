#!/usr/bin/env python3
"""docs/gpu-kernels.md names each kernel of the sources."""
import unittest
from pathlib import Path

import gpu_kernels


class Page(unittest.TestCase):
    def test_names_each_kernel(self):
        self.assertEqual(gpu_kernels.missing(), [])

    def test_finds_the_kernels_of_a_source(self):
        source = Path(gpu_kernels.CUDA / "norm.cu")
        self.assertEqual(gpu_kernels.kernels_of(source), ["norm_forward", "norm_backward"])


if __name__ == "__main__":
    unittest.main()
