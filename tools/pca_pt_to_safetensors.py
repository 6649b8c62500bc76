#!/usr/bin/env python3
"""Turns the Python original's PCA components (a .pt dict) into the file that recipe cosmology reads.

    tools/python-peer tools/pca_pt_to_safetensors.py pca_components_nfg11.pt pca_components_nfg11.safetensors

Keys: fg_components (F, n_fg), eigenvalues (F), mean_per_freq (F) or mean, signal_components (F, F - n_fg; completed when absent).
The file is read with weights_only: nothing in it is executed.
"""

import argparse
import sys

import torch
from safetensors.torch import save_file


def fail(what, where, next_):
    sys.exit(f"DataError  {what}\n  where    {where}\n  next     {next_}")


def convert(stored, name):
    """Tensors and metadata for save_file, from the original's dict."""

    def tensor(*keys):
        for key in keys:
            if key in stored:
                return torch.as_tensor(stored[key]).double()
        return None

    foreground = tensor("fg_components", "components")
    if foreground is None:
        fail(f"no fg_components (has: {', '.join(map(str, stored))})", name, "is this a file of precompute_pca.py?")
    frequencies, n_fg = foreground.shape
    rest = tensor("signal_components")
    if rest is None:
        rest = torch.linalg.qr(torch.cat([foreground, torch.eye(frequencies, dtype=torch.double)], 1))[0][:, n_fg:]
    eigenvalues = tensor("eigenvalues")
    if eigenvalues is None or eigenvalues.numel() != frequencies:
        fail("eigenvalues of all frequencies are missing", name, "fit again: millrace pca fit")
    mean = tensor("mean_per_freq", "mean")
    mean = torch.zeros(frequencies, dtype=torch.double) if mean is None else mean.reshape(-1)
    tensors = {"fg_components": foreground, "signal_components": rest, "eigenvalues": eigenvalues.reshape(-1), "mean_per_freq": mean}
    metadata = {"N_FG": str(n_fg), "N_freq": str(frequencies), "num_samples": str(stored.get("num_samples", ""))}
    return {key: value.contiguous() for key, value in tensors.items()}, metadata


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("out")
    options = parser.parse_args()
    tensors, metadata = convert(torch.load(options.source, map_location="cpu", weights_only=True), options.source)
    save_file(tensors, options.out, metadata)
    print(f"{options.out}: {metadata['N_FG']} of {metadata['N_freq']} components")


if __name__ == "__main__":
    main()
